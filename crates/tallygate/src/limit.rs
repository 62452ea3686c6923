//! Limits: named quotas.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

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

    /// The limit's own failure policy, if any.
    pub fn own_policy(&self) -> Option<OnFailure> {
        self.on_failure
    }

    /// The limit's own deadline, if any.
    pub fn own_deadline(&self) -> Option<Duration> {
        self.deadline
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

impl From<Quota> for Limit {
    fn from(quota: Quota) -> Self {
        Limit::named(quota.default_name(), quota)
    }
}
