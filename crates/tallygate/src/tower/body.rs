//! Bodies of answers: what a service's body has to be able to do for a gate to answer in its place.
//! Knows the bodies of servers by name.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full};
use pin_project_lite::pin_project;

/// A body that can be made of a text, which is what a gate answers in place of the service. So an
/// answer's body is of the same type with and without a gate.
///
/// The bodies of axum, tonic and `http-body-util` can; [`GateBody`] makes one that can of any other.
#[diagnostic::on_unimplemented(
    message = "a gate cannot answer with a body of type `{Self}`",
    note = "those of axum and tonic come with the features `axum` and `tonic`",
    note = "implement `FromText` for others, or make them one that can before they come to the \
            gate: `.map_response(|response| response.map(GateBody::from))`"
)]
pub trait FromText {
    /// A body of this text, which may be empty.
    fn from_text(text: Bytes) -> Self;
}

impl FromText for Full<Bytes> {
    fn from_text(text: Bytes) -> Self {
        Full::new(text)
    }
}

impl<E: 'static> FromText for BoxBody<Bytes, E> {
    fn from_text(text: Bytes) -> Self {
        Full::new(text).map_err(|never| match never {}).boxed()
    }
}

impl<E: 'static> FromText for UnsyncBoxBody<Bytes, E> {
    fn from_text(text: Bytes) -> Self {
        let body = Full::new(text).map_err(|never| match never {});
        body.boxed_unsync()
    }
}

#[cfg(feature = "axum")]
impl FromText for axum::body::Body {
    fn from_text(text: Bytes) -> Self {
        text.into()
    }
}

#[cfg(feature = "tonic")]
impl FromText for tonic::body::Body {
    fn from_text(text: Bytes) -> Self {
        tonic::body::Body::new(Full::new(text))
    }
}

pin_project! {
    /// Any body, or what a gate says: for services whose own body cannot be made of a text.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::Empty;
    /// use tallygate::Quota;
    /// use tallygate::http::Rule;
    /// use tallygate::tower::{Gate, GateBody};
    /// use tower::{ServiceBuilder, service_fn};
    ///
    /// let hello = service_fn(async |_: Request<String>| {
    ///     Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new()))
    /// });
    /// let service = ServiceBuilder::new()
    ///     .layer(Gate::new(Rule::new("all", Quota::per_second(100))))
    ///     .map_response(|response: Response<_>| response.map(GateBody::from))
    ///     .service(hello);
    /// # fn serves<S: tower::Service<Request<String>>>(_: S) {}
    /// # serves(service);
    /// ```
    #[derive(Debug)]
    pub struct GateBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = InnerProjection]
    #[derive(Debug)]
    enum Inner<B> {
        Service { #[pin] body: B },
        Gate { text: Bytes },
    }
}

impl<B> From<B> for GateBody<B> {
    fn from(body: B) -> Self {
        let inner = Inner::Service { body };
        GateBody { inner }
    }
}

impl<B> FromText for GateBody<B> {
    fn from_text(text: Bytes) -> Self {
        let inner = Inner::Gate { text };
        GateBody { inner }
    }
}

impl<B: Body<Data = Bytes>> Body for GateBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            InnerProjection::Service { body } => body.poll_frame(context),
            InnerProjection::Gate { text } => Poll::Ready(match text.is_empty() {
                true => None,
                false => Some(Ok(Frame::data(std::mem::take(text)))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Service { body } => body.is_end_stream(),
            Inner::Gate { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Service { body } => body.size_hint(),
            Inner::Gate { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
