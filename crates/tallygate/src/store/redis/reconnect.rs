//! Keeps a connection to one server. Reconnects in the background with jittered backoff, never on
//! a caller's task. A circuit breaker stops requests to a server that fails or has become silent.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use redis::{ConnectionInfo, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::command::{ScriptCall, ScriptReply};
use super::connection::Connection;
use super::connector::Connector;
use super::error::StoreFailure;
use super::url::{Endpoints, Host};
use crate::store::StoreError;
use crate::store::breaker::{Breaker, Probe};

/// The backoff after the first failure to connect; it doubles up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_millis(200);

/// A connection that breaks sooner counts as a failure to connect.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// How long a node that replied `CLUSTERDOWN` has no vote on the slot map.
const CLUSTER_DOWN_VALID: Duration = Duration::from_secs(1);

const NO_SENTINEL: StoreFailure = StoreFailure::NotConnected("no sentinel replies");
/// How long to wait for other sentinels after the first reply, unless most agree sooner.
const VOTE_TIMEOUT: Duration = Duration::from_millis(100);

const PROBE_TIMEOUT: Duration = Duration::from_millis(250);
/// A server is silent after so many ticks in a row without a reply, while commands are in flight:
/// 250 ms. Ticks of the runtime that reads the replies, so that a stall of this process is one.
const SILENT_TICKS: u32 = 25;
const TICK: Duration = Duration::from_millis(10);
/// Fails wherever a writing script would, and changes nothing. Before version 7 the first line is
/// invalid Lua; the resulting error shows that the server is alive.
const PROBE: &str = "#!lua\nreturn 1";

#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The server, or the Sentinel master, in the URL.
    Url,
    /// A node of a cluster.
    Node(Host),
}

/// A server, the current connection to it, and its circuit breaker.
pub(super) struct Node {
    name: String,
    /// Of a cluster node.
    host: Option<Host>,
    state: watch::Receiver<State>,
    breaker: Breaker,
    /// When it last replied that the cluster is down.
    cluster_down: Mutex<Option<Instant>>,
    /// When it was last the target of a redirection.
    redirected: Mutex<Option<Instant>>,
    runtime: Handle,
}

#[derive(Clone)]
enum State {
    Connecting,
    Up(Arc<Connection>),
    Down(StoreFailure),
}

impl Node {
    /// Starts connecting in the background.
    pub(super) fn connect(connector: Arc<Connector>, target: Target) -> Arc<Self> {
        let (sender, state) = watch::channel(State::Connecting);
        let (name, host) = match &target {
            Target::Url => (connector.url.summary().name, None),
            Target::Node(host) => (host.to_string(), Some(host.clone())),
        };
        let runtime = connector.runtime.clone();
        let node = Arc::new(Node {
            name,
            host,
            state,
            breaker: Breaker::default(),
            cluster_down: Mutex::default(),
            redirected: Mutex::default(),
            runtime: runtime.clone(),
        });
        let reconnector = Reconnector {
            connector,
            target,
            state: sender,
            node: Arc::downgrade(&node),
        };
        runtime.spawn(reconnector.run());
        node
    }

    /// The address, for log lines and metrics.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The address, if it is a node of a cluster.
    pub(super) fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Whether it lately replied that the cluster is down: it may be cut off from the others.
    pub(super) fn was_cluster_down(&self) -> bool {
        let at = *self.cluster_down.lock();
        at.is_some_and(|at| at.elapsed() < CLUSTER_DOWN_VALID)
    }

    pub(super) fn mark_redirect_target(&self) {
        *self.redirected.lock() = Some(Instant::now());
    }

    /// Whether a redirection to this node was followed within `age`.
    pub(super) fn was_redirect_target(&self, age: Duration) -> bool {
        self.redirected.lock().is_some_and(|at| at.elapsed() < age)
    }

    /// Whether the breaker is open.
    pub(super) fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    /// Whether there is no connection, or the server has stopped replying.
    pub(super) fn is_silent(&self) -> bool {
        match &*self.state.borrow() {
            State::Up(connection) => connection.is_silent(),
            State::Connecting | State::Down(_) => true,
        }
    }

    /// Decides a call, unless the breaker is open.
    pub(super) async fn decide(
        self: &Arc<Self>,
        call: Arc<ScriptCall>,
    ) -> Result<ScriptReply, StoreFailure> {
        if self.breaker.is_open() {
            return Err(StoreFailure::BreakerOpen);
        }
        let reply = match self.connection().await {
            Ok(connection) => connection.decide(call).await,
            Err(failure) => Err(failure),
        };
        if let Err(StoreFailure::Unavailable("CLUSTERDOWN")) = reply {
            *self.cluster_down.lock() = Some(Instant::now());
        }
        match &reply {
            Err(failure) if self.is_failure(failure) => {
                if self.breaker.on_failure() {
                    self.open_breaker(failure);
                }
            }
            // A redirection is an answer too.
            Ok(_) | Err(_) => self.breaker.on_success(),
        }
        reply
    }

