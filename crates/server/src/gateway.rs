//! The gateway: HTTP requests go through the limits to the servers behind it. Knows hyper and the
//! tower layer; knows nothing of rules, stores or the file they are written in.
//!
//! A request that limits refuse never reaches an upstream; one that they hold back waits here, and
//! its place is free again as soon as its client leaves. Everything else passes as it comes: bodies
//! piece by piece, trailers, upgraded connections.

mod body;
mod client;
mod client_io;
mod coalesce;
mod connection;
mod connection_state;
mod error;
mod forward;
mod framing_scanner;
mod headers;
mod idle_timeout;
mod pool;
mod read_ahead;
mod replay_body;
mod settings;
mod smuggling;
mod tls;
mod tunnel;
mod upstreams;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tallygate::Store;
use tallygate::http::Policy;
use tallygate::tower::RateLimitLayer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tower_layer::Layer;

use coalesce::Flights;
use connection::Serving;
use connection_state::ConnectionState;
use forward::Forward;

pub use coalesce::{Alike, SingleFlight};
pub use settings::{Host, Limits, Settings, SettingsError, Timeouts, Trusted, Upstream};
pub use tls::{Certificate, Tls};

/// How long the gateway waits at first where the system has no room for another connection.
const SHORTEST_REST: Duration = Duration::from_millis(10);
/// How long at most.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// How many connections that wait already are still taken once the gateway stops.
const MOST_LAST: usize = 4096;

/// A gateway: limits before the servers of a [`Settings`].
pub struct Gateway<P, S> {
    serving: Arc<Serving<P, S>>,
    certificate: Option<Certificate>,
    places: Arc<Semaphore>,
    most: u32,
}

/// How far a gateway has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// What is in flight goes on.
    Draining,
    /// Nothing does.
    Cut,
}

/// How a gateway came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// How many connections had to be cut because they took too long.
    pub cut: usize,
}

impl<P: Policy, S: Store> Gateway<P, S> {
    /// Puts a gate before upstreams.
    ///
    /// # Errors
    /// When there is no upstream, a limit is 0, or a certificate, its key or the authorities that
    /// vouch for upstreams cannot be used.
    pub fn new(settings: Settings, layer: RateLimitLayer<P, S>) -> Result<Self, SettingsError> {
        settings.check()?;
        let limits = &settings.limits;
        let most = limits.connections.min(Semaphore::MAX_PERMITS);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let certificate = settings.tls.clone().map(Certificate::new).transpose()?;
        let shared = settings.single_flight.clone();
        let forward = Forward::new(settings.clone())?;
        let serving = Serving {
            builder: connection::builder(limits),
            gated: layer.layer(Flights::new(forward, shared)),
            settings,
        };
        Ok(Gateway {
            serving: Arc::new(serving),
            certificate,
            places: Arc::new(Semaphore::new(most as usize)),
            most,
        })
    }

    /// The certificate that clients are shown, if the gateway speaks TLS with them.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// Serves connections until told to stop; then takes no more, lets what is in flight finish
    /// within its bound and cuts the rest.
    ///
    /// Where the system has no room for another connection the gateway rests and goes on.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) -> Drained {
        let (stage, told) = tokio::sync::watch::channel(Stage::Open);
        let take = |taken: (TcpStream, SocketAddr), place| {
            self.start(taken, place, told.clone());
        };
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = stop.as_mut() => break,
                (taken, place) = self.next(&listener) => take(taken, place),
            }
        }
        // Whoever is connected already may have sent its request already.
        for _ in 0..MOST_LAST {
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                break;
            };
            let Some(Ok(taken)) = at_once(listener.accept()).await else {
                break;
            };
            take(taken, place);
        }
        drop(listener);
        stage.send_replace(Stage::Draining);
        let all = || self.places.acquire_many(self.most);
        if timeout(self.serving.settings.timeouts.drain, all())
            .await
            .is_ok()
        {
            return Drained { cut: 0 };
        }
        let cut = self.most as usize - self.places.available_permits();
        stage.send_replace(Stage::Cut);
        // They end as soon as they are looked at.
        let _ = all().await;
        Drained { cut }
    }

    /// The next connection, once there is a place for it.
    async fn next(
        &self,
        listener: &TcpListener,
    ) -> ((TcpStream, SocketAddr), OwnedSemaphorePermit) {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.expect("nobody closes the semaphore");
        let mut rest = SHORTEST_REST;
        loop {
            match listener.accept().await {
                Ok(taken) => return (taken, place),
                Err(error) if is_gone(&error) => {}
                Err(error) => {
                    if rest == SHORTEST_REST {
                        tracing::warn!(%error, "cannot take connections");
                    }
                    sleep(rest).await;
                    rest = (rest * 2).min(LONGEST_REST);
                }
            }
        }
    }

    fn start(
        &self,
        (stream, peer): (TcpStream, SocketAddr),
        place: OwnedSemaphorePermit,
        stage: tokio::sync::watch::Receiver<Stage>,
    ) {
        let watch = Arc::new(ConnectionState::new(place, &self.serving.settings.limits));
        // Answers leave at once; where that cannot be had they leave a little later.
        let _ = stream.set_nodelay(true);
        let serving = Arc::clone(&self.serving);
        match self.certificate.as_ref().map(Certificate::acceptor) {
            None => {
                let came = (peer, "http");
                tokio::spawn(connection::serve(serving, stream, came, watch, stage));
            }
            Some(tls) => {
                tokio::spawn(async move {
                    // As long as a head may take: both are what a client says first.
                    let longest = serving.settings.timeouts.header;
                    let mut cut = stage.clone();
                    let stream = tokio::select! {
                        stream = timeout(longest, tls.accept(stream)) => stream,
                        _ = cut.wait_for(|stage| *stage == Stage::Cut) => return,
                    };
                    // Who does not speak TLS cannot be answered.
                    let Ok(Ok(stream)) = stream else { return };
                    connection::serve(serving, stream, (peer, "https"), watch, stage).await;
                });
            }
        }
    }
}

/// What a future gives without waiting; none if it would have to.
async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    timeout(Duration::ZERO, future).await.ok()
}

/// Whether the client left before its connection was taken, which says nothing of the next one.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

impl<P, S> fmt::Debug for Gateway<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("settings", &self.serving.settings)
            .finish_non_exhaustive()
    }
}
