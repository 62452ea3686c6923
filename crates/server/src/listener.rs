//! A listener and its connections, each within bounds, until it is told to stop. Knows HTTP/1.1;
//! knows nothing of what is asked.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tallygate::http::Peer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::malformed::Told;

/// The most connections at a time; others wait to be accepted.
const MOST_CONNECTIONS: u32 = 8_192;
/// How long a head may take, and a connection may be idle.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// The most bytes of a head.
const LARGEST_HEAD: usize = 32 << 10;
/// The most headers.
const MOST_HEADERS: usize = 100;
/// How long a connection is kept, however busy it is.
const LONGEST: Duration = Duration::from_secs(3_600);
/// How long whoever does not read gets to take the last answer.
const LAST_ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How many may have connected without having been accepted when it is told to stop, and how long
/// it is looked for the next of them.
const LAST_CALLS: usize = 4_096;
const LAST_CALL: Duration = Duration::from_millis(5);
/// How long to wait when no connection can be accepted, for want of descriptors say.
const BREATH: Duration = Duration::from_millis(50);

/// What answers requests.
pub(crate) trait Door: Send + Sync + 'static {
    /// What answers are made of.
    type Body: Body<Data = Bytes, Error = Infallible> + Send + 'static;

    /// Answers one.
    fn answer(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// A listener on an address.
pub(crate) struct Bound {
    listener: TcpListener,
    /// The address, with the port that was found for port 0.
    pub(crate) address: SocketAddr,
}

/// Takes an address.
///
/// # Errors
/// When it is taken already, or not ours.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<Bound> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok(Bound { listener, address })
}

impl Bound {
    /// The listener itself, for a door that has its own ways.
    pub(crate) fn into_listener(self) -> TcpListener {
        self.listener
    }

    /// Answers requests until told to stop; then those that are under way, for at most `drain`.
    /// Gives back whether all were answered.
    pub(crate) async fn serve<D: Door>(
        self,
        door: Arc<D>,
        mut stop: watch::Receiver<bool>,
        drain: Duration,
    ) -> bool {
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS as usize));
        let told_to_stop = stop.clone();
        let enter = |stream: TcpStream, peer, permit| {
            let connection = Connection {
                door: Arc::clone(&door),
                peer,
                stop: told_to_stop.clone(),
                _permit: permit,
            };
            tokio::spawn(connection.run(stream));
        };
        loop {
            let permit = Arc::clone(&room).acquire_owned();
            let accepted = async {
                let permit = permit.await.expect("nobody closes it");
                (self.listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                accepted = accepted => accepted,
                () = told(&mut stop) => break,
            };
            match accepted {
                Ok((stream, peer)) => enter(stream, peer, permit),
                Err(error) if is_the_clients(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    sleep(BREATH).await;
                }
            }
        }
        // Whoever is connected already, but not accepted, is answered too.
        for _ in 0..LAST_CALLS {
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                break;
            };
            match timeout(LAST_CALL, self.listener.accept()).await {
                Ok(Ok((stream, peer))) => enter(stream, peer, permit),
                Ok(Err(_)) | Err(_) => break,
            }
        }
        drop(self.listener);
        timeout(drain, room.acquire_many(MOST_CONNECTIONS))
            .await
            .is_ok()
    }
}

/// Waits until told to stop.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// One connection.
struct Connection<D> {
    door: Arc<D>,
    peer: SocketAddr,
    stop: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

impl<D: Door> Connection<D> {
    async fn run(mut self, stream: TcpStream) {
        // Answers are one small packet each.
        let _ = stream.set_nodelay(true);
        let (door, peer) = (&self.door, self.peer);
        let answer = service_fn(move |mut request: Request<Incoming>| async move {
            request.extensions_mut().insert(Peer(peer));
            Ok::<_, Infallible>(door.answer(request, peer).await)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_buf_size(LARGEST_HEAD)
            .max_headers(MOST_HEADERS)
            .serve_connection(TokioIo::new(Told::new(stream)), answer);
        let mut connection = pin!(connection);
        tokio::select! {
            // Whoever went away has no use for an error.
            _ = connection.as_mut() => return,
            () = told(&mut self.stop) => {}
            () = sleep(LONGEST) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LAST_ANSWER_WITHIN, connection).await;
    }
}