    /// Whether the server failed, and not this process or the request.
    fn is_failure(&self, failure: &StoreFailure) -> bool {
        match failure {
            StoreFailure::Moved { .. }
            | StoreFailure::Ask(_)
            | StoreFailure::TryAgain
            | StoreFailure::NoScript
            | StoreFailure::Overloaded
            | StoreFailure::BreakerOpen => false,
            StoreFailure::TimedOut => self.is_silent(),
            StoreFailure::ReadOnly
            | StoreFailure::Unavailable(_)
            | StoreFailure::Rejected(_)
            | StoreFailure::NotConnected(_)
            | StoreFailure::ConnectionLost
            | StoreFailure::InvalidReply => true,
        }
    }

    fn open_breaker(self: &Arc<Self>, failure: &StoreFailure) {
        let error = failure.clone().into();
        self.breaker.open(self, &self.runtime, &error);
    }

    /// Returns the connection, after waiting for an attempt to connect that is under way.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, StoreFailure> {
        match &*self.state.borrow() {
            State::Up(connection) => return Ok(Arc::clone(connection)),
            State::Down(failure) => return Err(failure.clone()),
            State::Connecting => {}
        }
        let mut state = self.state.clone();
        let known = |state: &State| !matches!(state, State::Connecting);
        match state.wait_for(known).await.as_deref() {
            Ok(State::Up(connection)) => Ok(Arc::clone(connection)),
            Ok(State::Down(failure)) => Err(failure.clone()),
            Ok(State::Connecting) | Err(_) => {
                Err(StoreFailure::NotConnected("the store is closed"))
            }
        }
    }

    /// Checks whether the server accepts writes. Replaces the connection if the server does not
    /// reply or is a replica.
    pub(super) async fn probe(&self) -> Result<(), StoreFailure> {
        let connection = self.connection().await?;
        let result = probe(&connection, PROBE_TIMEOUT).await;
        if let Err(
            StoreFailure::ConnectionLost
            | StoreFailure::TimedOut
            | StoreFailure::InvalidReply
            | StoreFailure::ReadOnly,
        ) = result
        {
            connection.mark_broken();
        }
        result
    }

    pub(super) fn mark_broken(&self) {
        if let State::Up(connection) = &*self.state.borrow() {
            connection.mark_broken();
        }
    }
}

async fn probe(connection: &Connection, limit: Duration) -> Result<(), StoreFailure> {
    let result = timeout(limit, check_writable(connection)).await;
    result.unwrap_or(Err(StoreFailure::TimedOut))
}

pub(super) async fn check_writable(connection: &Connection) -> Result<(), StoreFailure> {
    let mut command = redis::cmd("EVAL");
    command.arg(PROBE).arg(0);
    match connection.command(&command).await {
        Ok(_) | Err(StoreFailure::Rejected("ERR")) => Ok(()),
        Err(failure) => Err(failure),
    }
}

impl Probe for Node {
    fn name(&self) -> &str {
        &self.name
    }

    async fn probe(&self) -> Result<(), StoreError> {
        Ok(Node::probe(self).await?)
    }
}

/// Waits until the server is silent: commands are in flight, and no reply arrives.
async fn wait_silent(connection: &Connection) {
    let mut received = connection.received();
    let mut ticks = 0;
    while ticks < SILENT_TICKS {
        connection.wait_in_flight().await;
        sleep(TICK).await;
        let now = connection.received();
        ticks = if now == received { ticks + 1 } else { 0 };
        received = now;
    }
}

/// The background task of a node; ends when the node is dropped.
struct Reconnector {
    connector: Arc<Connector>,
    target: Target,
    state: watch::Sender<State>,
    node: Weak<Node>,
}

