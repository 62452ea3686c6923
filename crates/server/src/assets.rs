//! The files of the pages, embedded in the binary.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use sha2::{Digest, Sha256};

use crate::problem::{Code, Problem};
use crate::response;

pub(super) struct File {
    name: &'static str,
    bytes: &'static [u8],
    etag: OnceLock<HeaderValue>,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(File {
            name: $name,
            bytes: include_bytes!(concat!("../ui/", $name)),
            etag: OnceLock::new(),
        }),*]
    };
}

/// Every file of `ui/`, by its path there.
static FILES: [File; 35] = files![
    "algorithms.js",
    "api.js",
    "card.js",
    "chart.js",
    "clock.js",
    "controls.js",
    "diagrams.js",
    "diagrams/bucket.js",
    "diagrams/counter.js",
    "diagrams/log.js",
    "diagrams/queue.js",
    "diagrams/shared.js",
    "diagrams/window.js",
    "dom.js",
    "events.js",
    "icon.svg",
    "index.html",
    "key-lookup.js",
    "labs.js",
    "live.html",
    "live.js",
    "pattern-editor.js",
    "permalink.js",
    "playground.js",
    "quota-editor.js",
    "quota.js",
    "response-log.js",
    "rules-table.js",
    "stacked-bars.js",
    "state.js",
    "store-status.js",
    "style.css",
    "tabs.js",
    "theme.js",
    "traffic.js",
];

const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

impl File {
    pub(super) fn answer<B>(
        name: &str,
        request: &Request<B>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(response::method_not_allowed(&[Method::GET]));
        }
        let file = File::find(name)
            .ok_or_else(|| Problem::new(Code::NotFound, "there is no such file"))?;
        Ok(file.response(request.headers()))
    }

    fn find(name: &str) -> Option<&'static File> {
        FILES.iter().find(|file| file.name == name)
    }

    /// The file, or 304 if `If-None-Match` has its tag.
    fn response(&self, request: &HeaderMap) -> Response<Full<Bytes>> {
        let etag = self.etag.get_or_init(|| etag(self.bytes));
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
            false => *response.body_mut() = Full::from(Bytes::from_static(self.bytes)),
        }
        let headers = response.headers_mut();
        headers.insert(header::ETAG, etag.clone());
        // Revalidated each time: another version may have other files.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::CONTENT_TYPE, self.content_type());
        headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
        headers.insert(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        headers.insert(
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        );
        response
    }

    fn content_type(&self) -> HeaderValue {
        let extension = self.name.rsplit('.').next();
        HeaderValue::from_static(match extension {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        })
    }
}

fn etag(bytes: &[u8]) -> HeaderValue {
    let hash = Sha256::digest(bytes);
    // Half of the hash suffices.
    let digits = hash[..16]
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    HeaderValue::try_from(format!("\"{digits}\"")).expect("quoted digits are a valid header value")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_is_embedded_and_has_a_content_type() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/ui"));
        let mut names = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => names.push(path.strip_prefix(root).unwrap().display().to_string()),
                }
            }
        }
        names.sort();
        let embedded: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        assert_eq!(names, embedded);
        for file in &FILES {
            let content_type = file.content_type();
            assert_ne!(content_type, "application/octet-stream", "{}", file.name);
            assert!(!file.bytes.is_empty(), "{}", file.name);
        }
    }

    #[test]
    fn a_cached_file_is_not_sent_again() {
        let file = File::find("index.html").unwrap();
        let tag = file.response(&HeaderMap::new()).headers()[header::ETAG].clone();
        let tag = tag.to_str().unwrap();
        for (cached, status) in [
            (tag.to_owned(), 304),
            (format!("\"x\", W/{tag}"), 304),
            ("\"x\"".to_owned(), 200),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, cached.parse().unwrap());
            assert_eq!(file.response(&headers).status(), status, "{cached}");
        }
        assert!(File::find("../Cargo.toml").is_none());
    }
}
