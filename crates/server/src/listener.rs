//! Accepts TCP connections within bounds, behind the PROXY protocol and over TLS where configured, and
//! drains them on shutdown. Every port uses it; a [`ConnectionHandler`] serves the connections.

mod client_socket;
mod connections;
pub mod proxy_protocol;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tallygate::http::Peer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub(crate) use self::client_socket::ClientSocket;
pub(crate) use self::connections::{Activity, ConnectionLimits, OpenConnection, PeerTest};
use self::connections::{ClientAtBound, Connections};
use self::proxy_protocol::HeaderError;
use crate::malformed::{self, MalformedIo};
use crate::problem::Code;

/// How long to pause when a connection cannot be accepted, for example without free descriptors.
/// Doubles with every failure in a row.
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(10);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);
/// How often the same warning of a listener is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// How often clients at their bound and proxies without a header are logged: they can make it happen as
/// often as they like.
const CLIENT_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long a proxy that sends no PROXY header may take to read why it is refused.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How many connections of the accept queue are still accepted on shutdown.
const MAX_FINAL_ACCEPTS: usize = 4_096;
/// How long shutdown waits for the next one of them.
const FINAL_ACCEPT_TIMEOUT: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) connections: ConnectionLimits,
    /// How long connections may go on after shutdown before they are aborted.
    pub(crate) drain_timeout: Duration,
    pub(crate) proxy_protocol: Option<ProxyProtocolOptions>,
    pub(crate) tls: Option<TlsOptions>,
}

pub(crate) struct ProxyProtocolOptions {
    /// The peers that have to send a header. From others it is part of a malformed request.
    pub(crate) is_proxy: PeerTest,
    pub(crate) header_timeout: Duration,
}

impl fmt::Debug for ProxyProtocolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyProtocolOptions")
            .field("header_timeout", &self.header_timeout)
            .finish_non_exhaustive()
    }
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
    /// The socket's peer, or the client that a proxy names.
    pub(crate) peer: SocketAddr,
    pub(crate) is_tls: bool,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Counts the connection until dropped.
    pub(crate) open: OpenConnection,
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
    let connections = Connections::new(&options.connections);
    let (phase, phases) = watch::channel(Phase::Running);
    let logs = Arc::new(ClientLogs {
        at_bound: LimitedLog::new(CLIENT_LOG_INTERVAL),
        proxy_headers: LimitedLog::new(CLIENT_LOG_INTERVAL),
    });
    let spawn = |(stream, peer): (TcpStream, SocketAddr), open| {
        // Without TCP_NODELAY responses are only sent a little later.
        let _ = stream.set_nodelay(true);
        let accepted = Accepted {
            peer,
            is_tls: options.tls.is_some(),
            phase: phases.clone(),
            open,
        };
        let handler = Arc::clone(&handler);
        let tls = options.tls.as_ref().map(|tls| TlsHandshake {
            acceptor: TlsAcceptor::from(tls.config.load_full()),
            timeout: tls.handshake_timeout,
        });
        let proxy = options.proxy_protocol.as_ref();
        let proxy = proxy.filter(|options| (options.is_proxy)(peer.ip()));
        match (proxy, tls) {
            (None, None) => tokio::spawn(handler.serve(stream, accepted)),
            (None, Some(tls)) => tokio::spawn(serve_tls(handler, stream, accepted, tls)),
            (Some(options), tls) => {
                let (limit, logs) = (options.header_timeout, Arc::clone(&logs));
                tokio::spawn(serve_proxied(handler, stream, accepted, tls, limit, logs))
            }
        };
    };

    let mut acceptor = Acceptor {
        listener,
        failures: LimitedLog::new(LOG_INTERVAL),
        is_failing: false,
        logs: Arc::clone(&logs),
    };
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = shutdown.as_mut() => break,
            (accepted, open) = acceptor.accept(&connections) => spawn(accepted, open),
        }
    }
    phase.send_replace(Phase::Draining);
    // Clients in the accept queue may have sent their request already.
    for _ in 0..MAX_FINAL_ACCEPTS {
        let accepted = timeout(FINAL_ACCEPT_TIMEOUT, acceptor.listener.accept()).await;
        let Ok(Ok(accepted)) = accepted else { break };
        let Some(open) = connections.try_open(accepted.1.ip()) else {
            break;
        };
        spawn(accepted, open);
    }
    drop(acceptor);

    if timeout(options.drain_timeout, connections.closed())
        .await
        .is_ok()
    {
        return 0;
    }
    let aborted = connections.count();
    phase.send_replace(Phase::Aborting);
    connections.closed().await;
    aborted
}

