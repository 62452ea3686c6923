//! The files of the pages, which are part of the binary. Knows their names, their types and what
//! browsers are told of them; knows nothing of what is in them.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use sha2::{Digest, Sha256};

use crate::problem::{Code, Problem};
use crate::response;

/// One file.
pub(super) struct File {
    name: &'static str,
    bytes: &'static [u8],
    /// Made when it is first asked for.
    tag: OnceLock<HeaderValue>,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(File {
            name: $name,
            bytes: include_bytes!(concat!("../ui/", $name)),
            tag: OnceLock::new(),
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

/// What a page may do: talk to where it is from, and nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

impl File {
    /// Answers whoever asks for the file of that name.
    pub(super) fn answer<B>(
        name: &str,
        asked: &Request<B>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        if !matches!(*asked.method(), Method::GET | Method::HEAD) {
            return Ok(response::other_method(&[Method::GET]));
        }
        let file = File::named(name).ok_or_else(|| {
            let detail = "the page has no such file";
            Problem::new(Code::NotFound, detail)
        })?;
        Ok(file.response(asked.headers()))
    }

    /// The file of that name.
    fn named(name: &str) -> Option<&'static File> {
        FILES.iter().find(|file| file.name == name)
    }

    /// The file, or that whoever asks has it already.
    fn response(&self, asked: &HeaderMap) -> Response<Full<Bytes>> {
        let tag = self.tag.get_or_init(|| tag(self.bytes));
        let known = asked.get_all(header::IF_NONE_MATCH).iter();
        let known = known.flat_map(|tags| tags.as_bytes().split(|byte| *byte == b','));
        // Whatever changes a body on its way calls the tag a weak one.
        let bare = |said: &[u8]| said.strip_prefix(b"W/").unwrap_or(said).to_vec();
        let has_it = known
            .map(<[u8]>::trim_ascii)
            .any(|said| bare(said) == tag.as_bytes());
        let mut response = match has_it {
            true => Response::new(Full::default()),
            false => Response::new(Full::from(Bytes::from_static(self.bytes))),
        };
        if has_it {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(header::ETAG, tag.clone());
        // Asked for each time: a new server may have new pages.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::CONTENT_TYPE, self.content_type());
        headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
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
        let ending = self.name.rsplit('.').next();
        HeaderValue::from_static(match ending {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("png") => "image/png",
            Some("json") => "application/json",
            Some("woff2") => "font/woff2",
            _ => "application/octet-stream",
        })
    }
}

/// Half of a hash is enough to tell files apart.
fn tag(bytes: &[u8]) -> HeaderValue {
    let hash = Sha256::digest(bytes);
    let digits = hash[..16]
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    HeaderValue::try_from(format!("\"{digits}\"")).expect("quoted digits are a header's value")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_pages_is_in_the_binary_and_has_a_type() {
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
        let known: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        assert_eq!(names, known);
        for file in &FILES {
            let said = file.content_type();
            assert_ne!(said, "application/octet-stream", "{}", file.name);
            assert!(!file.bytes.is_empty(), "{}", file.name);
        }
        assert!(File::named("live.html").is_some());
        assert!(File::named("style.css").is_some());
    }

    #[test]
    fn whoever_has_a_file_is_not_sent_it_again() {
        let file = File::named("index.html").unwrap();
        let tag = file.response(&HeaderMap::new()).headers()[header::ETAG].clone();
        let tag = tag.to_str().unwrap();
        for (said, status) in [
            (tag.to_owned(), 304),
            (format!("\"x\", W/{tag}"), 304),
            ("\"x\"".to_owned(), 200),
        ] {
            let mut asked = HeaderMap::new();
            asked.insert(header::IF_NONE_MATCH, said.parse().unwrap());
            assert_eq!(file.response(&asked).status(), status, "{said}");
        }
        assert!(File::named("../Cargo.toml").is_none());
    }
}
