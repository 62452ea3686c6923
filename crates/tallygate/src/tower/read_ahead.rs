//! Reads the start of a request's body before the request is decided, for costs that are in it.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use ::http::Request;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use crate::http::{JsonPath, RequestJson, RequestJsonReader};

pub(super) enum ReadAhead<A> {
    /// Waits for the start of the body.
    Reading(Pin<Box<dyn Future<Output = Request<A>> + Send>>),
    /// The request has the values already, or the type of its body is not known, or the body is
    /// compressed.
    Unread(Box<Request<A>>),
}

/// Reads ahead in the body of a request and inserts the values at these paths.
pub(super) fn read_ahead<A: Send + 'static>(
    request: Request<A>,
    paths: Vec<JsonPath>,
) -> ReadAhead<A> {
    if request.extensions().get::<RequestJson>().is_some() {
        return ReadAhead::Unread(Box::new(request));
    }
    let Some(reader) = RequestJsonReader::new(request.headers(), paths) else {
        return ReadAhead::Unread(Box::new(request));
    };
    let (parts, body) = request.into_parts();
    let mut body = Some(body);
    let Some(read) = known_body(&mut body, reader) else {
        let body = body.expect("it is only taken if its type is known");
        return ReadAhead::Unread(Box::new(Request::from_parts(parts, body)));
    };
    ReadAhead::Reading(Box::pin(async move {
        let (json, body) = read.await;
        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(json);
        request
    }))
}

type Read<A> = Pin<Box<dyn Future<Output = (RequestJson, A)> + Send>>;

/// Takes the body if it is of a type that can be put together again.
fn known_body<A: Send + 'static>(
    body: &mut Option<A>,
    reader: RequestJsonReader,
) -> Option<Read<A>> {
    macro_rules! try_types {
        ($reader:ident, $($type:ty => $rebuild:expr),* $(,)?) => {$(
            if let Some(known) = (body as &mut dyn Any).downcast_mut::<Option<$type>>() {
                let known = known.take()?;
                return Some(Box::pin(async move {
                    let (json, body) = read(known, $reader).await;
                    (json, same_type($rebuild(body)))
                }));
            }
        )*};
    }
    #[cfg(feature = "axum")]
    try_types!(reader, axum::body::Body => axum::body::Body::new);
    #[cfg(feature = "tonic")]
    try_types!(reader, tonic::body::Body => tonic::body::Body::new);
    try_types!(reader, Full<Bytes> => |body: ReadBody<Full<Bytes>>| Full::new(body.data()));
    None
}

/// Converts a type to itself by another name.
fn same_type<T: 'static, A: 'static>(value: T) -> A {
    let mut value = Some(value);
    let value = (&mut value as &mut dyn Any).downcast_mut::<Option<A>>();
    value
        .and_then(Option::take)
        .expect("a body is rebuilt as the type it was")
}

async fn read<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    mut reader: RequestJsonReader,
) -> (RequestJson, ReadBody<B>) {
    let mut start = Vec::new();
    let mut next = None;
    loop {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                if reader.read(&data) {
                    start.extend_from_slice(&data);
                    continue;
                }
                // It may be large.
                next = Some(Ok(Frame::data(data)));
            }
            Some(Ok(Err(other))) => next = Some(Ok(other)),
            Some(Err(error)) => next = Some(Err(error)),
            None => {}
        }
        let body = ReadBody {
            start: Bytes::from(start),
            next,
            rest: body,
        };
        return (reader.finish(), body);
    }
}

/// A body whose start has been read already.
struct ReadBody<B: Body<Data = Bytes>> {
    start: Bytes,
    next: Option<Result<Frame<Bytes>, B::Error>>,
    rest: B,
}

impl ReadBody<Full<Bytes>> {
    /// The data, which is all there is.
    fn data(self) -> Bytes {
        let Some(Ok::<_, Infallible>(frame)) = self.next else {
            return self.start;
        };
        frame.into_data().unwrap_or_default()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ReadBody<B>
where
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if !this.start.is_empty() {
            let start = std::mem::take(&mut this.start);
            return Poll::Ready(Some(Ok(Frame::data(start))));
        }
        match this.next.take() {
            Some(next) => Poll::Ready(Some(next)),
            None => Pin::new(&mut this.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.start.is_empty() && self.next.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let next = self.next.as_ref().and_then(|next| next.as_ref().ok());
        let next = next.and_then(Frame::data_ref).map_or(0, Bytes::len);
        let read = (self.start.len() + next) as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}
