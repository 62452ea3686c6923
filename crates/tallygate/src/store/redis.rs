//! The Redis store. Its public signatures name no type of the client library.

mod backend;
mod batch;
mod cache;
mod cluster;
mod command;
mod compatibility;
mod connection;
mod connector;
mod cross_slot;
mod error;
mod keys;
mod leases;
mod link;
mod reconnect;
mod replicas;
mod runtime;
mod server;
mod shards;
#[cfg(feature = "simulate")]
pub(crate) mod simulated;
mod snapshot;
mod undo;
mod url;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::quality::SeedableRandomState;
use futures_util::future::try_join_all;
use redis::{ClientTlsConfig, TlsCertificates};
use tallygate_core::{MAX_TIME_US, Verb};

use self::backend::Backend;
use self::cache::CounterCache;
use self::cluster::Cluster;
use self::command::{ScriptCall, ScriptReply};
use self::connection::Connection;
use self::connector::{CONNECT_TIMEOUT, Connector};
use self::cross_slot::{SplitBy, SplitDecision};
pub use self::error::RedisError;
use self::error::StoreFailure;
pub(crate) use self::keys::suffix;
use self::keys::{HashTags, Keyspace};
use self::leases::StoreLeases;
use self::reconnect::{Node, Target};
use self::replicas::Replicas;
use self::runtime::StoreRuntime;
pub use self::server::{RedisReply, RedisServer, Topology};
use self::shards::Shards;
use self::url::{Endpoints, StoreUrl};
use super::lease::LeaseStats;
use super::refusal_cache::{RefusalCacheSettings, RefusalCacheStats};
use super::{
    MAX_HASH_TAGS, MIN_HMAC_SECRET_BYTES, Store, StoreError, StoreErrorKind, TailRefund, deadline,
    may_be_hash_tags,
};
use crate::decision::Decision;
use crate::engine::{Guard, LocalSize};
use crate::limit::Limit;
use crate::request::Request;

/// The default time limit for a reply. Callers' deadlines are usually much shorter.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
const DEFAULT_LOCAL_KEYS: usize = 1_000_000;
/// The maximum number of connections to a server.
const MAX_CONNECTIONS: usize = 16;

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
/// let decision = limiter.check("user:42").await;
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
    leases: StoreLeases,
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

/// Settings for a [`RedisStore`].
#[derive(Clone)]
pub struct RedisStoreBuilder {
    url: String,
    namespace: String,
    hmac_secret: Option<Vec<u8>>,
    certificates: TlsCertificates,
    batching: bool,
    connect_timeout: Duration,
    response_timeout: Duration,
    own_thread: bool,
    connections: Option<usize>,
    hash_tags: Option<u32>,
    local: LocalSize,
    refusal_cache: Option<RefusalCacheSettings>,
}

impl RedisStore {
    /// A number of [hash tags](RedisStoreBuilder::hash_tags) for clusters of up to a dozen masters.
    pub const DEFAULT_HASH_TAGS: u32 = super::DEFAULT_HASH_TAGS;

    /// Connects and checks that the servers can be used.
    ///
    /// Servers that cannot be reached yet do not stop the program: a warning is logged, the store
    /// connects in the background, and until then the
    /// [failure policy](crate::Limiter::on_failure) decides. [`check`](RedisStore::check) says
    /// whether they answer.
    ///
    /// # Errors
    /// When the configuration has to be changed: the URL is invalid, the password or a certificate is
    /// wrong, the user lacks a permission, or a server is too old or has another topology than the
    /// URL.
    pub async fn connect(url: &str) -> Result<Self, RedisError> {
        Self::builder(url).connect().await
    }

    /// Starts with the defaults. The URL is one of
    ///
    /// - `redis://user:password@host:6379/0`, or `rediss://` for TLS,
    /// - `unix:///run/redis.sock`,
    /// - `redis-sentinel://host1,host2:26379/master/0`, or `rediss-sentinel://`,
    /// - `redis-cluster://host1:6379,host2`, or `rediss-cluster://`,
    /// - `redis+shards://host1:6379,host2`, or `rediss+shards://`: independent servers, each with a
    ///   part of the keys. `redis+shards://?file=/path` reads their list from a file, again when it
    ///   changes.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder {
            url: url.to_owned(),
            namespace: String::new(),
            hmac_secret: None,
            certificates: TlsCertificates {
                client_tls: None,
                root_cert: None,
            },
            batching: true,
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
            own_thread: false,
            connections: None,
            hash_tags: None,
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