struct Acceptor {
    listener: TcpListener,
    failures: LimitedLog,
    /// Whether a failure was logged, and nothing was accepted since.
    is_failing: bool,
    logs: Arc<ClientLogs>,
}

/// Lines about single clients.
struct ClientLogs {
    at_bound: LimitedLog,
    proxy_headers: LimitedLog,
}

impl ClientLogs {
    // Without addresses, which may be keys.
    fn log_client_at_bound(&self) {
        if let Some(suppressed) = self.at_bound.next_line() {
            tracing::warn!(
                suppressed,
                "refused a connection: a client has as many as it may, and none of them is idle; \
                 raise connections_per_client, or name the client in trusted_proxies if it is a \
                 proxy"
            );
        }
    }

    fn log_proxy_header(&self, problem: &dyn fmt::Display) {
        if let Some(suppressed) = self.proxy_headers.next_line() {
            tracing::warn!(
                %problem,
                suppressed,
                "closed a connection of a trusted proxy, which has to start with a PROXY protocol \
                 header; let the proxy send it, or remove proxy_protocol"
            );
        }
    }
}

impl Acceptor {
    /// Accepts the next connection within the bounds.
    async fn accept(
        &mut self,
        connections: &Connections,
    ) -> ((TcpStream, SocketAddr), OpenConnection) {
        loop {
            let (stream, peer) = self.accept_stream(connections).await;
            match connections.open(peer.ip()).await {
                Ok(open) => return ((stream, peer), open),
                Err(ClientAtBound) => self.logs.log_client_at_bound(),
            }
        }
    }

    async fn accept_stream(&mut self, connections: &Connections) -> (TcpStream, SocketAddr) {
        let mut backoff = MIN_ACCEPT_BACKOFF;
        loop {
            match self.listener.accept().await {
                Ok(accepted) => {
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("connections are accepted again");
                    }
                    return accepted;
                }
                Err(error) if is_client_error(&error) => {}
                Err(error) => {
                    if let Some(suppressed) = self.failures.next_line() {
                        tracing::warn!(%error, suppressed, "cannot accept connections");
                        self.is_failing = true;
                    }
                    // Mostly there are no free descriptors: idle connections have some.
                    connections.close_idlest();
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(MAX_ACCEPT_BACKOFF);
                }
            }
        }
    }
}

/// Limits how often a line is logged.
struct LimitedLog {
    interval: Duration,
    /// When the last line was logged, and how many were left out since.
    last: Mutex<(Option<Instant>, u64)>,
}

impl LimitedLog {
    fn new(interval: Duration) -> Self {
        LimitedLog {
            interval,
            last: Mutex::default(),
        }
    }

    /// The number of lines left out since the last one, if the line is to be logged now.
    fn next_line(&self) -> Option<u64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, suppressed) = &mut *last;
        let now = Instant::now();
        if time.is_some_and(|time| now - time < self.interval) {
            *suppressed += 1;
            return None;
        }
        *time = Some(now);
        Some(std::mem::take(suppressed))
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

/// Serves a connection of a proxy, which first says whom it is from.
async fn serve_proxied<H: ConnectionHandler>(
    handler: Arc<H>,
    mut stream: TcpStream,
    mut accepted: Accepted,
    tls: Option<TlsHandshake>,
    header_timeout: Duration,
    logs: Arc<ClientLogs>,
) {
    let mut phase = accepted.phase.clone();
    let header = tokio::select! {
        header = timeout(header_timeout, proxy_protocol::read(&mut stream)) => header,
        () = accepted.open.activity().closing() => return,
        _ = phase.wait_for(|phase| *phase == Phase::Aborting) => return,
    };
    match header {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(client))) => {
            accepted.peer = client;
            if let Err(ClientAtBound) = accepted.open.reassign(client.ip()) {
                logs.log_client_at_bound();
                return;
            }
        }
        // Many health checks connect and leave.
        Ok(Err(HeaderError::Io(_))) => return,
        Ok(Err(error)) => {
            logs.log_proxy_header(&error);
            if tls.is_none() {
                refuse_without_header(stream, &accepted).await;
            }
            return;
        }
        Err(_) => {
            logs.log_proxy_header(&"it did not arrive in time");
            return;
        }
    }
    match tls {
        None => handler.serve(stream, accepted).await,
        Some(tls) => serve_tls(handler, stream, accepted, tls).await,
    }
}