impl Reconnector {
    async fn run(self) {
        let mut backoff = MIN_BACKOFF;
        while self.node.strong_count() > 0 {
            let failure = match self.connect().await {
                Ok(connection) => {
                    let (connection, since) = (Arc::new(connection), Instant::now());
                    self.state.send_replace(State::Up(Arc::clone(&connection)));
                    let unresponsive = tokio::select! {
                        () = connection.wait_broken() => false,
                        () = self.wait_unresponsive(&connection) => true,
                        () = self.state.closed() => return,
                    };
                    let stable = since.elapsed() >= STABLE_AFTER;
                    if stable {
                        backoff = MIN_BACKOFF;
                    }
                    // Callers wait for the next connection, unless that may take long.
                    self.state.send_replace(if unresponsive || !stable {
                        State::Down(StoreFailure::NotConnected("the connection is unusable"))
                    } else {
                        State::Connecting
                    });
                    connection.close();
                    if stable {
                        continue;
                    }
                    StoreFailure::NotConnected("the connection was lost immediately")
                }
                Err(failure) => failure,
            };
            self.state.send_replace(State::Down(failure));
            tokio::select! {
                () = sleep(jittered(backoff)) => {}
                () = self.state.closed() => return,
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Opens the breaker whenever the server is silent. Returns when it does not reply to a probe
    /// either.
    async fn wait_unresponsive(&self, connection: &Connection) {
        loop {
            wait_silent(connection).await;
            connection.set_silent(true);
            if let Some(node) = self.node.upgrade() {
                node.open_breaker(&StoreFailure::TimedOut);
            }
            let probed = probe(connection, self.connector.response_timeout).await;
            if probed == Err(StoreFailure::TimedOut) {
                return;
            }
            connection.set_silent(false);
        }
    }

    async fn connect(&self) -> Result<Connection, StoreFailure> {
        let url = &self.connector.url;
        match (&self.target, &url.endpoints) {
            (Target::Node(host), _) | (Target::Url, Endpoints::Single(host)) => {
                self.connect_to(url.info(host)?).await
            }
            (Target::Url, Endpoints::Socket(path)) => self.connect_to(url.socket_info(path)?).await,
            (Target::Url, Endpoints::Sentinel { sentinels, master }) => {
                let mut failure = NO_SENTINEL;
                for host in self.find_masters(sentinels, master).await? {
                    match self.connect_to_master(&host).await {
                        Ok(connection) => return Ok(connection),
                        Err(other) => failure = other,
                    }
                }
                Err(failure)
            }
            (Target::Url, Endpoints::Cluster(_)) => Err(StoreFailure::Rejected("ERR")),
        }
    }

    async fn connect_to(&self, info: ConnectionInfo) -> Result<Connection, StoreFailure> {
        let broken = Arc::new(Notify::new());
        let client = self.connector.connect(info, Arc::clone(&broken)).await?;
        let by_slot = matches!(self.target, Target::Node(_));
        let connection = Connection::new(client, &self.connector, by_slot, broken);
        Ok(connection)
    }

    async fn connect_to_master(&self, host: &Host) -> Result<Connection, StoreFailure> {
        let connection = self.connect_to(self.connector.url.info(host)?).await?;
        check_is_master(&connection).await?;
        Ok(connection)
    }

    /// Queries all sentinels in parallel for the master's address. Returns the addresses, the one
    /// that most name first; one address as soon as more than half name it.
    async fn find_masters(
        &self,
        sentinels: &[Host],
        name: &str,
    ) -> Result<Vec<Host>, StoreFailure> {
        let query = async |sentinel: &Host| {
            let info = self.connector.url.sentinel_info(sentinel)?;
            self.query_sentinel(info, name).await
        };
        let mut replies: FuturesUnordered<_> = sentinels.iter().map(query).collect();
        let mut until = Instant::now() + self.connector.connect_timeout;
        let mut failure = NO_SENTINEL;
        let mut named: Vec<(Host, usize)> = Vec::new();
        while let Ok(Some(reply)) = timeout_at(until, replies.next()).await {
            match reply {
                Ok(host) => {
                    if named.is_empty() {
                        until = until.min(Instant::now() + VOTE_TIMEOUT);
                    }
                    let votes = match named.iter_mut().find(|(known, _)| *known == host) {
                        Some((_, votes)) => {
                            *votes += 1;
                            *votes
                        }
                        None => {
                            named.push((host.clone(), 1));
                            1
                        }
                    };
                    if votes * 2 > sentinels.len() {
                        return Ok(vec![host]);
                    }
                }
                Err(StoreFailure::NotConnected(_)) => {}
                Err(other) => failure = other,
            }
        }
        if named.is_empty() {
            return Err(failure);
        }
        named.sort_by_key(|(_, votes)| Reverse(*votes));
        Ok(named.into_iter().map(|(host, _)| host).collect())
    }

    async fn query_sentinel(
        &self,
        info: ConnectionInfo,
        master: &str,
    ) -> Result<Host, StoreFailure> {
        let client = self.connector.connect(info, Arc::default()).await?;
        let connection = Connection::new(client, &self.connector, false, Arc::default());
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let reply = match connection.command(&command).await {
            Err(StoreFailure::Rejected("ERR")) => return Err(StoreFailure::Rejected("SENTINEL")),
            other => other?,
        };
        match reply {
            Value::Array(parts) => {
                let mut text = parts.into_iter().map(redis::from_redis_value::<String>);
                let (Some(Ok(name)), Some(Ok(port))) = (text.next(), text.next()) else {
                    return Err(StoreFailure::InvalidReply);
                };
                let port = port.parse().map_err(|_| StoreFailure::InvalidReply)?;
                Ok(Host { name, port })
            }
            Value::Nil => Err(StoreFailure::Rejected("MASTER")),
            _ => Err(StoreFailure::InvalidReply),
        }
    }
}

/// Half to one and a half times a delay, so that many clients do not reconnect together.
fn jittered(delay: Duration) -> Duration {
    delay / 2 + delay * fastrand::u32(..1_000) / 1_000
}

/// A sentinel may still name the old master after a failover.
async fn check_is_master(connection: &Connection) -> Result<(), StoreFailure> {
    let role = connection.command(&redis::cmd("ROLE")).await?;
    let first = match role {
        Value::Array(parts) => parts.into_iter().next(),
        _ => None,
    };
    match first.map(redis::from_redis_value::<String>) {
        Some(Ok(role)) if role == "master" => Ok(()),
        Some(Ok(_)) => Err(StoreFailure::NotConnected(
            "the sentinels still name the old master",
        )),
        Some(Err(_)) | None => Err(StoreFailure::InvalidReply),
    }
}