    /// Hashes the secrets in stored keys ([`Key::secret`](crate::Key::secret)) with HMAC-SHA-256
    /// and this secret of at least 16 bytes. By default they are hashed with SHA-256 alone: whoever
    /// reads the servers' keys can then find a short secret, such as a PIN, by hashing all of them.
    ///
    /// Stores with different settings do not share the counters of secrets: set it in all processes
    /// at once. With a new setting these counters start from zero.
    #[must_use]
    pub fn hmac_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.hmac_secret = Some(secret.into());
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
    /// replies are read in time even while that runtime is overloaded; on machines with 8 cores or more
    /// on up to four threads. It costs two thread switches per call: on one busy thread, about a third
    /// of the throughput. Off by default.
    #[must_use]
    pub fn own_thread(mut self, own_thread: bool) -> Self {
        self.own_thread = own_thread;
        self
    }

    /// Sets the number of connections to each server, 1 to 16. Keys are distributed over them. By
    /// default there is one for every four threads of the runtime, at most 4: batches are larger over
    /// fewer connections.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Puts the counters of a cluster under so many hash tags: a power of two, at most 16,384, such as
    /// [`RedisStore::DEFAULT_HASH_TAGS`]. Keys with the same tag share a slot, so that one script call
    /// decides many of them, as on a single server. The tags are spread evenly over the slots; all
    /// limits of a [`Key`](crate::Key) have the same one. By default every key has its own slot, and
    /// concurrent requests share no script calls. Stores that are no cluster ignore it.
    ///
    /// Set the same number in all processes at once: counters under another number are not found, and
    /// up to two limits are admitted while a fleet changes over. A process that finds others with
    /// another number logs a warning. Slots cannot be divided further: with 64 tags a cluster has at
    /// most 64 masters with counters.
    #[must_use]
    pub fn hash_tags(mut self, count: u32) -> Self {
        self.hash_tags = Some(count);
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
    /// [`MemoryStoreBuilder::partitions`](crate::store::MemoryStoreBuilder::partitions).
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
        match store.check().await {
            Err(error) if error.is_permanent() => return Err(error),
            Err(error) => tracing::warn!(
                %error,
                "the store cannot be used yet: failure policies decide until it answers"
            ),
            Ok(()) => {}
        }
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

    /// Creates the store and connects in the background, without waiting for the first reply. The
    /// connections run on the current tokio runtime, or without one on a thread
    /// of their own.
    ///
    /// # Errors
    /// When the URL, a certificate or a number is invalid, the HMAC secret is too short, or no thread
    /// can be started.
    pub fn open(self) -> Result<RedisStore, RedisError> {
        let url = StoreUrl::parse(&self.url)?;
        let hmac_secret = self.hmac_secret.as_deref();
        hmac_secret.map_or(Ok(()), check_hmac_secret)?;
        let mut keyspace = Keyspace::new(&self.namespace, hmac_secret);
        let hash_tags = self.hash_tags.map(checked_hash_tags).transpose()?;
        if let (Endpoints::Cluster(_), Some(count)) = (&url.endpoints, hash_tags) {
            keyspace = keyspace.with_hash_tags(HashTags::new(count));
        }
        let connections = self.connections.map(checked_connections).transpose()?;
        let cache = self.refusal_cache.map(checked_cache).transpose()?;
        let runtime = match self.own_thread {
            true => StoreRuntime::on_own_threads()?,
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
            connections: connections.unwrap_or_else(|| runtime.connections()),
            runtime: runtime.handle().clone(),
        });
        connector.validate()?;
        let url = connector.url.summary();
        let backend = match connector.url.endpoints {
            Endpoints::Cluster(_) => Backend::Cluster(Cluster::new(connector)),
            Endpoints::Shards(ref list) => {
                let list = list.clone();
                Backend::Shards(Shards::new(connector, &list)?)
            }
            Endpoints::Single(_) | Endpoints::Socket(_) | Endpoints::Sentinel { .. } => {
                Backend::Single(Node::connect(connector, Target::Url))
            }
        };
        Ok(RedisStore {
            inner: Arc::new(Inner {
                keyspace,
                cache,
                leases: StoreLeases::default(),
                backend,
                url,
                replicas: Replicas::default(),
                guard: Arc::new(Guard::without_breaker(self.local)),
                runtime,
            }),
        })
    }
}

