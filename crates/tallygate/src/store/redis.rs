//! The Redis store. Its public signatures name no type of the client library.

mod cache;
mod cluster;
mod command;
mod compatibility;
mod connection;
mod connector;
mod cross_slot;
mod error;
mod keys;
mod reconnect;
mod replicas;
mod runtime;
mod server;
mod snapshot;
mod undo;
mod url;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{ClientTlsConfig, TlsCertificates};
use tallygate_core::{MAX_TIME_US, Verb};

use self::cache::CounterCache;
use self::cluster::Cluster;
use self::command::{ScriptCall, ScriptReply};
use self::connection::Connection;
use self::connector::{CONNECT_TIMEOUT, Connector};
use self::cross_slot::{SplitBy, SplitDecision};
pub use self::error::RedisError;
use self::error::StoreFailure;
use self::keys::Keyspace;
pub(crate) use self::keys::suffix;
use self::reconnect::{Node, Target};
use self::replicas::Replicas;
use self::runtime::StoreRuntime;
pub use self::server::{RedisReply, RedisServer, Topology};
use self::url::{Endpoints, StoreUrl};
use super::refusal_cache::{RefusalCacheSettings, RefusalCacheStats};
use super::{Store, StoreError, StoreErrorKind, deadline};
use crate::decision::Decision;
use crate::engine::{Guard, LocalSize};
use crate::request::Request;

/// The default time limit for a reply. Callers' deadlines are usually much shorter.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
const DEFAULT_LOCAL_KEYS: usize = 1_000_000;

/// Counters in Redis or Valkey, 6.2 or later: one server, Sentinel or Cluster.
///
/// Every request is decided atomically, by the server's clock, in one round trip, whatever the
/// number of its limits. Concurrent requests are sent in batches. In a cluster this holds for
/// limits whose keys share a slot, as all limits of one [`Key`](crate::Key) do; others are decided
/// in parallel, and what one of them took is refunded when another refuses.
///
/// A call that may have run is never sent again. [`Limiter::on_failure`](crate::Limiter::on_failure)
/// sets what happens when the store fails.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tallygate::{Limiter, Quota, RedisStore};
///
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// let limiter = Limiter::with_store(store, "100/min".parse::<Quota>()?);
/// let decision = limiter.decide(&limiter.request("user:42")).await;
/// assert!(decision.allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    keyspace: Keyspace,
    cache: Option<Arc<CounterCache>>,
    backend: Backend,
    url: UrlSummary,
    replicas: Replicas,
    guard: Arc<Guard>,
    /// Dropped last: it runs the connections.
    runtime: StoreRuntime,
}

/// The URL without its password.
struct UrlSummary {
    name: String,
    user: Option<String>,
    topology: Topology,
    encrypted: bool,
}

enum Backend {
    Single(Arc<Node>),
    Cluster(Arc<Cluster>),
}

/// Settings for a [`RedisStore`].
#[derive(Clone)]
pub struct RedisStoreBuilder {
    url: String,
    namespace: String,
    certificates: TlsCertificates,
    batching: bool,
    connect_timeout: Duration,
    response_timeout: Duration,
    own_thread: bool,
    local: LocalSize,
    refusal_cache: Option<RefusalCacheSettings>,
}

impl RedisStore {
    /// Connects and checks that the servers can be used.
    ///
    /// # Errors
    /// When the URL is invalid, no server replies, a server is too old or has another topology
    /// than the URL, or the user lacks a permission.
    pub async fn connect(url: &str) -> Result<Self, RedisError> {
        Self::builder(url).connect().await
    }

    /// Starts with the defaults. The URL is one of
    ///
    /// - `redis://user:password@host:6379/0`, or `rediss://` for TLS,
    /// - `unix:///run/redis.sock`,
    /// - `redis-sentinel://host1,host2:26379/master/0`, or `rediss-sentinel://`,
    /// - `redis-cluster://host1:6379,host2`, or `rediss-cluster://`.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder {
            url: url.to_owned(),
            namespace: String::new(),
            certificates: TlsCertificates {
                client_tls: None,
                root_cert: None,
            },
            batching: true,
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
            own_thread: false,
            local: LocalSize {
                keys: DEFAULT_LOCAL_KEYS,
                partitions: Vec::new(),
            },
            refusal_cache: None,
        }
    }
}

