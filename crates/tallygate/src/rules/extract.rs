//! Draws a rule's key out of a request. Knows parts and where they are found; knows nothing of
//! limits and lists.

mod claim;
mod source;

use std::borrow::Cow;
use std::net::IpAddr;

use crate::Key;
use crate::http::canonical;
use smallvec::SmallVec;

use super::request_view::{Asked, Client, host_name};
pub(super) use source::{Found, header};

use super::matcher::Route;
use super::{KeyText, Part, Source};
use source::find;

/// How a rule's key is drawn.
#[derive(Debug)]
pub(super) struct Drawing(Box<[Box<[Place]>]>);

/// Where one value may be.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) source: Source,
    pub(super) secret: bool,
}

/// A key out of a request.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) key: Key<'static>,
    /// Whether every part was found in its first place.
    pub(super) own: bool,
    /// The first part that was found nowhere.
    pub(super) lack: Option<Lack>,
}

/// A part that was found nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    pub(super) part: usize,
    /// Whether there was something, but not one thing.
    pub(super) several: bool,
}

impl Drawing {
    pub(super) fn new(parts: &[Part]) -> Self {
        let place = |source: &Source| Place {
            secret: source.is_secret(),
            source: source.clone(),
        };
        let places = |part: &Part| part.sources().map(place).collect();
        Drawing(parts.iter().map(places).collect())
    }

    /// Draws the key, telling what was found where.
    ///
    /// What was found in the first place of each part is the key. Where that is not so, one part
    /// more says what was found where: a client who writes an address into a header is not that
    /// address, and one who writes nothing is nobody else.
    pub(super) fn draw<'r>(
        &'r self,
        asked: &Asked<'_>,
        route: Route<'r>,
        mut tell: impl FnMut(usize, &'r Place, &Found<'_>),
    ) -> Drawn {
        let mut lack = None;
        let mut found_at = SmallVec::<[Option<usize>; 4]>::new();
        let mut values = SmallVec::<[(Cow<'_, [u8]>, bool); 4]>::new();
        for (part, places) in self.0.iter().enumerate() {
            let mut several = false;
            let hit = places.iter().enumerate().find_map(|(at, place)| {
                let found = find(&place.source, asked, route);
                tell(part, place, &found);
                match found {
                    Found::Value(value) => Some((at, value, place.secret)),
                    Found::Absent => None,
                    Found::Several => {
                        several = true;
                        None
                    }
                }
            });
            found_at.push(hit.as_ref().map(|(at, _, _)| *at));
            match hit {
                Some((_, value, secret)) => values.push((value, secret)),
                None => {
                    lack.get_or_insert(Lack { part, several });
                    values.push((Cow::Borrowed(&[]), false));
                }
            }
        }
        let own = found_at.iter().all(|at| *at == Some(0));
        if !own {
            values.push((Cow::Owned(marks(&found_at).into_bytes()), false));
        }
        Drawn {
            key: compose(values),
            own,
            lack,
        }
    }

    /// The key that a text in a list stands for; none if it has another number of parts.
    pub(super) fn listed(&self, text: &KeyText, client: &Client) -> Option<Key<'static>> {
        if text.parts() != self.0.len() {
            return None;
        }
        let values = self.0.iter().zip(text.texts()).map(|(places, text)| {
            let place = places.first();
            let value = place.map_or(Cow::Borrowed(text.as_bytes()), |place| {
                place.value(text, client)
            });
            (value, place.is_some_and(|place| place.secret))
        });
        Some(compose(values))
    }

    /// Every key that a text may be: of a key of one part also those found in its other places.
    pub(super) fn all_listed(&self, text: &KeyText, client: &Client) -> Vec<Key<'static>> {
        let mut keys: Vec<_> = self.listed(text, client).into_iter().collect();
        if let [places] = &*self.0
            && let Some(text) = text.texts().next()
            && !keys.is_empty()
        {
            let others = places.iter().enumerate().skip(1);
            keys.extend(others.map(|(at, place)| {
                let value = (place.value(text, client), place.secret);
                compose([value, (Cow::Owned(marks(&[Some(at)]).into_bytes()), false)])
            }));
        }
        keys
    }
}

impl Place {
    /// A value of this place as it is counted by, from how it is written in a list.
    fn value<'a>(&self, text: &'a str, client: &Client) -> Cow<'a, [u8]> {
        match &self.source {
            Source::Ip => address(text, client),
            Source::Header(name) => canonical(name, text.as_bytes()),
            Source::Host => host_name(text.as_bytes()),
            _ => Cow::Borrowed(text.as_bytes()),
        }
    }
}

/// Where each part was found: `0 2 -`.
fn marks(found_at: &[Option<usize>]) -> String {
    let mark = |at: &Option<usize>| at.map_or("-".to_owned(), |at| at.to_string());
    let marks: Vec<String> = found_at.iter().map(mark).collect();
    marks.join(" ")
}

fn address<'a>(text: &'a str, client: &Client) -> Cow<'a, [u8]> {
    match text.parse::<IpAddr>() {
        Ok(ip) => Cow::Owned(client.group(ip).to_string().into_bytes()),
        Err(_) => Cow::Borrowed(text.as_bytes()),
    }
}

fn compose<'v>(values: impl IntoIterator<Item = (Cow<'v, [u8]>, bool)>) -> Key<'static> {
    let add = |key: Option<Key<'static>>, (value, secret): (Cow<'v, [u8]>, bool)| {
        Some(match (key, secret) {
            (None, false) => Key::from(value.into_owned()),
            (None, true) => Key::secret(value),
            (Some(key), false) => key.and(value),
            (Some(key), true) => key.and_secret(value),
        })
    };
    let key = values.into_iter().fold(None, add);
    key.unwrap_or_else(|| Key::from_parts::<&[u8]>([]))
}
