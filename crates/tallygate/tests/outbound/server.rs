//! A real HTTP server that records arrivals and sends configured responses.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// A call as the server received it.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) path: String,
    pub(crate) at: Instant,
    pub(crate) wall: SystemTime,
}

/// Runs as long as its runtime.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Server {
    /// Answers each call by its path.
    pub(crate) async fn start(
        answer: impl Fn(&str) -> Response<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            arrivals: Arc::default(),
        };
        let (arrivals, answer) = (Arc::clone(&server.arrivals), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (arrivals, answer) = (Arc::clone(&arrivals), Arc::clone(&answer));
                let service = service_fn(move |request: Request<Incoming>| {
                    let path = request.uri().path().to_owned();
                    let response = answer(&path).map(|()| Empty::<Bytes>::new());
                    arrivals.lock().unwrap().push(Arrival {
                        path,
                        at: Instant::now(),
                        wall: SystemTime::now(),
                    });
                    async { Ok::<_, Infallible>(response) }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        server
    }

    pub(crate) fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The calls so far, in order of arrival.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap().clone()
    }
}