impl RedisStoreBuilder {
    /// Separates this store's counters from those of others on the same servers.
    #[must_use]
    pub fn namespace(mut self, name: &str) -> Self {
        name.clone_into(&mut self.namespace);
        self
    }

    /// Trusts this CA (PEM) instead of the system's.
    #[must_use]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.root_cert = Some(pem.into());
        self
    }

    /// Authenticates with this certificate and its key (both PEM).
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.client_tls = Some(ClientTlsConfig {
            client_cert: certificate.into(),
            client_key: key.into(),
        });
        self
    }

    /// Sets whether concurrent requests share script calls; they do by default.
    #[must_use]
    pub fn batching(mut self, batching: bool) -> Self {
        self.batching = batching;
        self
    }

    /// Sets the time limit for connecting, including authentication: 500 ms by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time limit for a reply: 1 s by default.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Runs the connections on a thread of their own instead of the current tokio runtime, so that
    /// replies are read in time even while that runtime is overloaded. It costs two thread switches
    /// per call: on one busy thread, about a third of the throughput. Off by default.
    #[must_use]
    pub fn own_thread(mut self, own_thread: bool) -> Self {
        self.own_thread = own_thread;
        self
    }

    /// Sets how many live keys have their own counters in this process while the servers fail or
    /// are overloaded: 1,000,000 by default. Their memory is used when it is needed.
    #[must_use]
    pub fn local_keys(mut self, keys: usize) -> Self {
        self.local.keys = keys;
        self
    }

    /// Divides these counters into partitions; see
    /// [`MemoryStoreBuilder::partitions`](crate::MemoryStoreBuilder::partitions).
    #[must_use]
    pub fn local_partitions(mut self, keys: impl IntoIterator<Item = usize>) -> Self {
        self.local.partitions = keys.into_iter().collect();
        self
    }

    /// Refuses requests without asking the servers while their counters are known to be exhausted:
    /// under attack, a server hears of such a counter once per `max_age` and process. Off by
    /// default.
    ///
    /// It refuses only what the servers would refuse, except that a reset, a refund or a raised
    /// limit in another process may go unnoticed for `max_age`.
    #[must_use]
    pub fn refusal_cache(mut self, settings: RefusalCacheSettings) -> Self {
        self.refusal_cache = Some(settings);
        self
    }

    /// Connects and checks, as [`RedisStore::connect`] does.
    ///
    /// # Errors
    /// As for [`RedisStore::connect`].
    pub async fn connect(self) -> Result<RedisStore, RedisError> {
        let store = self.open()?;
        store.check().await?;
        Ok(store)
    }

    /// Checks the URL only, without connecting or reading a certificate.
    ///
    /// # Errors
    /// When it is invalid.
    ///
    /// ```
    /// use tallygate::RedisStore;
    ///
    /// assert!(RedisStore::builder("redis://localhost/0").check_url().is_ok());
    /// assert!(RedisStore::builder("redis:/localhost").check_url().is_err());
    /// ```
    pub fn check_url(&self) -> Result<(), RedisError> {
        StoreUrl::parse(&self.url).map(drop)
    }

    /// Creates the store and connects in the background, for services that must start even if no
    /// server replies. The connections run on the current tokio runtime, or without one on a thread
    /// of their own.
    ///
    /// # Errors
    /// When the URL or a certificate is invalid, or no thread can be started.
    pub fn open(self) -> Result<RedisStore, RedisError> {
        let url = StoreUrl::parse(&self.url)?;
        let cache = self.refusal_cache.map(checked_cache).transpose()?;
        let runtime = match self.own_thread {
            true => StoreRuntime::on_own_thread()?,
            false => StoreRuntime::current()?,
        };
        let connector = Arc::new(Connector {
            url,
            certificates: self.certificates,
            scripts: Arc::default(),
            cache: cache.clone(),
            batching: self.batching,
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
            runtime: runtime.handle().clone(),
        });
        connector.validate()?;
        let url = connector.url.summary();
        let backend = match connector.url.endpoints {
            Endpoints::Cluster(_) => Backend::Cluster(Cluster::new(connector)),
            Endpoints::Single(_) | Endpoints::Socket(_) | Endpoints::Sentinel { .. } => {
                Backend::Single(Node::connect(connector, Target::Url))
            }
        };
        Ok(RedisStore {
            inner: Arc::new(Inner {
                keyspace: Keyspace::new(&self.namespace),
                cache,
                backend,
                url,
                replicas: Replicas::default(),
                guard: Arc::new(Guard::without_breaker(self.local)),
                runtime,
            }),
        })
    }
}

