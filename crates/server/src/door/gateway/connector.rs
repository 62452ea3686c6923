//! The way to one server. Knows nothing of requests.

use std::task::{Context, Poll};

use http::Uri;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

type Inner = HttpsConnector<HttpConnector>;

/// Connects to one server, by whatever name it is asked for. A pool of connections hashes the name
/// letter by letter, twice a request: where nobody else is in it, one letter will do.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    to: Uri,
    inner: Inner,
}

impl Connector {
    pub(super) fn new(to: Uri, inner: Inner) -> Self {
        Connector { to, inner }
    }
}

impl Service<Uri> for Connector {
    type Response = <Inner as Service<Uri>>::Response;
    type Error = <Inner as Service<Uri>>::Error;
    type Future = <Inner as Service<Uri>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.inner.call(self.to.clone())
    }
}
