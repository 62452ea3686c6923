//! A pool of HTTP/1.1 connections to one server.
//!
//! Written by hand: hyper-util's `client::pool::cache` bounds neither the number nor the age of
//! idle connections, takes back every dropped one, also in the middle of a body, and does not
//! return an unsent request. Its legacy client costs a lookup and a task per request.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{Request, Uri};
use hyper::client::conn::http1::{self, SendRequest};
use tokio::time::{Instant, sleep};
use tower_service::Service;

use super::body::OutboundBody;
use super::upstreams::{Connector, UpstreamError, UpstreamResult};

type Sender = SendRequest<OutboundBody>;

#[derive(Debug)]
pub(super) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    uri: Uri,
    connector: Connector,
    idle: Mutex<Idle>,
    max_idle: usize,
    idle_timeout: Duration,
}

/// Idle connections, the most recently used one last.
#[derive(Debug, Default)]
struct Idle {
    connections: Vec<(Sender, Instant)>,
    /// Whether a task evicts those that are idle for too long.
    has_evictor: bool,
}

#[derive(Debug)]
pub(super) struct PooledConnection {
    sender: Sender,
    pool: Arc<Shared>,
}

impl Pool {
    pub(super) fn new(
        uri: Uri,
        connector: Connector,
        max_idle: usize,
        idle_timeout: Duration,
    ) -> Self {
        Pool(Arc::new(Shared {
            uri,
            connector,
            idle: Mutex::default(),
            max_idle,
            idle_timeout,
        }))
    }

    /// Sends a request on an idle connection, or on a new one. A request is sent again only if the
    /// connection closed before taking it.
    pub(super) fn send(
        &self,
        request: Request<OutboundBody>,
        now: Instant,
    ) -> impl Future<Output = UpstreamResult> + use<> {
        let first = match self.0.checkout(now) {
            Some(mut sender) => Ok((sender.try_send_request(request), sender)),
            None => Err(request),
        };
        let pool = Arc::clone(&self.0);
        async move {
            let request = match first {
                Ok((response, sender)) => match response.await {
                    Ok(response) => return Ok((response, Some(PooledConnection { sender, pool }))),
                    Err(mut error) => error.take_message().ok_or(UpstreamError::Broken)?,
                },
                Err(request) => request,
            };
            // Boxed: seldom needed, and the other futures stay small.
            Box::pin(pool.connect_and_send(request)).await
        }
    }
}

impl Shared {
    /// Sends a request on a connection that has become idle, or on a new one.
    async fn connect_and_send(
        self: Arc<Self>,
        mut request: Request<OutboundBody>,
    ) -> UpstreamResult {
        while let Some(mut sender) = self.checkout(Instant::now()) {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok((response, Some(PooledConnection { sender, pool: self })));
                }
                Err(mut error) => request = error.take_message().ok_or(UpstreamError::Broken)?,
            }
        }
        let mut sender = self.connect().await?;
        match sender.try_send_request(request).await {
            Ok(response) => Ok((response, Some(PooledConnection { sender, pool: self }))),
            Err(_) => Err(UpstreamError::Broken),
        }
    }

    async fn connect(&self) -> Result<Sender, UpstreamError> {
        let stream = self.connector.clone().call(self.uri.clone()).await;
        let stream = stream.map_err(UpstreamError::Connect)?;
        let handshake = http1::handshake(stream).await;
        let (sender, connection) =
            handshake.map_err(|error| UpstreamError::Connect(error.into()))?;
        // Its errors reach the sender.
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    /// Takes an idle connection that is ready, and drops those that are closed or expired.
    fn checkout(&self, now: Instant) -> Option<Sender> {
        let mut idle = self.idle();
        for index in (0..idle.connections.len()).rev() {
            let (sender, since) = &idle.connections[index];
            if now.duration_since(*since) > self.idle_timeout {
                // All before it are older.
                idle.connections.drain(..=index);
                return None;
            }
            if sender.is_ready() {
                return Some(idle.connections.remove(index).0);
            }
            if sender.is_closed() {
                idle.connections.remove(index);
            }
        }
        None
    }

    fn put(self: &Arc<Self>, sender: Sender) {
        let mut idle = self.idle();
        if sender.is_closed() || idle.connections.len() >= self.max_idle {
            return;
        }
        idle.connections.push((sender, Instant::now()));
        if !idle.has_evictor {
            idle.has_evictor = true;
            tokio::spawn(evict(Arc::downgrade(self), self.idle_timeout));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes expired connections until none is idle.
async fn evict(pool: Weak<Shared>, idle_timeout: Duration) {
    loop {
        sleep(idle_timeout).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        let mut idle = pool.idle();
        idle.connections.retain(|(sender, since)| {
            now.duration_since(*since) <= idle_timeout && !sender.is_closed()
        });
        if idle.connections.is_empty() {
            idle.has_evictor = false;
            return;
        }
    }
}

impl PooledConnection {
    /// Returns the connection to the pool. Dropped instead, it is closed.
    pub(super) fn release(self) {
        let PooledConnection { sender, pool } = self;
        pool.put(sender);
    }
}
