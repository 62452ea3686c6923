//! Response bodies that a rate limiter can create.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full};
use pin_project_lite::pin_project;

use super::body_watch::{BodyWatch, WatchedBody, poll_watched};

/// A response body that can be created from bytes.
///
/// A [`RateLimit`](super::RateLimit) answers refused requests with a body of the type that the
/// inner service uses. The bodies of axum, tonic and `http-body-util` implement this trait;
/// [`RateLimitBody`] wraps any other.
#[diagnostic::on_unimplemented(
    message = "a rate limiter cannot create a response body of type `{Self}`",
    note = "the features `axum` and `tonic` implement `FromBytes` for the bodies of those crates",
    note = "implement `FromBytes`, or wrap the body of the inner service: \
            `.map_response(|response| response.map(RateLimitBody::from))`"
)]
pub trait FromBytes {
    /// Creates a body; `bytes` may be empty.
    fn from_bytes(bytes: Bytes) -> Self;

    /// Lets a watch see the body as it passes, usually with a [`WatchedBody`]. It is called for
    /// requests whose cost or hold depends on the end of the response.
    #[must_use]
    fn watched(self, watch: BodyWatch) -> Self;
}

impl FromBytes for Full<Bytes> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes)
    }

    /// The whole body is seen at once.
    fn watched(mut self, mut watch: BodyWatch) -> Self {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut self).poll_frame(&mut context) else {
            watch.end();
            return self;
        };
        let data = frame.into_data().unwrap_or_default();
        watch.data(&data);
        watch.end();
        Full::new(data)
    }
}

impl<E: 'static> FromBytes for BoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes).map_err(|never| match never {}).boxed()
    }

    fn watched(self, watch: BodyWatch) -> Self {
        WatchedBody::new(self, watch).boxed()
    }
}

impl<E: 'static> FromBytes for UnsyncBoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        let body = Full::new(bytes).map_err(|never| match never {});
        body.boxed_unsync()
    }

    fn watched(self, watch: BodyWatch) -> Self {
        WatchedBody::new(self, watch).boxed_unsync()
    }
}

#[cfg(feature = "axum")]
impl FromBytes for axum::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes.into()
    }

    fn watched(self, watch: BodyWatch) -> Self {
        axum::body::Body::new(WatchedBody::new(self, watch))
    }
}

#[cfg(feature = "tonic")]
impl FromBytes for tonic::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        tonic::body::Body::new(Full::new(bytes))
    }

    fn watched(self, watch: BodyWatch) -> Self {
        tonic::body::Body::new(WatchedBody::new(self, watch))
    }
}

pin_project! {
    /// The body of a service or of a refusal, for services whose own body does not implement
    /// [`FromBytes`].
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::Empty;
    /// use tallygate::Quota;
    /// use tallygate::rules::Rule;
    /// use tallygate::tower::{RateLimitBody, RateLimitLayer};
    /// use tower::{ServiceBuilder, service_fn};
    ///
    /// let hello = service_fn(async |_: Request<String>| {
    ///     Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new()))
    /// });
    /// let service = ServiceBuilder::new()
    ///     .layer(RateLimitLayer::new(Rule::new("all", Quota::per_second(100))))
    ///     .map_response(|response: Response<_>| response.map(RateLimitBody::from))
    ///     .service(hello);
    /// # fn serves<S: tower::Service<Request<String>>>(_: S) {}
    /// # serves(service);
    /// ```
    #[derive(Debug)]
    pub struct RateLimitBody<B> {
        #[pin]
        inner: Inner<B>,
        watch: Option<BodyWatch>,
    }
}

pin_project! {
    #[project = InnerProjection]
    #[derive(Debug)]
    enum Inner<B> {
        Service { #[pin] body: B },
        Refusal { bytes: Bytes },
    }
}

impl<B> From<B> for RateLimitBody<B> {
    fn from(body: B) -> Self {
        let inner = Inner::Service { body };
        RateLimitBody { inner, watch: None }
    }
}

impl<B> FromBytes for RateLimitBody<B> {
    fn from_bytes(bytes: Bytes) -> Self {
        let inner = Inner::Refusal { bytes };
        RateLimitBody { inner, watch: None }
    }

    fn watched(mut self, mut watch: BodyWatch) -> Self {
        match &self.inner {
            Inner::Service { .. } => self.watch = Some(watch),
            // The whole body is there.
            Inner::Refusal { bytes } => {
                watch.data(bytes);
                watch.end();
            }
        }
        self
    }
}

impl<B: Body<Data = Bytes>> Body for RateLimitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        match this.inner.project() {
            InnerProjection::Service { body } => match this.watch {
                Some(watch) => poll_watched(body, watch, context),
                None => body.poll_frame(context),
            },
            InnerProjection::Refusal { bytes } => Poll::Ready(match bytes.is_empty() {
                true => None,
                false => Some(Ok(Frame::data(std::mem::take(bytes)))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Service { body } => body.is_end_stream(),
            Inner::Refusal { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Service { body } => body.size_hint(),
            Inner::Refusal { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
