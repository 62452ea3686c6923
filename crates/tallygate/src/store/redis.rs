//! Counters in Redis or Valkey, shared by any number of servers. Knows keys, quotas and where the
//! servers are; knows nothing of HTTP, and shows no type of the client it uses.

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
mod script;
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
use tokio::runtime::Handle;

use self::cluster::Cluster;
use self::command::{Answer, Call};
use self::connection::Lane;
use self::connector::{CONNECT_WITHIN, Settings};
pub use self::error::RedisError;
use self::error::Trouble;
use self::keys::Names;
pub(crate) use self::keys::suffix;
use self::reconnect::{Goal, Link};
use self::replicas::Replicas;
pub use self::server::{Arrangement, RedisServer, Reply};
use self::url::{Address, Servers};
use super::{Store, StoreError};
use crate::decision::Decision;
use crate::request::Request;

/// How long an answer may take before it counts as lost, unless told otherwise. Callers usually
/// give up much earlier.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Counters in Redis or Valkey, 6.2 or later: one server, Sentinel or Cluster.
///
/// Every request is decided in one atomic step, on the server's clock, in one round trip,
/// whatever the number of its limits; requests that are under way at the same time travel
/// together. In a cluster this holds for limits whose keys share a slot, which all limits of one
/// [`Key`](crate::Key) do; others are decided in parallel, and what one of them took is given
/// back when another refuses.
///
/// A call that may have run is never sent again. What to answer when the store does not is the
/// [limiter's](crate::Limiter::on_failure) to say.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tallygate::{Limiter, Quota, RedisStore};
///
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// let limiter = Limiter::over(store, "100/min".parse::<Quota>()?);
/// let decision = limiter.decide(&limiter.request("user:42")).await;
/// assert!(decision.allowed());
/// # Ok(())
/// # }
/// ```
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    names: Names,
    servers: Reached,
    place: Place,
    replicas: Replicas,
}

/// What the URL says of the servers, without the password.
struct Place {
    name: String,
    user: Option<String>,
    arrangement: Arrangement,
    encrypted: bool,
}

/// How the servers are reached.
enum Reached {
    One(Arc<Link>),
    Many(Arc<Cluster>),
}

/// Settings for a [`RedisStore`].
#[derive(Clone)]
pub struct RedisStoreBuilder {
    url: String,
    namespace: String,
    certificates: TlsCertificates,
    batching: bool,
    connect_within: Duration,
    answer_within: Duration,
}

impl RedisStore {
    /// Connects and checks that everything needed is there.
    ///
    /// # Errors
    /// When the URL is no good, no server answers, or it is too old, of another arrangement than
    /// the URL says, or withholds a right that is needed.
    pub async fn connect(url: &str) -> Result<Self, RedisError> {
        Self::builder(url).connect().await
    }

    /// Begins with the defaults. The URL is one of
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
            connect_within: CONNECT_WITHIN,
            answer_within: ANSWER_WITHIN,
        }
    }
}

impl RedisStoreBuilder {
    /// Keeps this store's counters apart from those of others on the same servers.
    #[must_use]
    pub fn namespace(mut self, name: &str) -> Self {
        name.clone_into(&mut self.namespace);
        self
    }

