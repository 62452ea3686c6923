//! The way to one server. Knows nothing of requests.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

type Https = HttpsConnector<HttpConnector>;

/// Connects to one server, by whatever name it is asked for. A pool of connections hashes the name
/// letter by letter, twice a request: where nobody else is in it, one letter will do.
// Small: clients are cloned, and moved about, with every request.
#[derive(Clone, Debug)]
pub(super) struct Connector(Arc<Way>);

#[derive(Debug)]
struct Way {
    to: Uri,
    https: Https,
}

impl Connector {
    pub(super) fn new(to: Uri, https: Https) -> Self {
        Connector(Arc::new(Way { to, https }))
    }
}

impl Service<Uri> for Connector {
    type Response = <Https as Service<Uri>>::Response;
    type Error = <Https as Service<Uri>>::Error;
    type Future = <Https as Service<Uri>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // What it connects by always is.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.0.https.clone().call(self.0.to.clone())
    }
}