fn check_hmac_secret(secret: &[u8]) -> Result<(), RedisError> {
    let bytes = secret.len();
    if bytes >= MIN_HMAC_SECRET_BYTES {
        return Ok(());
    }
    Err(RedisError::new(
        StoreErrorKind::Misconfigured,
        format!("the HMAC secret has {bytes} bytes, which is below {MIN_HMAC_SECRET_BYTES}"),
        "use 16 random bytes or more, such as from `openssl rand -hex 32`",
    ))
}

fn checked_hash_tags(count: u32) -> Result<u32, RedisError> {
    if may_be_hash_tags(count) {
        return Ok(count);
    }
    Err(RedisError::new(
        StoreErrorKind::Misconfigured,
        format!("{count} hash tags: the number must be a power of two from 1 to {MAX_HASH_TAGS}"),
        "use RedisStore::DEFAULT_HASH_TAGS, which is 64",
    ))
}

fn checked_connections(connections: usize) -> Result<usize, RedisError> {
    if (1..=MAX_CONNECTIONS).contains(&connections) {
        return Ok(connections);
    }
    Err(RedisError::new(
        StoreErrorKind::Misconfigured,
        format!("{connections} connections to each server: it must be 1 to {MAX_CONNECTIONS}"),
        "leave it out for one for every four threads",
    ))
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
    let hasher = SeedableRandomState::random();
    Ok(Arc::new(CounterCache::new(settings, hasher)))
}

impl RedisStore {
    /// Hits and misses of the [refusal cache](RedisStoreBuilder::refusal_cache); 0 without one.
    pub fn refusal_cache_stats(&self) -> RefusalCacheStats {
        let cache = self.inner.cache();
        cache.map(|cache| cache.stats()).unwrap_or_default()
    }

    /// What [leases](crate::Limit::lease) did.
    pub fn lease_stats(&self) -> LeaseStats {
        self.inner.leases.leases().stats()
    }

    /// Ends all leases and returns the units that are left of them. Requests are decided as before,
    /// without leases.
    ///
    /// Call it before the process ends: otherwise units that were taken ahead stay charged until they
    /// age out.
    pub async fn close(&self) {
        self.inner.close_leases().await;
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
        self.inner.decide(request, Some(at)).await
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
    ) -> Result<Decision, StoreError> {
        match at {
            Some(_) => {
                let call = self.call(request, at);
                Ok(self.decide_call(call, request.requested_verb()).await?)
            }
            None => self.decide_leasing(request, None).await,
        }
    }

    /// Decides a request without leases, until the deadline if there is one. If parts of it fail then,
    /// the error says what the others decided.
    async fn decide_by_store(
        self: &Arc<Self>,
        request: &Request<'_>,
        deadline: Option<Duration>,
    ) -> Result<Decision, StoreError> {
        let verb = request.requested_verb();
        let call = self.call(request, None);
        let Some(deadline) = deadline else {
            return Ok(self.decide_call(call, verb).await?);
        };
        let _invalidation = self.cache().and_then(|cache| cache.invalidate(&call));
        let mut left = deadline;
        let split_by = if self.is_split(&call) {
            SplitBy::Part
        } else {
            let started = Instant::now();
            let reply = async { Ok(self.send(Arc::clone(&call)).await) };
            match deadline::enforce(reply, deadline).await? {
                Ok(reply) => return Ok(call.decision(verb, reply)),
                // A slot migration has moved some of its counters: each is on one of two servers.
                Err(StoreFailure::TryAgain) if call.len() > 1 => {
                    left = deadline.saturating_sub(started.elapsed());
                    SplitBy::Limit
                }
                Err(failure) => return Err(failure.into()),
            }
        };
        match cross_slot::decide(self, call, verb, split_by, Some(left)).await {
            SplitDecision::Decided(decision) => Ok(decision),
            SplitDecision::Partial(partial, failure) => {
                Err(StoreError::from(failure).with_partial(partial))
            }
            SplitDecision::Failed(failure) => Err(failure.into()),
        }
    }

