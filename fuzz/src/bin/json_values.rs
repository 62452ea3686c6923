//! Looks for the value at a path, the first line, in JSON, the rest. Checks that what is found does not
//! depend on how the JSON is cut, that it is what serde_json finds where that accepts the JSON, and
//! that bodies of every kind are read without a failure.
#![no_main]

use std::fmt;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use libfuzzer_sys::fuzz_target;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tallygate::http::{JsonBody, JsonPath, JsonScanner, JsonValue};

/// The longest text that is not `Other`.
const MAX_TEXT_BYTES: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Null,
    Whole(u32),
    Text(Vec<u8>),
    Bool(bool),
    Other,
}

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |&byte| byte == b'\n');
    let path = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let json = parts.next().unwrap_or_default();
    let Ok(path) = path.parse::<JsonPath>() else {
        return;
    };
    let (found, complete) = scan(&path, [json]);
    let cut = json
        .first()
        .map_or(0, |&byte| usize::from(byte) % json.len());
    let (start, end) = json.split_at(cut);
    assert_eq!(scan(&path, [start, end]), (found.clone(), complete));
    assert_eq!(scan(&path, json.chunks(1)), (found.clone(), complete));
    check_against_serde(&path, json, &found, complete);
    check_bodies(&path, json, cut);
});

fn scan<'j>(path: &JsonPath, pieces: impl IntoIterator<Item = &'j [u8]>) -> (Vec<Value>, bool) {
    let mut scanner = JsonScanner::new([path.clone()]);
    let mut found = Vec::new();
    for piece in pieces {
        scanner.read(piece, &mut |_, value| {
            found.push(match value {
                JsonValue::Null => Value::Null,
                JsonValue::Whole(number) => Value::Whole(number),
                JsonValue::Text(text) => Value::Text(text.to_vec()),
                JsonValue::Bool(value) => Value::Bool(value),
                JsonValue::Other => Value::Other,
            });
        });
    }
    (found, scanner.is_complete())
}

/// The scanner accepts more: it checks the structure, and not what is inside of texts and numbers.
fn check_against_serde(path: &JsonPath, json: &[u8], found: &[Value], complete: bool) {
    let mut expected = Vec::new();
    let names: Vec<&str> = path.segments().collect();
    let seed = At {
        names: &names,
        found: &mut expected,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let accepted = seed.deserialize(&mut deserializer).is_ok() && deserializer.end().is_ok();
    if accepted {
        assert!(complete, "not complete: {}", String::from_utf8_lossy(json));
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(json));
    }
}

/// Collects the values at the end of some names.
struct At<'a> {
    names: &'a [&'a str],
    found: &'a mut Vec<Value>,
}

impl At<'_> {
    fn add<E>(self, value: Value) -> Result<(), E> {
        if self.names.is_empty() {
            self.found.push(value);
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.add(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.add(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.add(u32::try_from(value).map_or(Value::Other, Value::Whole))
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.add(Value::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.add(Value::Other)
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        match value.len() <= MAX_TEXT_BYTES {
            true => self.add(Value::Text(value.as_bytes().to_vec())),
            false => self.add(Value::Other),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some((name, names)) = self.names.split_first() else {
            self.found.push(Value::Other);
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        for element in 0_u64.. {
            let more = match element.to_string() == **name {
                true => list
                    .next_element_seed(At {
                        names,
                        found: &mut *self.found,
                    })?
                    .is_some(),
                false => list.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let Some((name, names)) = self.names.split_first() else {
            self.found.push(Value::Other);
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        while let Some(field) = fields.next_key::<String>()? {
            match field == *name {
                true => fields.next_value_seed(At {
                    names,
                    found: &mut *self.found,
                })?,
                false => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

fn check_bodies(path: &JsonPath, body: &[u8], cut: usize) {
    for kind in [
        "application/json",
        "text/event-stream",
        "application/x-ndjson",
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, kind.parse().expect("it is a header's value"));
        let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let paths = vec![path.clone()];
            let mut reader = JsonBody::from_headers(&headers, paths).expect("not compressed");
            pieces.for_each(|piece| reader.read(piece));
            reader.finish().next().flatten()
        };
        let whole = read(&mut [body].into_iter());
        let (start, end) = body.split_at(cut);
        assert_eq!(read(&mut [start, end].into_iter()), whole, "{kind}");
        assert_eq!(read(&mut body.chunks(1)), whole, "{kind}");
    }
}