/// Answers what is probably a request without a header, so that whoever sent it learns why.
async fn refuse_without_header(stream: TcpStream, accepted: &Accepted) {
    let detail = "a trusted proxy has to start the connection with a valid PROXY protocol header";
    let activity = Arc::clone(accepted.open.activity());
    activity.set_unread_input(true);
    let mut socket = ClientSocket::new(stream, activity, REFUSAL_TIMEOUT, REFUSAL_TIMEOUT);
    let response = malformed::response("400 Bad Request", Code::BadRequest, detail, "");
    // The peer may be gone.
    if socket.write_all(&response).await.is_ok() {
        let _ = socket.shutdown().await;
    }
}

struct TlsHandshake {
    acceptor: TlsAcceptor,
    timeout: Duration,
}

async fn serve_tls<H: ConnectionHandler>(
    handler: Arc<H>,
    stream: TcpStream,
    accepted: Accepted,
    tls: TlsHandshake,
) {
    let mut phase = accepted.phase.clone();
    let stream = tokio::select! {
        stream = timeout(tls.timeout, tls.acceptor.accept(stream)) => stream,
        () = accepted.open.activity().closing() => return,
        _ = phase.wait_for(|phase| *phase == Phase::Aborting) => return,
    };
    // Clients that fail the handshake cannot be answered.
    if let Ok(Ok(stream)) = stream {
        handler.serve(stream, accepted).await;
    }
}

pub(crate) trait RequestHandler: Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static;

    fn handle(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

pub(crate) struct Http1<H>(pub(crate) H);

impl<H> Http1<H> {
    const MAX_HEAD_BYTES: usize = 32 << 10;
    const MAX_HEADERS: usize = 100;
    /// Also how long a connection may be idle.
    const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
    /// How long a client may take to accept more of a response.
    const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
    /// How long a connection is kept, however busy it is.
    const MAX_CONNECTION_AGE: Duration = Duration::from_secs(3_600);
    /// How long a client that does not read has for its last response.
    const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
    /// How long closing waits for more of a request that was refused early.
    const LINGER: Duration = Duration::from_secs(1);
}

impl<H: RequestHandler> ConnectionHandler for Http1<H> {
    async fn serve<T>(self: Arc<Self>, io: T, accepted: Accepted)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Accepted {
            peer,
            mut phase,
            open,
            ..
        } = accepted;
        let activity = open.activity();
        let handler = &self.0;
        let service = service_fn(move |mut request: Request<Incoming>| {
            let busy = Busy::start(activity, !request.body().is_end_stream());
            async move {
                request.extensions_mut().insert(Peer(peer));
                let response = handler.handle(request, peer).await;
                Ok::<_, Infallible>(response.map(|body| BusyBody { body, _busy: busy }))
            }
        });
        let socket = ClientSocket::new(io, Arc::clone(activity), Self::WRITE_TIMEOUT, Self::LINGER);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Self::HEAD_TIMEOUT)
            .max_buf_size(Self::MAX_HEAD_BYTES)
            .max_headers(Self::MAX_HEADERS)
            .serve_connection(TokioIo::new(MalformedIo::new(socket)), service);
        let mut connection = pin!(connection);
        tokio::select! {
            // A request that is read after the start of a shutdown is the connection's last.
            biased;
            _ = phase.wait_for(|phase| *phase != Phase::Running) => {}
            () = activity.closing() => {}
            // Errors mean that the client is gone.
            _ = connection.as_mut() => return,
            () = sleep(Self::MAX_CONNECTION_AGE) => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = timeout(Self::LAST_RESPONSE_TIMEOUT, connection) => {}
            _ = phase.wait_for(|phase| *phase == Phase::Aborting) => {}
        }
    }
}

/// A request in flight on an HTTP/1 connection.
struct Busy(Arc<Activity>);

impl Busy {
    fn start(activity: &Arc<Activity>, has_body: bool) -> Self {
        activity.set_busy();
        activity.set_unread_input(has_body);
        Busy(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set_idle();
    }
}

/// A body that keeps its connection busy until it is sent or abandoned.
struct BusyBody<B> {
    body: B,
    _busy: Busy,
}

impl<B: Body<Data = Bytes, Error = Infallible> + Unpin> Body for BusyBody<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
