//! Extracts the value of one source from a request.

use std::borrow::Cow;
use std::sync::Once;

use ::http::header::{COOKIE, HeaderName, HeaderValue};

use super::super::Source;
use super::super::key_part::PartSource;
use super::super::matcher::Route;
use super::super::path::decoded;
use super::super::request_view::RequestView;
use super::{address_key, claim, method_name};
use crate::http::{HOW_TO_RECORD_PEERS, canonical};
use crate::key::Key;

/// Logged once: the cause is the code of the server or of the sender of checks, not a client.
static NO_PEER: Once = Once::new();
static NO_ATTRIBUTE: Once = Once::new();

#[derive(Debug, PartialEq)]
pub(in crate::rules) enum Extracted<T> {
    Value(T),
    /// No value, or only empty ones.
    Absent,
    Conflicting,
}

impl PartSource {
    pub(super) fn extract<'a>(
        &'a self,
        view: &'a RequestView<'_>,
        route: Route<'a>,
    ) -> Extracted<Key<'a>> {
        let value = match &self.source {
            Source::Ip => match view.grouped_client_ip() {
                Some(ip) => return Extracted::Value(address_key(ip)),
                None => {
                    warn_of_missing_address(view);
                    return Extracted::Absent;
                }
            },
            Source::Custom(key) => {
                let key = key.call(view.head);
                return key.map_or(Extracted::Absent, Extracted::Value);
            }
            source => value(source, view, route),
        };
        match value {
            Extracted::Value(value) => Extracted::Value(self.key(value)),
            Extracted::Absent => Extracted::Absent,
            Extracted::Conflicting => Extracted::Conflicting,
        }
    }
}

#[cold]
fn warn_of_missing_address(view: &RequestView<'_>) {
    if view.lacks_address() {
        NO_PEER.call_once(|| {
            tracing::error!(
                "requests to rules keyed by `ip` are answered with 500, because they have no \
                 address: {HOW_TO_RECORD_PEERS}"
            );
        });
    } else {
        NO_ATTRIBUTE.call_once(|| {
            tracing::warn!(
                "a check of a rule keyed by `ip` has no attribute `ip`: such checks share a counter"
            );
        });
    }
}

fn value<'a>(
    source: &'a Source,
    view: &'a RequestView<'_>,
    route: Route<'a>,
) -> Extracted<Cow<'a, [u8]>> {
    match source {
        Source::Header(name) => header(name, view.head.headers().get_all(name).iter()),
        Source::Cookie(name) => single(cookies(name, view)),
        Source::Query(name) => single(query(name, view.head.uri().query().unwrap_or_default())),
        Source::Path(name) => {
            let value = match route {
                Route::Path { pattern, variant } => {
                    let path = view.paths().all().get(variant);
                    path.and_then(|path| pattern.parameter(name, path))
                }
                Route::Grpc(_) | Route::Any => None,
            };
            single(value.map(Cow::Borrowed))
        }
        Source::Claim { header, name } => {
            let values = view.proxy_header(header);
            single(values.filter_map(|value| claim::find(name, value.as_bytes())))
        }
        Source::Route => single([route.text()]),
        Source::Method => single([method_name(view.head.method().as_str().as_bytes())]),
        Source::Host => single(view.hosts().iter().map(|host| Cow::Borrowed(&**host))),
        Source::Constant(text) => Extracted::Value(Cow::Borrowed(text.as_bytes())),
        // They are keys already.
        Source::Ip | Source::Custom(_) => Extracted::Absent,
    }
}

/// The value of a header that only a proxy may set.
pub(in crate::rules) fn proxy_header<'a>(
    name: &HeaderName,
    view: &'a RequestView<'_>,
) -> Extracted<Cow<'a, [u8]>> {
    header(name, view.proxy_header(name))
}

fn header<'a>(
    name: &HeaderName,
    values: impl Iterator<Item = &'a HeaderValue>,
) -> Extracted<Cow<'a, [u8]>> {
    single(values.map(|value| canonical(name, value.as_bytes())))
}

/// The value that all values are equal to.
fn single<'a>(values: impl IntoIterator<Item = Cow<'a, [u8]>>) -> Extracted<Cow<'a, [u8]>> {
    let mut values = values.into_iter().filter(|value| !value.is_empty());
    match values.next() {
        None => Extracted::Absent,
        Some(first) if values.all(|value| value == first) => Extracted::Value(first),
        Some(_) => Extracted::Conflicting,
    }
}

/// The cookies with a name. HTTP/2 may send each in a header of its own.
fn cookies<'a>(name: &'a str, view: &'a RequestView<'_>) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let lines = view.head.headers().get_all(COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
    pairs.filter_map(move |pair| {
        let equals = memchr::memchr(b'=', pair)?;
        let (own, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        let unquoted = value
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""));
        (own == name.as_bytes()).then(|| Cow::Borrowed(unquoted.unwrap_or(value)))
    })
}

/// The query parameters with a name, decoded as in forms.
fn query<'a>(name: &'a str, query: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split('&').filter_map(move |pair| {
        let (own, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*form_decoded(own) == *name.as_bytes()).then(|| form_decoded(value))
    })
}

fn form_decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('+') {
        return decoded(text.as_bytes());
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(decoded(spaced.as_bytes()).into_owned())
}
