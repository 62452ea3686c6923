//! How serde walks through lists, mappings, places and shapes. Knows nothing of what they mean.

use serde::de::{
    DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
    value::StrDeserializer,
};

use super::{Reader, Stopped};
use crate::config::yaml::{Entry, Kind, Node};

/// The items of a list.
pub(super) struct Items<'de> {
    list: Reader<'de>,
    rest: std::slice::Iter<'de, Node>,
}

impl<'de> Items<'de> {
    pub(super) fn new(list: Reader<'de>, items: &'de [Node]) -> Self {
        Items {
            list: Reader {
                // A lone value is called by the field's name.
                item: !list.lone || matches!(list.node.kind, Kind::List(_)),
                lone: false,
                ..list
            },
            rest: items.iter(),
        }
    }
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Stopped;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stopped> {
        let Some(node) = self.rest.next() else {
            return Ok(None);
        };
        let item = Reader { node, ..self.list };
        seed.deserialize(item).map(Some)
    }
}

/// The fields of a mapping.
pub(super) struct Pairs<'de> {
    map: Reader<'de>,
    rest: std::vec::IntoIter<&'de Entry>,
    entry: Option<&'de Entry>,
}

impl<'de> Pairs<'de> {
    pub(super) fn new(map: Reader<'de>, entries: Vec<&'de Entry>) -> Self {
        Pairs {
            map,
            rest: entries.into_iter(),
            entry: None,
        }
    }
}

impl<'de> MapAccess<'de> for Pairs<'de> {
    type Error = Stopped;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Stopped> {
        self.entry = self.rest.next();
        let Some(entry) = self.entry else {
            return Ok(None);
        };
        seed.deserialize(Reader::new(&entry.key, self.map.notes))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stopped> {
        let entry = self.entry.expect("a value is asked for after its key");
        seed.deserialize(Reader {
            node: &entry.value,
            field: entry.name(),
            item: false,
            lone: false,
            notes: self.map.notes,
        })
    }
}

/// A value behind its place: file, start and end.
pub(super) struct Placed<'de> {
    reader: Reader<'de>,
    step: usize,
}

impl<'de> Placed<'de> {
    pub(super) fn new(reader: Reader<'de>) -> Self {
        Placed { reader, step: 0 }
    }
}

impl<'de> SeqAccess<'de> for Placed<'de> {
    type Error = Stopped;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stopped> {
        let span = self.reader.node.span;
        self.step += 1;
        match self.step {
            1 => seed.deserialize(span.file.into_deserializer()).map(Some),
            2 => seed.deserialize(span.start.into_deserializer()).map(Some),
            3 => seed.deserialize(span.end.into_deserializer()).map(Some),
            // Whoever asked goes on without it, so that nothing may stay unsaid.
            _ => seed
                .deserialize(self.reader)
                .map(Some)
                .map_err(|stopped| self.reader.settle(stopped, "this")),
        }
    }
}

/// A value whose variant is what it looks like.
pub(super) struct Shape<'de> {
    reader: Reader<'de>,
    shape: &'static str,
}

impl<'de> Shape<'de> {
    pub(super) fn new(reader: Reader<'de>, shape: &'static str) -> Self {
        Shape { reader, shape }
    }
}

impl<'de> EnumAccess<'de> for Shape<'de> {
    type Error = Stopped;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Stopped> {
        let name: StrDeserializer<'_, Stopped> = self.shape.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Shape<'de> {
    type Error = Stopped;

    fn unit_variant(self) -> Result<(), Stopped> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Stopped> {
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Stopped> {
        Err(Stopped::Other("a shape holds one value".into()))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Stopped> {
        Err(Stopped::Other("a shape holds one value".into()))
    }
}
