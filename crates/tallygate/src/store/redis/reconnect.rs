//! Keeps the connections to one server. Reconnects in the background with jittered backoff, never on
//! a caller's task. A circuit breaker stops requests to a server that fails or has become silent.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use redis::{ConnectionInfo, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::command::{ScriptCall, ScriptReply};
use super::connection::Connection;
use super::connector::Connector;
use super::error::{self, StoreFailure};
use super::keys;
use super::link::{Backoff, STABLE_AFTER, Silence, TICK};
use super::url::{Endpoints, Host};
use crate::store::StoreError;
use crate::store::breaker::{Breaker, Probe, RANDOM};

/// How long a node that replied `CLUSTERDOWN` has no vote on the slot map.
const CLUSTER_DOWN_VALID: Duration = Duration::from_secs(1);

const NO_SENTINEL: StoreFailure = StoreFailure::NotConnected("no sentinel replies");
/// How long to wait for other sentinels after the first reply, unless most agree sooner.
const VOTE_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) const PROBE_TIMEOUT: Duration = Duration::from_millis(250);
/// Fails wherever a writing script would, and changes nothing. Before version 7 the first line is
/// invalid Lua; the resulting error shows that the server is alive.
const PROBE: &str = "#!lua\nreturn 1";

#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The server, or the Sentinel master, in the URL.
    Url,
    /// A node of a cluster.
    Node(Host),
    /// One of several independent servers.
    Shard(Host),
}

/// A server, the current connections to it, and its circuit breaker.
pub(super) struct Node {
    name: String,
    /// Of a cluster node.
    host: Option<Host>,
    /// At least one. Keys are distributed over them.
    connections: Box<[ConnectionState]>,
    breaker: Breaker,
    /// When it last replied that the cluster is down.
    cluster_down: Mutex<Option<Instant>>,
    /// When it was last the target of a redirection.
    redirected: Mutex<Option<Instant>>,
    runtime: Handle,
}

type ConnectionState = watch::Receiver<State>;

#[derive(Clone)]
enum State {
    Connecting,
    Up(Arc<Connection>),
    Down(StoreFailure),
}

impl Node {
    /// Starts connecting in the background.
    pub(super) fn connect(connector: Arc<Connector>, target: Target) -> Arc<Self> {
        let channels = (0..connector.connections).map(|_| watch::channel(State::Connecting));
        let (senders, states): (Vec<_>, Vec<_>) = channels.unzip();
        let (name, host) = match &target {
            Target::Url => (connector.url.summary().name, None),
            Target::Node(host) => (host.to_string(), Some(host.clone())),
            Target::Shard(host) => (host.to_string(), None),
        };
        let runtime = connector.runtime.clone();
        let node = Arc::new(Node {
            name,
            host,
            connections: states.into(),
            breaker: Breaker::default(),
            cluster_down: Mutex::default(),
            redirected: Mutex::default(),
            runtime: runtime.clone(),
        });
        for state in senders {
            let reconnector = Reconnector {
                connector: Arc::clone(&connector),
                target: target.clone(),
                state,
                node: Arc::downgrade(&node),
                explained: OnceLock::new(),
            };
            runtime.spawn(reconnector.run());
        }
        node
    }

    /// The connection for a key, the same for all limits of a limited key. Another one, if it is lost
    /// and the other is not.
    fn connection_state(&self, key: &[u8]) -> &ConnectionState {
        let many = match &*self.connections {
            [only] => return only,
            many => many,
        };
        let hash = keys::hash(keys::tag(key)) % many.len() as u64;
        let own = &many[hash as usize];
        let is_up = |state: &&ConnectionState| matches!(*state.borrow(), State::Up(_));
        match is_up(&own) {
            true => own,
            false => many.iter().find(is_up).unwrap_or(own),
        }
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

    /// Whether there is no connection for a key, or the server has stopped replying over it.
    pub(super) fn is_silent(&self, key: &[u8]) -> bool {
        match &*self.connection_state(key).borrow() {
            State::Up(connection) => connection.is_silent(),
            State::Connecting | State::Down(_) => true,
        }
    }

    /// How many calls wait to be sent.
    pub(super) fn queued_calls(&self) -> usize {
        let queued = |state: &ConnectionState| match &*state.borrow() {
            State::Up(connection) => connection.queued_calls(),
            State::Connecting | State::Down(_) => 0,
        };
        self.connections.iter().map(queued).sum()
    }

    /// Decides a call, unless the breaker is open. One at a supplied time waits for the server all the
    /// same: it has no deadline, and no policy decides in its place.
    pub(super) async fn decide(
        self: &Arc<Self>,
        call: Arc<ScriptCall>,
    ) -> Result<ScriptReply, StoreFailure> {
        let decide = async |connection: Arc<Connection>, call| connection.decide(call).await;
        self.decide_over(call, decide).await
    }

    /// Decides a call on the target of a slot migration, unless the breaker is open.
    pub(super) async fn decide_asking(
        self: &Arc<Self>,
        call: Arc<ScriptCall>,
    ) -> Result<ScriptReply, StoreFailure> {
        let decide = async |connection: Arc<Connection>, call| connection.decide_asking(call).await;
        self.decide_over(call, decide).await
    }

    async fn decide_over(
        self: &Arc<Self>,
        call: Arc<ScriptCall>,
        decide: impl AsyncFnOnce(Arc<Connection>, Arc<ScriptCall>) -> Result<ScriptReply, StoreFailure>,
    ) -> Result<ScriptReply, StoreFailure> {
        if self.breaker.is_open() && call.at_us.is_none() {
            return Err(StoreFailure::BreakerOpen);
        }
        let reply = match current(self.connection_state(call.first_key())).await {
            Ok(connection) => decide(connection, Arc::clone(&call)).await,
            Err(failure) => Err(failure),
        };
        self.record(&call, reply)
    }

    /// Tells the breaker of a reply.
    fn record(
        self: &Arc<Self>,
        call: &ScriptCall,
        reply: Result<ScriptReply, StoreFailure>,
    ) -> Result<ScriptReply, StoreFailure> {
        if let Err(StoreFailure::Unavailable("CLUSTERDOWN")) = reply {
            *self.cluster_down.lock() = Some(Instant::now());
        }
        match &reply {
            Err(failure) if failure.is_of_server(|| self.is_silent(call.first_key())) => {
                if self.breaker.on_failure() {
                    self.open_breaker(failure);
                }
            }
            // A redirection is an answer too.
            Ok(_) | Err(_) => self.breaker.on_success(),
        }
        reply
    }

    fn open_breaker(self: &Arc<Self>, failure: &StoreFailure) {
        let error = failure.clone().into();
        self.breaker.open(self, &self.runtime, &error);
    }

    /// Returns a connection, after waiting for an attempt to connect that is under way.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, StoreFailure> {
        current(self.connection_state(b"")).await
    }

