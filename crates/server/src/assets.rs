//! The files of the pages, embedded in the binary.

use std::ffi::OsStr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use include_dir::{Dir, File, include_dir};
use sha2::{Digest, Sha256};

use crate::problem::{Code, Problem};
use crate::response::{self, HandlerResult};

static UI: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/ui");

/// The documents that the pages link to, as Markdown.
macro_rules! docs {
    ($($name:literal in $folder:literal),* $(,)?) => {
        &[$((concat!("docs/", $name), include_str!(concat!("../../../", $folder, $name)))),*]
    };
}

static DOCS: &[(&str, &str)] = docs![
    "README.md" in "",
    "algorithms.md" in "docs/",
    "rules.md" in "docs/",
    "http-api.md" in "docs/",
    "integrations.md" in "docs/",
    "operations.md" in "docs/",
    "guarantees.md" in "docs/",
    "scaling.md" in "docs/",
    "playground.md" in "docs/",
];

const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; img-src 'self' data:; \
     object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Responds with the file of that name.
pub(super) fn answer<B>(name: &str, request: &Request<B>) -> HandlerResult {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(response::method_not_allowed(&[Method::GET]));
    }
    let file = find(name).ok_or_else(|| Problem::new(Code::NotFound, "there is no such file"))?;
    Ok(respond(&file, request.headers()))
}

struct Asset {
    content_type: &'static str,
    contents: &'static [u8],
}

fn find(name: &str) -> Option<Asset> {
    if let Some((_, text)) = DOCS.iter().find(|(known, _)| *known == name) {
        return Some(Asset {
            content_type: "text/markdown; charset=utf-8",
            contents: text.as_bytes(),
        });
    }
    let file = UI.get_file(name)?;
    Some(Asset {
        content_type: content_type(file),
        contents: file.contents(),
    })
}

/// The file, or 304 if `If-None-Match` has its tag.
fn respond(file: &Asset, request: &HeaderMap) -> Response<Full<Bytes>> {
    let hash = Sha256::digest(file.contents);
    // Half of the hash suffices.
    let etag = HeaderValue::try_from(format!("\"{hash:.32x}\""));
    let etag = etag.expect("quoted digits are a valid header value");
    let cached = request.get_all(header::IF_NONE_MATCH).iter();
    let mut cached = cached.flat_map(|tags| tags.as_bytes().split(|byte| *byte == b','));
    // A proxy that compresses the body makes the tag a weak one.
    let is_cached = cached.any(|tag| {
        let tag = tag.trim_ascii();
        tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes()
    });
    let mut response = Response::new(Full::default());
    match is_cached {
        true => *response.status_mut() = StatusCode::NOT_MODIFIED,
        false => *response.body_mut() = Full::from(file.contents),
    }
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag);
    for (name, value) in [
        // Revalidated each time: another version may have other files.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_TYPE, file.content_type),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn content_type(file: &File<'_>) -> &'static str {
    match file.path().extension().and_then(OsStr::to_str) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_content_type() {
        let folders = UI.dirs().chain([&UI]);
        for file in folders.flat_map(Dir::files) {
            assert_ne!(content_type(file), "application/octet-stream", "{file:?}");
            assert!(!file.contents().is_empty(), "{file:?}");
        }
    }

    #[test]
    fn a_cached_file_is_not_sent_again() {
        let file = find("index.html").unwrap();
        let tag = respond(&file, &HeaderMap::new()).headers()[header::ETAG].clone();
        let tag = tag.to_str().unwrap();
        for (cached, status) in [
            (tag.to_owned(), 304),
            (format!("\"x\", W/{tag}"), 304),
            ("\"x\"".to_owned(), 200),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, cached.parse().unwrap());
            assert_eq!(respond(&file, &headers).status(), status, "{cached}");
        }
        assert!(find("../Cargo.toml").is_none());
    }
}
