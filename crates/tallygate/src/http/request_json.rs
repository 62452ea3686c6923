//! Values of a request's JSON body, read before the request is decided.

use std::fmt;
use std::sync::Arc;

use ::http::HeaderMap;
use smallvec::SmallVec;

use super::json::{JsonPath, JsonScanner, JsonValue, MAX_JSON_BYTES, is_identity};

/// Values at one path that are kept. More make the body one that is not understood.
const MAX_VALUES: usize = 8;

/// The values that a request's JSON body has at some paths, as an extension of the request.
///
/// Who has the body reads it ahead with a [`RequestJsonReader`] and inserts this, before the
/// [policy](super::Policy) plans the request. The gateway does so, and
/// [`RateLimitLayer`](crate::tower::RateLimitLayer) for the bodies of axum and tonic.
#[derive(Clone)]
pub struct RequestJson(Arc<Values>);

struct Values {
    paths: Arc<[JsonPath]>,
    /// The values at each path.
    values: Vec<SmallVec<[RequestValue; 1]>>,
    is_whole: bool,
}

/// A value in a request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestValue {
    Whole(u32),
    Text(Box<str>),
    Bool(bool),
    Other,
}

/// Reads values of a request's body.
pub struct RequestJsonReader {
    scanner: JsonScanner,
    values: Vec<SmallVec<[RequestValue; 1]>>,
    bytes: usize,
    is_cut: bool,
}

impl RequestJson {
    /// The values at a path; none if it was not looked for.
    pub(crate) fn values(&self, path: &JsonPath) -> &[RequestValue] {
        let at = self.0.paths.iter().position(|known| known == path);
        let values = at.and_then(|at| self.0.values.get(at));
        values.map_or(&[], |values| values)
    }

    /// Whether the whole body was read, and was JSON. Otherwise there may be other values.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.is_whole
    }
}

impl fmt::Debug for RequestJson {
    /// Prints no value: a body may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestJson")
            .field("paths", &self.0.paths)
            .field("is_whole", &self.0.is_whole)
            .finish_non_exhaustive()
    }
}

impl RequestJsonReader {
    /// A reader of a request's body. `None` if the body is compressed or there are no paths.
    pub fn new(headers: &HeaderMap, paths: Vec<JsonPath>) -> Option<Self> {
        if paths.is_empty() || !is_identity(headers) {
            return None;
        }
        Some(RequestJsonReader {
            values: vec![SmallVec::new(); paths.len()],
            // Servers differ in whether they compare names with case.
            scanner: JsonScanner::new(paths).ignore_case(),
            bytes: 0,
            is_cut: false,
        })
    }

    /// Reads the next piece of the body. Returns whether more has to be read.
    pub fn read(&mut self, piece: &[u8]) -> bool {
        let room = MAX_JSON_BYTES - self.bytes;
        let read = &piece[..piece.len().min(room)];
        let values = &mut self.values;
        let mut too_many = false;
        self.scanner.read(read, &mut |path, value| {
            let values = &mut values[path];
            let value = match value {
                JsonValue::Null => return,
                JsonValue::Whole(number) => RequestValue::Whole(number),
                JsonValue::Text(text) => RequestValue::Text(String::from_utf8_lossy(text).into()),
                JsonValue::Bool(value) => RequestValue::Bool(value),
                JsonValue::Other => RequestValue::Other,
            };
            if values.len() < MAX_VALUES {
                values.push(value);
            } else {
                too_many = true;
            }
        });
        self.bytes += read.len();
        self.is_cut |= piece.len() > room || too_many;
        !self.is_cut && !self.scanner.is_malformed()
    }

    /// Ends the body, after its end or when [no more has to be read](RequestJsonReader::read).
    pub fn finish(self) -> RequestJson {
        RequestJson(Arc::new(Values {
            paths: Arc::clone(self.scanner.paths()),
            is_whole: self.scanner.is_complete() && !self.is_cut,
            values: self.values,
        }))
    }
}

impl fmt::Debug for RequestJsonReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestJsonReader")
            .field("paths", self.scanner.paths())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> (Vec<RequestValue>, bool) {
        let path: JsonPath = "model".parse().unwrap();
        let mut reader = RequestJsonReader::new(&HeaderMap::new(), vec![path.clone()]).unwrap();
        let _ = body
            .as_bytes()
            .chunks(1 << 16)
            .all(|piece| reader.read(piece));
        let json = reader.finish();
        assert!(json.values(&"other".parse().unwrap()).is_empty());
        (json.values(&path).to_vec(), json.is_whole())
    }

    #[test]
    fn every_value_that_a_server_may_take_is_found() {
        let text = |text: &str| RequestValue::Text(text.into());
        for (body, values, whole) in [
            (r#"{"model":"a"}"#, vec![text("a")], true),
            (
                r#"{"model":"a","Model":"b"}"#,
                vec![text("a"), text("b")],
                true,
            ),
            (
                r#"{"model":null,"model":7}"#,
                vec![RequestValue::Whole(7)],
                true,
            ),
            (r#"{"model":true}"#, vec![RequestValue::Bool(true)], true),
            (r#"{"model":{}}"#, vec![RequestValue::Other], true),
            (r#"{"model":"a"}{"model":"b"}"#, vec![text("a")], false),
            (r#"{"model":"a""#, vec![text("a")], false),
            ("model=a", vec![], false),
            ("", vec![], false),
            ("{}", vec![], true),
        ] {
            assert_eq!(read(body), (values, whole), "{body}");
        }
    }

    #[test]
    fn reading_is_bounded() {
        let padding = "x".repeat(MAX_JSON_BYTES);
        let (values, whole) = read(&format!(r#"{{"model":"a","pad":"{padding}","model":"b"}}"#));
        assert_eq!((values.len(), whole), (1, false));
        let many = r#""model":1,"#.repeat(MAX_VALUES);
        assert!(read(&format!("{{{many}\"x\":2}}")).1);
        let (values, whole) = read(&format!("{{{many}\"model\":2}}"));
        assert_eq!((values.len(), whole), (MAX_VALUES, false));
    }

    #[test]
    fn nothing_is_shown() {
        let path: JsonPath = "model".parse().unwrap();
        let mut reader = RequestJsonReader::new(&HeaderMap::new(), vec![path]).unwrap();
        reader.read(br#"{"model":"hush"}"#);
        assert!(!format!("{:?}", reader.finish()).contains("hush"));
    }
}