fn checked_cache(settings: RefusalCacheSettings) -> Result<Arc<CounterCache>, RedisError> {
    let RefusalCacheSettings { max_age, keys } = settings;
    let max = RefusalCacheSettings::MAX_AGE;
    if max_age > max || keys == 0 {
        let problem = format!(
            "invalid refusal cache: a max_age of {max_age:?} must be at most {max:?}, and {keys} \
             keys at least 1"
        );
        let advice = "use RefusalCacheSettings::default()";
        return Err(RedisError::new(
            StoreErrorKind::Misconfigured,
            problem,
            advice,
        ));
    }
    Ok(Arc::new(CounterCache::new(settings)))
}

impl RedisStore {
    /// Hits and misses of the [refusal cache](RedisStoreBuilder::refusal_cache); 0 without one.
    pub fn refusal_cache_stats(&self) -> RefusalCacheStats {
        let cache = self.inner.cache();
        cache.map(|cache| cache.stats()).unwrap_or_default()
    }

    /// Decides a request at a supplied time, in microseconds since the Unix epoch, instead of the
    /// server's. Such counters expire after a day.
    ///
    /// # Errors
    /// When the counters cannot be reached.
    pub async fn decide_at(
        &self,
        request: &Request<'_>,
        now_us: u64,
    ) -> Result<Decision, StoreError> {
        let at = now_us.min(MAX_TIME_US);
        Ok(self.inner.decide(request, Some(at)).await?)
    }

    /// Decides many requests in order, each at its own supplied time, without waiting for each
    /// round trip.
    ///
    /// # Errors
    /// When the counters cannot be reached; how many were decided is unknown then.
    pub async fn decide_many_at(
        &self,
        requests: &[(Request<'_>, u64)],
    ) -> Result<Vec<Decision>, StoreError> {
        Ok(self.inner.decide_many(requests).await?)
    }

    /// Deletes every counter of this store's namespace; without one, all of Tallygate's on these
    /// servers.
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub async fn clear(&self) -> Result<(), StoreError> {
        Ok(self.inner.clear().await?)
    }
}

/// Keys per `SCAN` step; small, so that other clients do not wait long.
const SCAN_COUNT: usize = 1_000;

async fn delete_matching(connection: &Connection, pattern: &[u8]) -> Result<(), StoreFailure> {
    let mut cursor = b"0".to_vec();
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(pattern);
        scan.arg("COUNT").arg(SCAN_COUNT);
        let reply = connection.command(&scan).await?;
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|_| StoreFailure::InvalidReply)?;
        // One command per key: in a cluster they are in different slots.
        let unlink = |key| redis::cmd("UNLINK").arg(key).take();
        connection.commands(keys.into_iter().map(unlink)).await?;
        if next == b"0" {
            return Ok(());
        }
        cursor = next;
    }
}

impl Inner {
    fn cache(&self) -> Option<&Arc<CounterCache>> {
        self.cache.as_ref()
    }

    fn call(&self, request: &Request<'_>, at: Option<u64>) -> Arc<ScriptCall> {
        let cache = self.cache.as_deref();
        Arc::new(ScriptCall::from_request(&self.keyspace, request, at, cache))
    }

    async fn decide(
        self: &Arc<Self>,
        request: &Request<'_>,
        at: Option<u64>,
    ) -> Result<Decision, StoreFailure> {
        let call = self.call(request, at);
        self.decide_call(call, request.requested_verb()).await
    }

