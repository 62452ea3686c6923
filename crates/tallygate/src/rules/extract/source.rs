//! Finds what a part of a key says in a request. Knows where clients write things and in how many
//! ways; knows nothing of limits.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::http::canonical;
use http::header::{COOKIE, HeaderName};

use super::super::Source;
use super::super::matcher::Route;
use super::super::path::decoded;
use super::super::request_view::Asked;
use super::claim;

/// What was found.
#[derive(Debug, PartialEq)]
pub(in crate::rules) enum Found<'a> {
    Value(Cow<'a, [u8]>),
    /// Nothing, or nothing but empty values.
    Absent,
    /// Values that differ.
    Several,
}

/// Finds what a source says of a request that a rule is about.
pub(super) fn find<'a>(source: &'a Source, asked: &'a Asked<'_>, route: Route<'a>) -> Found<'a> {
    let of = |value: &'a [u8]| one([Cow::Borrowed(value)]);
    match source {
        Source::Ip => one(asked.client().map(|ip| Cow::Owned(address(ip)))),
        Source::Header(name) => header(name, asked),
        Source::Cookie(name) => one(cookies(name, asked)),
        Source::Query(name) => one(query(name, asked.query().unwrap_or_default())),
        Source::Path(name) => {
            let value = match route {
                Route::Path { pattern, reading } => {
                    let path = asked.paths().all().get(reading);
                    path.and_then(|path| pattern.parameter(name, path))
                }
                Route::Grpc(_) | Route::Any => None,
            };
            value.map_or(Found::Absent, of)
        }
        Source::Claim { header, name } => {
            let values = asked.headers().get_all(header).iter();
            one(values.filter_map(|value| claim::find(name, value.as_bytes())))
        }
        Source::Route => one([route.text()]),
        Source::Method => of(asked.method().as_str().as_bytes()),
        Source::Host => one(asked.hosts().iter().map(|host| Cow::Borrowed(&**host))),
        Source::Constant(text) => Found::Value(Cow::Borrowed(text.as_bytes())),
    }
}

/// An address as text.
// Most are IPv4, whose formatting by the standard library would be half of a walk.
fn address(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => {
            let mut text = Vec::with_capacity(16);
            for octet in ip.octets() {
                text.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
                text.push(b'.');
            }
            text.pop();
            text
        }
        IpAddr::V6(ip) => ip.to_string().into_bytes(),
    }
}

/// A header's value.
pub(in crate::rules) fn header<'a>(name: &HeaderName, asked: &'a Asked<'_>) -> Found<'a> {
    let values = asked.headers().get_all(name).iter();
    one(values.map(|value| canonical(name, value.as_bytes())))
}

/// What all values are, if they are one.
fn one<'a>(values: impl IntoIterator<Item = Cow<'a, [u8]>>) -> Found<'a> {
    let mut found = Found::Absent;
    for value in values.into_iter().filter(|value| !value.is_empty()) {
        match &found {
            Found::Absent => found = Found::Value(value),
            Found::Value(same) if *same == value => {}
            Found::Value(_) | Found::Several => return Found::Several,
        }
    }
    found
}

/// The cookies of one name: HTTP/2 may send each in a header of its own.
fn cookies<'a>(name: &'a str, asked: &'a Asked<'_>) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let lines = asked.headers().get_all(COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
    pairs.filter_map(move |pair| {
        let at = memchr::memchr(b'=', pair)?;
        let (written, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        let bare = value
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""));
        (written == name.as_bytes()).then(|| Cow::Borrowed(bare.unwrap_or(value)))
    })
}

/// The query's parameters of one name, decoded as forms are.
fn query<'a>(name: &'a str, query: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split('&').filter_map(move |pair| {
        let (written, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*form(written) == *name.as_bytes()).then(|| form(value))
    })
}

fn form(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('+') {
        return decoded(text.as_bytes());
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(decoded(spaced.as_bytes()).into_owned())
}
