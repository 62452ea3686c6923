//! An answer that is kept whole, so that several can have it. Knows which ones are not for others.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, SET_COOKIE, VARY};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body;

use super::super::body::Reply;
use super::super::error::Problem;
use super::super::replay_body::Again;

/// An answer that several can have.
#[derive(Debug)]
pub(super) struct Kept {
    parts: Parts,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

impl Kept {
    /// Whether the answer to one request is that to another.
    pub(super) fn is_for(&self, asked: &HeaderMap, other: &HeaderMap) -> bool {
        let lists = self.parts.headers.get_all(VARY).iter();
        let names = lists.flat_map(|list| list.as_bytes().split(|&byte| byte == b','));
        names.map(<[u8]>::trim_ascii).all(|name| {
            let Ok(name) = str::from_utf8(name) else {
                return false;
            };
            // `*` is no header's name: it varies by anything.
            name.is_empty() || name != "*" && asked.get_all(name) == other.get_all(name)
        })
    }

    pub(super) fn response(&self) -> Response<Reply> {
        let again = Again::new(self.body.clone(), self.trailers.clone(), None);
        Response::from_parts(self.parts.clone(), Reply::Again(again))
    }
}

/// Keeps an answer if it is for others and no larger than this; gives it back in any case.
pub(super) async fn keep(
    response: Response<Reply>,
    most: usize,
) -> (Response<Reply>, Option<Arc<Kept>>) {
    if !is_for_others(response.status(), response.headers())
        || response.body().size_hint().lower() > most as u64
    {
        return (response, None);
    }
    let (parts, mut rest) = response.into_parts();
    let (mut body, mut trailers) = (BytesMut::new(), None);
    loop {
        match poll_fn(|context| Pin::new(&mut rest).poll_frame(context)).await {
            None => break,
            Some(Err(_)) => {
                // Nothing was shown of it yet: it can still be told as what it is.
                let problem = Problem::UpstreamFailed.response();
                let (parts, body) = problem.into_parts();
                return kept(parts, body, None);
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    body.extend_from_slice(&data);
                    if body.len() > most {
                        let again = Again::new(body.freeze(), None, Some(Box::new(rest)));
                        return (Response::from_parts(parts, Reply::Again(again)), None);
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
        }
    }
    kept(parts, body.freeze(), trailers)
}

fn kept(
    parts: Parts,
    body: Bytes,
    trailers: Option<HeaderMap>,
) -> (Response<Reply>, Option<Arc<Kept>>) {
    let kept = Arc::new(Kept {
        parts,
        body,
        trailers,
    });
    (kept.response(), Some(kept))
}

/// Whether an answer may be given to others who asked the same.
fn is_for_others(status: StatusCode, headers: &HeaderMap) -> bool {
    let control = headers.get_all(CACHE_CONTROL).iter();
    let mut words = control.flat_map(|list| list.as_bytes().split(|&byte| byte == b','));
    let own = words.any(|word| {
        let name = word.split(|&byte| byte == b'=').next().unwrap_or(word);
        let name = name.trim_ascii();
        name.eq_ignore_ascii_case(b"private") || name.eq_ignore_ascii_case(b"no-store")
    });
    let events = headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    !own && !events && !status.is_informational() && !headers.contains_key(SET_COOKIE)
}
