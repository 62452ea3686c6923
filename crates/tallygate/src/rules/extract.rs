//! Extracts the key of a rule from a request, and from the text of a list entry.

mod claim;
mod source;

use std::borrow::Cow;
use std::net::IpAddr;

use smallvec::SmallVec;

use super::matcher::Route;
use super::request_view::{RequestView, host_name};
use super::{KeyText, Part, Source};
use crate::http::{ClientAddress, canonical, canonical_address};
use crate::key::{Key, MAX_INLINE_BYTES};

pub(super) use source::{Extracted, proxy_header};

#[derive(Debug)]
pub(super) struct ExtractedKey {
    pub(super) key: Key<'static>,
    /// Whether every part is from its first source.
    pub(super) primary: bool,
    /// The first part without a value.
    pub(super) missing: Option<MissingPart>,
    /// Whether a part asked for the address of the client, and the server did not record it.
    pub(super) lacks_address: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MissingPart {
    pub(super) part: usize,
    /// Whether there were values, but conflicting ones.
    pub(super) conflicting: bool,
}

/// Extracts a key and visits each source that is tried.
///
/// If every part is from its first source, their values are the key. Otherwise one more part states
/// which source each is from: a client that sends an address in a header must not share the
/// counter of that address, and one that sends nothing must not share anyone's.
pub(super) fn extract<'r>(
    parts: &'r [Part],
    view: &RequestView<'_>,
    route: Route<'r>,
    mut visit: impl FnMut(usize, &'r Source, &Extracted<Key<'_>>),
) -> ExtractedKey {
    let mut missing = None;
    let mut lacks_address = false;
    let mut indices = SmallVec::<[Option<usize>; 4]>::new();
    let mut key = None;
    for (number, part) in parts.iter().enumerate() {
        let mut conflicting = false;
        let found = part.sources.iter().enumerate().find_map(|(index, own)| {
            let value = own.extract(view, route);
            visit(number, &own.source, &value);
            lacks_address |= own.source == Source::Ip && view.lacks_address();
            conflicting |= matches!(value, Extracted::Conflicting);
            match value {
                Extracted::Value(value) => Some((index, value)),
                Extracted::Absent | Extracted::Conflicting => None,
            }
        });
        indices.push(found.as_ref().map(|(index, _)| *index));
        let value = found.map(|(_, value)| value).unwrap_or_else(|| {
            missing.get_or_insert(MissingPart {
                part: number,
                conflicting,
            });
            Key::from("")
        });
        key = Some(append(key, value));
    }
    let primary = indices.iter().all(|index| *index == Some(0));
    if !primary {
        key = Some(append(key, source_marks(&indices)));
    }
    ExtractedKey {
        key: key.unwrap_or_else(|| Key::from_parts::<&[u8]>([])),
        primary,
        missing,
        lacks_address,
    }
}

/// The key of a list entry; `None` if it has another number of parts.
pub(super) fn listed_key(
    parts: &[Part],
    text: &KeyText,
    client: &ClientAddress,
) -> Option<Key<'static>> {
    if text.parts() != parts.len() {
        return None;
    }
    let values = parts.iter().zip(text.texts());
    let key = values.fold(None, |key, (part, text)| {
        let value = part.sources.first().map(|own| own.listed(text, client));
        Some(append(key, value.unwrap_or_else(|| Key::from(text))))
    });
    Some(key.unwrap_or_else(|| Key::from_parts::<&[u8]>([])))
}

/// Every key that a text may mean: for a key of one part also those from its other sources.
pub(super) fn listed_keys(
    parts: &[Part],
    text: &KeyText,
    client: &ClientAddress,
) -> Vec<Key<'static>> {
    let mut keys: Vec<_> = listed_key(parts, text, client).into_iter().collect();
    if let ([part], [text]) = (parts, &*text.texts().collect::<Vec<_>>()) {
        let others = part.sources.iter().enumerate().skip(1);
        keys.extend(others.map(|(index, own)| {
            let value = own.listed(text, client).into_owned();
            append(Some(value), source_marks(&[Some(index)]))
        }));
    }
    keys
}

/// The source of each part of an extracted key; `None` for a part that had no value.
pub(super) fn key_sources<'r>(parts: &'r [Part], key: &Key<'_>) -> Vec<Option<&'r Source>> {
    let marks = key.parts().nth(parts.len());
    let marks = marks.map(|marks| String::from_utf8_lossy(marks.bytes).into_owned());
    let mut marks = marks.as_deref().map(|marks| marks.split(' '));
    let source = |part: &'r Part| {
        let index = match &mut marks {
            None => 0,
            Some(marks) => marks.next()?.parse().ok()?,
        };
        part.sources().nth(index)
    };
    parts.iter().map(source).collect()
}

fn append(key: Option<Key<'static>>, value: Key<'_>) -> Key<'static> {
    match key {
        None => value.into_owned(),
        Some(key) => key.and_key(&value),
    }
}

/// The source of each part: `0 2 -`.
fn source_marks(indices: &[Option<usize>]) -> Key<'static> {
    let mark = |index: &Option<usize>| index.map_or("-".to_owned(), |index| index.to_string());
    let marks: Vec<String> = indices.iter().map(mark).collect();
    Key::from(marks.join(" "))
}

impl super::key_part::PartSource {
    /// The value of this source for a text in a list.
    fn listed<'a>(&self, text: &'a str, client: &ClientAddress) -> Key<'a> {
        let bytes = text.as_bytes();
        let value = match &self.source {
            Source::Ip => {
                return match text.parse::<IpAddr>() {
                    Ok(ip) => address_key(client.grouped(canonical_address(ip))),
                    Err(_) => Key::from(text),
                };
            }
            Source::Header(name) => canonical(name, bytes),
            Source::Host => host_name(bytes),
            Source::Method => method_name(bytes),
            _ => Cow::Borrowed(bytes),
        };
        self.key(value)
    }

    fn key<'a>(&self, value: Cow<'a, [u8]>) -> Key<'a> {
        match (self.secret, value) {
            (true, value) => Key::secret(value),
            (false, Cow::Borrowed(value)) => Key::from(value),
            (false, Cow::Owned(value)) => Key::from(value),
        }
    }
}

/// A method in upper case.
fn method_name(method: &[u8]) -> Cow<'_, [u8]> {
    match method.iter().any(u8::is_ascii_lowercase) {
        true => Cow::Owned(method.to_ascii_uppercase()),
        false => Cow::Borrowed(method),
    }
}

fn address_key(ip: IpAddr) -> Key<'static> {
    let ip = match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => return Key::from(ip.to_string()),
    };
    // `Ipv4Addr::to_string` would take longer than the decision.
    let mut text = [0; MAX_INLINE_BYTES];
    let mut end = 0;
    for octet in ip.octets() {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(octet).as_bytes();
        text[end..end + digits.len()].copy_from_slice(digits);
        text[end + digits.len()] = b'.';
        end += digits.len() + 1;
    }
    Key::short(text, end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_formatted_as_by_the_standard_library() {
        for octet in 0..=255 {
            for ip in [[octet, 0, 10, 99], [100, 7, octet, octet], [octet; 4]] {
                let ip = IpAddr::from(ip);
                assert!(address_key(ip) == Key::from(ip.to_string()), "{ip}");
            }
        }
        let ip: IpAddr = "2001:db8:0:1::".parse().unwrap();
        assert!(address_key(ip) == Key::from("2001:db8:0:1::"));
    }
}
