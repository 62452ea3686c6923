//! A response that is buffered whole, so that several requests can share it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, SET_COOKIE, VARY};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;

use super::super::body::ResponseBody;
use super::super::error::GatewayError;

#[derive(Debug)]
pub(super) struct SharedResponse {
    parts: Parts,
    body: Bytes,
    trailers: Option<Box<HeaderMap>>,
}

impl SharedResponse {
    pub(super) fn matches(&self, leader: &HeaderMap, follower: &HeaderMap) -> bool {
        let lists = self.parts.headers.get_all(VARY).iter();
        let names = lists.flat_map(|list| list.as_bytes().split(|&byte| byte == b','));
        names.map(<[u8]>::trim_ascii).all(|name| {
            let Ok(name) = str::from_utf8(name) else {
                return false;
            };
            // `*` varies by anything.
            name.is_empty() || name != "*" && leader.get_all(name) == follower.get_all(name)
        })
    }

    pub(super) fn response(&self) -> Response<ResponseBody> {
        let body = ResponseBody {
            buffered: self.body.clone(),
            trailers: self.trailers.clone(),
            ..ResponseBody::default()
        };
        Response::from_parts(self.parts.clone(), body)
    }
}

/// Buffers a response if it can be shared and has at most `max_bytes`. Returns it in any case.
pub(super) async fn buffer(
    response: Response<ResponseBody>,
    max_bytes: usize,
) -> (Response<ResponseBody>, Option<Arc<SharedResponse>>) {
    if !is_shareable(response.status(), response.headers())
        || response.body().size_hint().lower() > max_bytes as u64
    {
        return (response, None);
    }
    let (mut parts, mut rest) = response.into_parts();
    let (mut body, mut trailers) = (BytesMut::new(), None);
    let body = loop {
        match rest.frame().await {
            None => break body.freeze(),
            Some(Err(_)) => {
                // Nothing was sent yet: the response can still become an error.
                let (error, text) = GatewayError::UpstreamFailed.response().into_parts();
                (parts, trailers) = (error, None);
                break text;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    body.extend_from_slice(&data);
                    if body.len() > max_bytes {
                        rest.buffered = body.freeze();
                        return (Response::from_parts(parts, rest), None);
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok().map(Box::new),
            },
        }
    };
    let shared = Arc::new(SharedResponse {
        parts,
        body,
        trailers,
    });
    (shared.response(), Some(shared))
}

/// Whether identical requests of other clients may have this response.
fn is_shareable(status: StatusCode, headers: &HeaderMap) -> bool {
    let control = headers.get_all(CACHE_CONTROL).iter();
    let mut directives = control.flat_map(|list| list.as_bytes().split(|&byte| byte == b','));
    let is_private = directives.any(|directive| {
        let name = directive.split(|&byte| byte == b'=').next();
        let name = name.unwrap_or(directive).trim_ascii();
        name.eq_ignore_ascii_case(b"private") || name.eq_ignore_ascii_case(b"no-store")
    });
    let is_event_stream = headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    !is_private
        && !is_event_stream
        && !status.is_informational()
        && !headers.contains_key(SET_COOKIE)
}