    /// Trusts the certificates of this authority (PEM) instead of the system's.
    #[must_use]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.root_cert = Some(pem.into());
        self
    }

    /// Shows this certificate and proves it with its key (both PEM).
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

    /// Sets whether requests that are under way together share script calls; they do unless told
    /// otherwise.
    #[must_use]
    pub fn batching(mut self, batching: bool) -> Self {
        self.batching = batching;
        self
    }

    /// Sets how long connecting may take, signing in included: 500 ms unless told otherwise.
    #[must_use]
    pub fn connect_within(mut self, wait: Duration) -> Self {
        self.connect_within = wait;
        self
    }

    /// Sets how long an answer may take before it counts as lost: 1 s unless told otherwise.
    /// Connecting may take half as long; servers that are far away may want more.
    #[must_use]
    pub fn answer_within(mut self, wait: Duration) -> Self {
        self.answer_within = wait;
        self
    }

    /// Connects and checks, as [`RedisStore::connect`] does.
    ///
    /// # Errors
    /// As there.
    pub async fn connect(self) -> Result<RedisStore, RedisError> {
        let store = self.open()?;
        store.check().await?;
        Ok(store)
    }

    /// Looks at the URL alone: connects to nothing and reads no certificate.
    ///
    /// # Errors
    /// When it is no good.
    ///
    /// ```
    /// use tallygate::RedisStore;
    ///
    /// assert!(RedisStore::builder("redis://localhost/0").check_url().is_ok());
    /// assert!(RedisStore::builder("redis:/localhost").check_url().is_err());
    /// ```
    pub fn check_url(&self) -> Result<(), RedisError> {
        Address::parse(&self.url).map(drop)
    }

    /// Makes the store at once and connects in the background, also if no server answers yet: for
    /// services that have to start without it. The connections live on the tokio runtime that
    /// this is called within.
    ///
    /// # Errors
    /// When the URL or a certificate is no good, or there is no runtime.
    pub fn open(self) -> Result<RedisStore, RedisError> {
        let settings = Arc::new(Settings {
            address: Address::parse(&self.url)?,
            certificates: self.certificates,
            scripts: Arc::default(),
            batching: self.batching,
            connect_within: self.connect_within,
            answer_within: self.answer_within,
            runtime: Handle::try_current().map_err(|_| RedisError::no_runtime())?,
        });
        settings.check()?;
        let place = settings.address.place();
        let servers = match settings.address.servers {
            Servers::Cluster(_) => Reached::Many(Cluster::new(settings)),
            Servers::Single(_) | Servers::Socket(_) | Servers::Sentinel { .. } => {
                Reached::One(Link::keep(settings, Goal::Named))
            }
        };
        let names = Names::within(&self.namespace);
        Ok(RedisStore {
            inner: Arc::new(Inner {
                names,
                servers,
                place,
                replicas: Replicas::default(),
            }),
        })
    }
}

impl RedisStore {
    /// Decides a request at a supplied time in microseconds since the Unix epoch instead of the
    /// server's. Such counters live for a day.
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