    /// Checks whether the server accepts writes over every connection. Replaces those over which it
    /// does not reply or is a replica.
    pub(super) async fn probe(&self) -> Result<(), StoreFailure> {
        let each = self.connections.iter().map(|state| async move {
            let connection = current(state).await?;
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
        });
        join_all(each).await.into_iter().collect()
    }

    pub(super) fn mark_broken(&self) {
        for state in &self.connections {
            if let State::Up(connection) = &*state.borrow() {
                connection.mark_broken();
            }
        }
    }
}

/// Returns a connection, after waiting for an attempt to connect that is under way.
async fn current(state: &ConnectionState) -> Result<Arc<Connection>, StoreFailure> {
    match &*state.borrow() {
        State::Up(connection) => return Ok(Arc::clone(connection)),
        State::Down(failure) => return Err(failure.clone()),
        State::Connecting => {}
    }
    let mut state = state.clone();
    let known = |state: &State| !matches!(state, State::Connecting);
    match state.wait_for(known).await.as_deref() {
        Ok(State::Up(connection)) => Ok(Arc::clone(connection)),
        Ok(State::Down(failure)) => Err(failure.clone()),
        Ok(State::Connecting) | Err(_) => Err(StoreFailure::NotConnected("the store is closed")),
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
    let mut silence = Silence::new(connection.received());
    loop {
        connection.wait_in_flight().await;
        sleep(TICK).await;
        if silence.on_tick(connection.received()) {
            return;
        }
    }
}

/// The background task of a connection; ends when its node is dropped.
struct Reconnector {
    connector: Arc<Connector>,
    target: Target,
    state: watch::Sender<State>,
    node: Weak<Node>,
    /// The first failure to connect, and what it means.
    explained: OnceLock<(StoreFailure, StoreFailure)>,
}

impl Reconnector {
    async fn run(self) {
        let mut backoff = Backoff::default();
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
                        backoff = Backoff::default();
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
                () = sleep(backoff.next(fastrand::u32(..RANDOM))) => {}
                () = self.state.closed() => return,
            }
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
            (Target::Node(host) | Target::Shard(host), _)
            | (Target::Url, Endpoints::Single(host)) => self.connect_to(url.info(host)?).await,
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
            (Target::Url, Endpoints::Cluster(_) | Endpoints::Shards(_)) => {
                Err(StoreFailure::Rejected("ERR"))
            }
        }
    }

    async fn connect_to(&self, info: ConnectionInfo) -> Result<Connection, StoreFailure> {
        let broken = Arc::new(Notify::new());
        let client = self.connector.connect(info.clone(), Arc::clone(&broken));
        let client = match client.await {
            Ok(client) => client,
            Err(failure) => return Err(self.explain(failure, &info).await),
        };
        let by_slot = matches!(self.target, Target::Node(_));
        let connection = Connection::new(client, &self.connector, by_slot, broken);
        Ok(connection)
    }

    /// Explains a failure to connect. Only the first one is examined: later attempts are frequent.
    async fn explain(&self, failure: StoreFailure, info: &ConnectionInfo) -> StoreFailure {
        if let Some((known, explained)) = self.explained.get() {
            return match failure == *known {
                true => explained.clone(),
                false => failure,
            };
        }
        let explained = self.connector.explain(failure.clone(), info).await;
        let _ = self.explained.set((failure, explained.clone()));
        explained
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
                Err(StoreFailure::NotConnected(reason)) if !error::is_tls_mismatch(reason) => {}
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
