//! Accepts TCP connections within a bound, over TLS where configured, and drains them on shutdown.
//! Every port uses it; a [`ConnectionHandler`] serves the connections.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tallygate::http::Peer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::malformed::MalformedIo;

/// How long to pause when a connection cannot be accepted, for example without free descriptors.
/// Doubles with every failure in a row.
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(10);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);
/// How many connections of the accept queue are still accepted on shutdown.
const MAX_FINAL_ACCEPTS: usize = 4_096;
/// How long shutdown waits for the next one of them.
const FINAL_ACCEPT_TIMEOUT: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Options {
    /// Further connections wait in the accept queue.
    pub(crate) max_connections: usize,
    /// How long connections may go on after shutdown before they are aborted.
    pub(crate) drain_timeout: Duration,
    pub(crate) tls: Option<TlsOptions>,
}

#[derive(Debug)]
pub(crate) struct TlsOptions {
    /// Read for every connection, so that a renewed certificate takes effect.
    pub(crate) config: Arc<ArcSwap<ServerConfig>>,
    pub(crate) handshake_timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// Requests in flight finish; no connection is accepted.
    Draining,
    /// Connections end without finishing their requests.
    Aborting,
}

#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) peer: SocketAddr,
    pub(crate) is_tls: bool,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Counts the connection against `max_connections` until dropped.
    pub(crate) permit: OwnedSemaphorePermit,
}

pub(crate) trait ConnectionHandler: Send + Sync + 'static {
    /// Serves one connection to its end. Returns soon after [`Phase::Aborting`].
    fn serve<T>(self: Arc<Self>, io: T, accepted: Accepted) -> impl Future<Output = ()> + Send
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static;
}

/// Serves connections until `shutdown` resolves, then drains them. Returns how many were aborted.
pub(crate) async fn serve<H: ConnectionHandler>(
    listener: TcpListener,
    handler: Arc<H>,
    options: &Options,
    shutdown: impl Future<Output = ()>,
) -> usize {
    let max_connections = options.max_connections.min(Semaphore::MAX_PERMITS);
    let max_connections = u32::try_from(max_connections).unwrap_or(u32::MAX);
    let permits = Arc::new(Semaphore::new(max_connections as usize));
    let (phase, phases) = watch::channel(Phase::Running);
    let spawn = |(stream, peer): (TcpStream, SocketAddr), permit| {
        // Without TCP_NODELAY responses are only sent a little later.
        let _ = stream.set_nodelay(true);
        let accepted = Accepted {
            peer,
            is_tls: options.tls.is_some(),
            phase: phases.clone(),
            permit,
        };
        let handler = Arc::clone(&handler);
        match &options.tls {
            None => tokio::spawn(handler.serve(stream, accepted)),
            Some(tls) => {
                let acceptor = TlsAcceptor::from(tls.config.load_full());
                let limit = tls.handshake_timeout;
                tokio::spawn(serve_tls(handler, stream, accepted, acceptor, limit))
            }
        };
    };

    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = shutdown.as_mut() => break,
            (accepted, permit) = accept(&listener, &permits) => spawn(accepted, permit),
        }
    }
    phase.send_replace(Phase::Draining);
    // Clients in the accept queue may have sent their request already.
    for _ in 0..MAX_FINAL_ACCEPTS {
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            break;
        };
        match timeout(FINAL_ACCEPT_TIMEOUT, listener.accept()).await {
            Ok(Ok(accepted)) => spawn(accepted, permit),
            Ok(Err(_)) | Err(_) => break,
        }
    }
    drop(listener);

    let all_closed = || permits.acquire_many(max_connections);
    if timeout(options.drain_timeout, all_closed()).await.is_ok() {
        return 0;
    }
    let aborted = max_connections as usize - permits.available_permits();
    phase.send_replace(Phase::Aborting);
    let _ = all_closed().await;
    aborted
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> ((TcpStream, SocketAddr), OwnedSemaphorePermit) {
    let permit = Arc::clone(permits).acquire_owned().await;
    let permit = permit.expect("the semaphore is never closed");
    let mut backoff = MIN_ACCEPT_BACKOFF;
    loop {
        match listener.accept().await {
            Ok(accepted) => return (accepted, permit),
            Err(error) if is_client_error(&error) => {}
            Err(error) => {
                if backoff == MIN_ACCEPT_BACKOFF {
                    tracing::warn!(%error, "cannot accept connections");
                }
                sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_ACCEPT_BACKOFF);
            }
        }
    }
}

/// Whether the client left before its connection was accepted: the next one is not affected.
fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

async fn serve_tls<H: ConnectionHandler>(
    handler: Arc<H>,
    stream: TcpStream,
    accepted: Accepted,
    acceptor: TlsAcceptor,
    handshake_timeout: Duration,
) {
    let mut phase = accepted.phase.clone();
    let stream = tokio::select! {
        stream = timeout(handshake_timeout, acceptor.accept(stream)) => stream,
        _ = phase.wait_for(|phase| *phase == Phase::Aborting) => return,
    };
    // Clients that fail the handshake cannot be answered.
    if let Ok(Ok(stream)) = stream {
        handler.serve(stream, accepted).await;
    }
}

pub(crate) trait RequestHandler: Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error = Infallible> + Send + 'static;

    fn handle(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

pub(crate) struct Http1<H>(pub(crate) H);

impl<H> Http1<H> {
    pub(crate) const MAX_CONNECTIONS: usize = 8_192;
    const MAX_HEAD_BYTES: usize = 32 << 10;
    const MAX_HEADERS: usize = 100;
    /// Also how long a connection may be idle.
    const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
    /// How long a connection is kept, however busy it is.
    const MAX_CONNECTION_AGE: Duration = Duration::from_secs(3_600);
    /// How long a client that does not read has for its last response.
    const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
}

impl<H: RequestHandler> ConnectionHandler for Http1<H> {
    async fn serve<T>(self: Arc<Self>, io: T, accepted: Accepted)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Accepted {
            peer,
            mut phase,
            permit: _permit,
            ..
        } = accepted;
        let handler = &self.0;
        let service = service_fn(move |mut request: Request<Incoming>| async move {
            request.extensions_mut().insert(Peer(peer));
            Ok::<_, Infallible>(handler.handle(request, peer).await)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Self::HEAD_TIMEOUT)
            .max_buf_size(Self::MAX_HEAD_BYTES)
            .max_headers(Self::MAX_HEADERS)
            .serve_connection(TokioIo::new(MalformedIo::new(io)), service);
        let mut connection = pin!(connection);
        tokio::select! {
            // Errors mean that the client is gone.
            _ = connection.as_mut() => return,
            _ = phase.wait_for(|phase| *phase != Phase::Running) => {}
            () = sleep(Self::MAX_CONNECTION_AGE) => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = timeout(Self::LAST_RESPONSE_TIMEOUT, connection) => {}
            _ = phase.wait_for(|phase| *phase == Phase::Aborting) => {}
        }
    }
}