    /// Decides many requests in order, each at its own supplied time. Much faster than one by
    /// one: they do not wait for one another's round trips.
    ///
    /// # Errors
    /// When the counters cannot be reached; how many were decided is not known then.
    pub async fn decide_many_at(
        &self,
        requests: &[(Request<'_>, u64)],
    ) -> Result<Vec<Decision>, StoreError> {
        let inner = &self.inner;
        let call = |(request, at): &(Request<'_>, u64)| {
            Arc::new(Call::of(
                &inner.names,
                request,
                Some((*at).min(MAX_TIME_US)),
            ))
        };
        let calls: Vec<Arc<Call>> = requests.iter().map(call).collect();
        let Reached::One(link) = &inner.servers else {
            return Ok(inner.many(requests, &calls).await?);
        };
        let lane = link.lane().await.map_err(StoreError::from)?;
        let answers = lane.in_order(&calls).await.map_err(StoreError::from)?;
        let decided = requests.iter().zip(&calls).zip(answers);
        let decide = |(((request, _), call), answer): ((&(Request<'_>, u64), &Arc<Call>), _)| {
            call.decision(request.asks(), answer)
        };
        Ok(decided.map(decide).collect())
    }

    /// Forgets every counter of this store's namespace; without one, all of Tallygate's on these
    /// servers.
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub async fn clear(&self) -> Result<(), StoreError> {
        let pattern = self.inner.names.pattern();
        for link in self.inner.links().await.map_err(StoreError::from)? {
            let lane = link.lane().await.map_err(StoreError::from)?;
            clear(&lane, &pattern).await.map_err(StoreError::from)?;
        }
        Ok(())
    }
}

/// How many keys are looked at in one step, so that nobody else has to wait long.
const CLEARED_AT_ONCE: usize = 1_000;

async fn clear(lane: &Lane, pattern: &[u8]) -> Result<(), Trouble> {
    let mut cursor = b"0".to_vec();
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(pattern);
        scan.arg("COUNT").arg(CLEARED_AT_ONCE);
        let reply = lane.command(&scan).await?;
        let (next, names): (Vec<u8>, Vec<Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|_| Trouble::Garbled)?;
        // One by one, but in one go: in a cluster they live in different slots.
        let unlink = |name| redis::cmd("UNLINK").arg(name).take();
        lane.commands(names.into_iter().map(unlink)).await?;
        if next == b"0" {
            return Ok(());
        }
        cursor = next;
    }
}

impl Inner {
    async fn decide(
        self: &Arc<Self>,
        request: &Request<'_>,
        at: Option<u64>,
    ) -> Result<Decision, Trouble> {
        let call = Arc::new(Call::of(&self.names, request, at));
        self.answer(call, request.asks()).await
    }

    /// Decides many calls of a cluster: those of one slot in their order, slots side by side.
    async fn many(
        self: &Arc<Self>,
        requests: &[(Request<'_>, u64)],
        calls: &[Arc<Call>],
    ) -> Result<Vec<Decision>, Trouble> {
        let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        let scattered = calls.iter().any(|call| call.is_scattered());
        for (i, call) in calls.iter().enumerate() {
            // A request over several slots keeps its place among all the others.
            let slot = if scattered { 0 } else { call.slot() };
            slots.entry(slot).or_default().push(i);
        }
        let one_slot = async |places: Vec<usize>| {
            let mut decided = Vec::with_capacity(places.len());
            for i in places {
                let verb = requests[i].0.asks();
                let decision = self.answer(Arc::clone(&calls[i]), verb).await?;
                decided.push((i, decision));
            }
            Ok::<_, Trouble>(decided)
        };
        let all = try_join_all(slots.into_values().map(one_slot)).await?;
        let mut all: Vec<(usize, Decision)> = all.into_iter().flatten().collect();
        all.sort_by_key(|(i, _)| *i);
        Ok(all.into_iter().map(|(_, decision)| decision).collect())
    }

    async fn answer(self: &Arc<Self>, call: Arc<Call>, verb: Verb) -> Result<Decision, Trouble> {
        if matches!(self.servers, Reached::Many(_)) && call.is_scattered() {
            return cross_slot::decide(self, call, verb, cross_slot::Apart::Slots).await;
        }
        match self.send(Arc::clone(&call)).await {
            Ok(answer) => Ok(call.decision(verb, answer)),
            // On its way from one server to another: each counter is at one of them.
            Err(Trouble::TryAgain) if call.len() > 1 => {
                cross_slot::decide(self, call, verb, cross_slot::Apart::Limits).await
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Sends a call to whoever holds its counters, which share a slot.
    async fn send(&self, call: Arc<Call>) -> Result<Answer, Trouble> {
        match &self.servers {
            Reached::One(link) => {
                let mut answer = link.lane().await?.decide(Arc::clone(&call)).await;
                if let Err(Trouble::Down(_)) = answer {
                    // Not sent: the connection was just replaced.
                    answer = link.lane().await?.decide(call).await;
                }
                if let Err(Trouble::ReadOnly) = answer {
                    // The master has become a replica.
                    link.distrust();
                }
                answer
            }
            // Boxed: those who wait are moved about, and should be small.
            Reached::Many(cluster) => Box::pin(cluster.decide(call)).await,
        }
    }

    /// The connections to every server that holds counters.
    async fn links(&self) -> Result<Vec<Arc<Link>>, Trouble> {
        match &self.servers {
            Reached::One(link) => Ok(vec![Arc::clone(link)]),
            Reached::Many(cluster) => cluster.masters().await,
        }
    }

    /// Finds out whether calls are worth sending, and replaces connections that are not.
    async fn probe(&self) -> Result<(), Trouble> {
        match &self.servers {
            Reached::One(link) => link.probe().await,
            Reached::Many(cluster) => cluster.probe().await,
        }
    }
}

impl Store for RedisStore {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        Ok(self.inner.decide(request, None).await?)
    }

    fn carry_out(self: &Arc<Self>, request: &Request<'_>) {
        let inner = Arc::clone(&self.inner);
        let call = Arc::new(Call::of(&inner.names, request, None));
        let verb = request.asks();
        if let Ok(runtime) = Handle::try_current() {
            // Nobody waits for it, and what is lost is not sent again.
            runtime.spawn(async move { inner.answer(call, verb).await });
        }
    }

    fn undo(self: &Arc<Self>, request: &Request<'_>, decision: &Decision) {
        let inner = Arc::clone(&self.inner);
        let calls = inner.undoing(request, decision, None);
        if let Ok(runtime) = Handle::try_current() {
            // Nobody waits for it, and what is lost is not sent again.
            runtime.spawn(async move { inner.undo(calls).await });
        }
    }

    async fn probe(&self) -> Result<(), StoreError> {
        Ok(self.inner.probe().await?)
    }

    fn count_replicas(&self) {
        self.inner.count_replicas();
    }

    fn replicas(&self) -> Option<u32> {
        self.inner.replicas.counted()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the URL nor the certificates: they hold secrets.
        f.debug_struct("RedisStoreBuilder")
            .field("namespace", &self.namespace)
            .field("batching", &self.batching)
            .finish_non_exhaustive()
    }
}