    /// Whether one script cannot reach all counters of a call.
    fn is_split(&self, call: &ScriptCall) -> bool {
        self.backend.is_split(call)
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
            return self.decide_many_in_parts(requests, &calls).await;
        };
        let replies = node.connection().await?.decide_in_order(&calls).await?;
        let mut decisions = Vec::with_capacity(requests.len());
        for (((request, _), call), reply) in requests.iter().zip(&calls).zip(replies) {
            decisions.push(call.decision(request.requested_verb(), reply));
        }
        Ok(decisions)
    }

    /// Decides calls of one part of the servers in order, and parts in parallel.
    async fn decide_many_in_parts(
        self: &Arc<Self>,
        requests: &[(Request<'_>, u64)],
        calls: &[Arc<ScriptCall>],
    ) -> Result<Vec<Decision>, StoreFailure> {
        let mut parts: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        let any_split = calls.iter().any(|call| self.is_split(call));
        for (i, call) in calls.iter().enumerate() {
            // A split request must keep its order among all others.
            let part = if any_split {
                0
            } else {
                self.backend.part(call.first_key())
            };
            parts.entry(part).or_default().push(i);
        }
        let one_part = async |indices: Vec<usize>| {
            let mut decided = Vec::with_capacity(indices.len());
            for i in indices {
                let verb = requests[i].0.requested_verb();
                let decision = self.decide_call(Arc::clone(&calls[i]), verb).await?;
                decided.push((i, decision));
            }
            Ok::<_, StoreFailure>(decided)
        };
        let all = try_join_all(parts.into_values().map(one_part)).await?;
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
            return self.decide_split(call, verb, SplitBy::Part).await;
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

    /// Sends a call that one script decides.
    async fn send(&self, call: Arc<ScriptCall>) -> Result<ScriptReply, StoreFailure> {
        self.backend.decide(call, None).await
    }

    /// The same. If it did not run, it is not sent again after `until`.
    async fn send_until(
        &self,
        call: Arc<ScriptCall>,
        until: Option<Instant>,
    ) -> Result<ScriptReply, StoreFailure> {
        self.backend.decide(call, until).await
    }

    /// Sends a command about one key, which may run twice.
    async fn command(
        &self,
        key: &[u8],
        command: &redis::Cmd,
    ) -> Result<redis::Value, StoreFailure> {
        self.backend.command(key, command).await
    }

    async fn clear(&self) -> Result<(), StoreFailure> {
        let pattern = self.keyspace.scan_pattern();
        for (_, node) in self.backend.masters(&self.url.name).await? {
            delete_matching(&*node.connection().await?, &pattern).await?;
        }
        Ok(())
    }

    /// Whether a server that holds counters of the request has stopped replying.
    fn is_silent(&self, request: &Request<'_>) -> bool {
        request.entries().iter().any(|entry| {
            let key = self.keyspace.counter_key(&entry.key, entry.limit);
            self.backend.is_silent(&key)
        })
    }
}

impl Store for RedisStore {
    fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        let spent = self.inner.try_spend(request);
        spent.or_else(|| {
            let cache = self.inner.cache()?;
            cache.try_refuse(request, cache.now_us())
        })
    }

    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        let _reset = self.inner.forget_leases(request);
        self.inner.decide(request, None).await
    }

    async fn decide_within(
        &self,
        request: &Request<'_>,
        deadline: Duration,
    ) -> Result<Decision, StoreError> {
        let _reset = self.inner.forget_leases(request);
        self.inner.decide_leasing(request, Some(deadline)).await
    }

    fn submit(&self, request: &Request<'_>) {
        let inner = Arc::clone(&self.inner);
        let reset = inner.forget_leases(request);
        let call = inner.call(request, None);
        let verb = request.requested_verb();
        let runtime = self.inner.runtime.handle();
        // A lost call is not sent again.
        runtime.spawn(async move {
            let _reset = reset;
            inner.decide_call(call, verb).await
        });
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        let inner = Arc::clone(&self.inner);
        let calls = match decision.leased() {
            true => {
                let rest = request.subset(&inner.put_back(request, decision));
                inner.undo_calls(&rest, decision, None)
            }
            false => inner.undo_calls(request, decision, None),
        };
        let runtime = self.inner.runtime.handle();
        // A lost call is not sent again.
        runtime.spawn(async move { inner.undo(calls).await });
    }

    fn refund_tail(
        &self,
        request: &Request<'_>,
        ends_us: &[u64],
        done: impl FnOnce(TailRefund) + Send + 'static,
    ) {
        let Some(call) = self.inner.tail_call(request, ends_us) else {
            return done(TailRefund::NotLast);
        };
        let inner = Arc::clone(&self.inner);
        let runtime = self.inner.runtime.handle();
        runtime.spawn(async move { done(inner.refund_tail(call).await) });
    }

    fn prepare(&self, limit: &Limit) {
        if limit.own_lease().is_some() {
            self.inner.count_replicas();
        }
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
        Ok(self.inner.backend.probe().await?)
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
        // Neither the URL, the HMAC secret nor the certificates: they may hold secrets.
        f.debug_struct("RedisStoreBuilder")
            .field("namespace", &self.namespace)
            .field("batching", &self.batching)
            .finish_non_exhaustive()
    }
}
