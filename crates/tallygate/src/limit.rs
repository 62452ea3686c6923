//! Limits: named quotas.

mod lease;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

pub use lease::{LeaseError, LeaseSettings};
use tallygate_core::Quota;

use crate::failure::OnFailure;

/// A quota and the name of its counters.
///
/// A counter is identified by its key and its limit's name. The default name consists of behaviour
/// and period, so that a changed limit or burst keeps the count of every key. If the behaviour or
/// the period of a name's quota changes, new counters are started.
///
/// ```
/// use tallygate::{Limit, Quota};
///
/// let limit = Limit::from(Quota::per_minute(100));
/// assert_eq!(limit.name(), "sliding-window-counter/min");
/// let login = Limit::named("login", Quota::per_minute(5));
/// assert_eq!(login.name(), "login");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    quota: Quota,
    name: Arc<str>,
    fingerprint: u64,
    /// `None`: the engine's policy.
    on_failure: Option<OnFailure>,
    deadline: Option<Duration>,
    partition: Partition,
    lease: Option<LeaseSettings>,
    /// The end of a counter's name in Redis.
    #[cfg(feature = "redis")]
    suffix: Arc<[u8]>,
}

impl Limit {
    /// Creates a limit with a name.
    pub fn named(name: impl AsRef<str>, quota: Quota) -> Self {
        let name = name.as_ref();
        // A fixed seed: names come from the operator, not from clients, and stores seed their own hashes.
        let mut hasher = foldhash::quality::FixedState::default().build_hasher();
        hasher.write(name.as_bytes());
        hasher.write_usize(name.len());
        hasher.write(quota.algorithm().behaviour().as_bytes());
        hasher.write_u64(quota.period_us());
        Limit {
            quota,
            name: name.into(),
            fingerprint: hasher.finish(),
            on_failure: None,
            deadline: None,
            partition: Partition::default(),
            lease: None,
            #[cfg(feature = "redis")]
            suffix: crate::store::suffix(name, &quota),
        }
    }

    /// Sets what is decided when the store fails, instead of the engine's policy. Does not change
    /// counters.
    ///
    /// If the limits of one request have different policies: a closed one refuses; local ones are
    /// counted together in this process, all or nothing; open ones admit.
    ///
    /// ```
    /// use tallygate::{Limit, OnFailure, Quota};
    ///
    /// let login = Limit::named("login", Quota::per_minute(5)).on_failure(OnFailure::Closed);
    /// ```
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = Some(policy);
        self
    }

    /// Sets the deadline of the store for requests with this limit, instead of the engine's. The
    /// shortest deadline of a request's limits applies.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the partition of a [`MemoryStore`](crate::MemoryStore) that holds the limit's counters.
    /// Other stores ignore it. It is no part of a counter's name, but a limit that moves to another
    /// partition starts new counters there.
    ///
    /// ```
    /// use tallygate::{Limit, MemoryStore, Partition, Quota};
    ///
    /// let store = MemoryStore::builder().capacity(100_000).partitions([20_000]).build();
    /// let per_token = Limit::named("token", Quota::per_minute(60)).partition(Partition::new(1));
    /// assert_eq!(store.partition_capacity(per_token.own_partition()), 20_000);
    /// ```
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = partition;
        self
    }

    /// Lets every process take units of the limit's counters ahead and spend them without asking the
    /// store. Stores in this process ignore it. It is no part of a counter's name.
    ///
    /// Units are debited before they are spent, so that windows keep their worst case; a token
    /// bucket, a policing leaky bucket and a log may admit a fourth of their capacity more. The
    /// figures of such [decisions](crate::Decision::leased) are estimates.
    ///
    /// # Errors
    /// If the limit [shapes](Quota::algorithm), or a setting is out of its bounds.
    ///
    /// ```
    /// use tallygate::{LeaseSettings, Limit, Quota};
    ///
    /// let limit = Limit::named("tenant", Quota::per_minute(100_000));
    /// assert!(limit.lease(LeaseSettings::default()).is_ok());
    /// let shaped = Limit::from("leaky-bucket 10/s queue 20".parse::<Quota>()?);
    /// assert!(shaped.lease(LeaseSettings::default()).is_err());
    /// # Ok::<(), tallygate::QuotaError>(())
    /// ```
    pub fn lease(mut self, settings: LeaseSettings) -> Result<Self, LeaseError> {
        settings.validate(&self.quota)?;
        self.lease = Some(settings);
        Ok(self)
    }

    /// The settings of leases, if units may be taken ahead.
    #[inline]
    pub fn own_lease(&self) -> Option<LeaseSettings> {
        self.lease
    }

    /// The limit's own failure policy, if any.
    pub fn own_policy(&self) -> Option<OnFailure> {
        self.on_failure
    }

    /// The limit's own deadline, if any.
    pub fn own_deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// The partition of the limit's counters; the common one by default.
    #[inline]
    pub fn own_partition(&self) -> Partition {
        self.partition
    }

    /// The quota.
    #[inline]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A hash of the name, the behaviour and the period.
    #[inline]
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The end of a counter's name in Redis: limit name, behaviour and period.
    #[cfg(feature = "redis")]
    pub(crate) fn suffix(&self) -> &[u8] {
        &self.suffix
    }
}

/// A part of a [`MemoryStore`](crate::MemoryStore) with its own slots: keys of other partitions
/// cannot take them.
///
/// The default is the common partition, which every store has. A store without the partition of a
/// limit uses the common one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u16);

impl Partition {
    /// A partition by its index. 0 is the common one; the others are numbered from 1 in the order
    /// of [`MemoryStoreBuilder::partitions`](crate::store::MemoryStoreBuilder::partitions).
    pub const fn new(index: u16) -> Self {
        Partition(index)
    }

    /// The index.
    #[inline]
    pub const fn index(self) -> u16 {
        self.0
    }
}

impl From<Quota> for Limit {
    fn from(quota: Quota) -> Self {
        Limit::named(quota.default_name(), quota)
    }
}