    /// Decides a request until the deadline. If parts of it fail, the error says what the others
    /// decided.
    async fn decide_within(
        self: &Arc<Self>,
        request: &Request<'_>,
        deadline: Duration,
    ) -> Result<Decision, StoreError> {
        let verb = request.requested_verb();
        let call = self.call(request, None);
        if !self.is_split(&call) {
            let decision = async { Ok(self.decide_call(call, verb).await?) };
            return deadline::enforce(decision, deadline).await;
        }
        let _invalidation = self.cache().and_then(|cache| cache.invalidate(&call));
        let split_by = SplitBy::Slot;
        match cross_slot::decide(self, call, verb, split_by, Some(deadline)).await {
            SplitDecision::Decided(decision) => Ok(decision),
            SplitDecision::Partial(partial, failure) => {
                Err(StoreError::from(failure).with_partial(partial))
            }
            SplitDecision::Failed(failure) => Err(failure.into()),
        }
    }

    /// Whether the counters of a call are in several slots of a cluster.
    fn is_split(&self, call: &ScriptCall) -> bool {
        matches!(self.backend, Backend::Cluster(_)) && call.is_cross_slot()
    }

    async fn decide_many(
        self: &Arc<Self>,
        requests: &[(Request<'_>, u64)],
    ) -> Result<Vec<Decision>, StoreFailure> {
        let call = |(request, at): &(Request<'_>, u64)| {
            let at = (*at).min(MAX_TIME_US);
            self.call(request, Some(at))
        };
        let calls: Vec<Arc<ScriptCall>> = requests.iter().map(call).collect();
        let Backend::Single(node) = &self.backend else {
            return self.decide_many_in_cluster(requests, &calls).await;
        };
        let replies = node.connection().await?.decide_in_order(&calls).await?;
        let mut decisions = Vec::with_capacity(requests.len());
        for (((request, _), call), reply) in requests.iter().zip(&calls).zip(replies) {
            decisions.push(call.decision(request.requested_verb(), reply));
        }
        Ok(decisions)
    }

    /// Decides calls of one slot in order, and slots in parallel.
    async fn decide_many_in_cluster(
        self: &Arc<Self>,
        requests: &[(Request<'_>, u64)],
        calls: &[Arc<ScriptCall>],
    ) -> Result<Vec<Decision>, StoreFailure> {
        let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        let cross_slot = calls.iter().any(|call| call.is_cross_slot());
        for (i, call) in calls.iter().enumerate() {
            // A cross-slot request must keep its order among all others.
            let slot = if cross_slot { 0 } else { call.slot() };
            slots.entry(slot).or_default().push(i);
        }
        let one_slot = async |indices: Vec<usize>| {
            let mut decided = Vec::with_capacity(indices.len());
            for i in indices {
                let verb = requests[i].0.requested_verb();
                let decision = self.decide_call(Arc::clone(&calls[i]), verb).await?;
                decided.push((i, decision));
            }
            Ok::<_, StoreFailure>(decided)
        };
        let all = try_join_all(slots.into_values().map(one_slot)).await?;
        let mut all: Vec<(usize, Decision)> = all.into_iter().flatten().collect();
        all.sort_by_key(|(i, _)| *i);
        Ok(all.into_iter().map(|(_, decision)| decision).collect())
    }

    async fn decide_call(
        self: &Arc<Self>,
        call: Arc<ScriptCall>,
        verb: Verb,
    ) -> Result<Decision, StoreFailure> {
        let _invalidation = self.cache().and_then(|cache| cache.invalidate(&call));
        if self.is_split(&call) {
            return self.decide_split(call, verb, SplitBy::Slot).await;
        }
        match self.send(Arc::clone(&call)).await {
            Ok(reply) => Ok(call.decision(verb, reply)),
            // A slot migration has moved some of its counters: each is on one of two servers.
            Err(StoreFailure::TryAgain) if call.len() > 1 => {
                self.decide_split(call, verb, SplitBy::Limit).await
            }
            Err(failure) => Err(failure),
        }
    }

    /// Decides all parts of a call or none.
    async fn decide_split(
        self: &Arc<Self>,
        call: Arc<ScriptCall>,
        verb: Verb,
        split_by: SplitBy,
    ) -> Result<Decision, StoreFailure> {
        match cross_slot::decide(self, call, verb, split_by, None).await {
            SplitDecision::Decided(decision) => Ok(decision),
            SplitDecision::Partial(_, failure) | SplitDecision::Failed(failure) => Err(failure),
        }
    }

    /// Sends a call whose counters share a slot.
    async fn send(&self, call: Arc<ScriptCall>) -> Result<ScriptReply, StoreFailure> {
        match &self.backend {
            Backend::Single(node) => {
                let mut reply = node.decide(Arc::clone(&call)).await;
                if let Err(StoreFailure::NotConnected(_)) = reply {
                    // Not sent: the connection was just replaced.
                    reply = node.decide(call).await;
                }
                if let Err(StoreFailure::ReadOnly) = reply {
                    // The master has become a replica.
                    node.mark_broken();
                }
                reply
            }
            // Boxed: waiting futures are moved, and should be small.
            Backend::Cluster(cluster) => Box::pin(cluster.decide(call)).await,
        }
    }

    /// Sends a command about one key, which may run twice.
    async fn command(
        &self,
        key: &[u8],
        command: &redis::Cmd,
    ) -> Result<redis::Value, StoreFailure> {
        match &self.backend {
            Backend::Single(node) => node.connection().await?.command(command).await,
            Backend::Cluster(cluster) => cluster.command(keys::slot(key), command).await,
        }
    }

    async fn clear(&self) -> Result<(), StoreFailure> {
        let pattern = self.keyspace.scan_pattern();
        match &self.backend {
            Backend::Single(node) => delete_matching(&*node.connection().await?, &pattern).await,
            Backend::Cluster(cluster) => {
                for (_, node) in cluster.masters().await? {
                    delete_matching(&*node.connection().await?, &pattern).await?;
                }
                Ok(())
            }
        }
    }

    /// Whether a server that holds counters of the request has stopped replying.
    fn is_silent(&self, request: &Request<'_>) -> bool {
        match &self.backend {
            Backend::Single(node) => node.is_silent(),
            Backend::Cluster(cluster) => request.entries().iter().any(|entry| {
                let key = self.keyspace.counter_key(&entry.key, entry.limit);
                cluster.is_silent(keys::slot(&key))
            }),
        }
    }

    /// Checks whether calls are worth sending, and replaces connections that are not usable.
    async fn probe(&self) -> Result<(), StoreFailure> {
        match &self.backend {
            Backend::Single(node) => node.probe().await,
            Backend::Cluster(cluster) => cluster.probe().await,
        }
    }
}

impl Store for RedisStore {
    fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        self.inner.cache()?.try_refuse(request)
    }

    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        Ok(self.inner.decide(request, None).await?)
    }

    async fn decide_within(
        &self,
        request: &Request<'_>,
        deadline: Duration,
    ) -> Result<Decision, StoreError> {
        self.inner.decide_within(request, deadline).await
    }

    fn submit(&self, request: &Request<'_>) {
        let inner = Arc::clone(&self.inner);
        let call = inner.call(request, None);
        let verb = request.requested_verb();
        let runtime = self.inner.runtime.handle();
        // A lost call is not sent again.
        runtime.spawn(async move { inner.decide_call(call, verb).await });
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        let inner = Arc::clone(&self.inner);
        let calls = inner.undo_calls(request, decision, None);
        let runtime = self.inner.runtime.handle();
        // A lost call is not sent again.
        runtime.spawn(async move { inner.undo(calls).await });
    }

    fn guard(&self) -> Option<&Arc<Guard>> {
        Some(&self.inner.guard)
    }

    fn is_silent(&self, request: &Request<'_>) -> bool {
        self.inner.is_silent(request)
    }

    fn is_down(&self) -> bool {
        self.breakers().iter().any(|(_, open)| *open)
    }

    async fn probe(&self) -> Result<(), StoreError> {
        Ok(self.inner.probe().await?)
    }

    fn count_replicas(&self) {
        self.inner.count_replicas();
    }

    fn replicas(&self) -> Option<u32> {
        self.inner.replicas.count()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the URL nor the certificates: they may hold secrets.
        f.debug_struct("RedisStoreBuilder")
            .field("namespace", &self.namespace)
            .field("batching", &self.batching)
            .finish_non_exhaustive()
    }
}
