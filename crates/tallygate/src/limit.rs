//! A quota under a name. Knows nothing of who is limited.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tallygate_core::Quota;

use crate::failure::OnFailure;

/// A quota and the name its counters go by.
///
/// A counter is known by its key and its limit's name. Unless given one, a limit is named after
/// its behaviour and period, so that a changed limit or burst keeps the count of every key. A
/// name whose quota changes its behaviour or period starts new counters.
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
    /// None: the limiter's.
    on_failure: Option<OnFailure>,
    deadline: Option<Duration>,
    /// What a counter's name in a store outside this process ends with.
    #[cfg(feature = "redis")]
    suffix: Arc<[u8]>,
}

impl Limit {
    /// Gives a quota a name.
    pub fn named(name: impl AsRef<str>, quota: Quota) -> Self {
        let name = name.as_ref();
        // Not keyed: names come from whoever sets the limits, and every store adds its own key.
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

    /// Says what this limit answers when the store does not, whatever the limiter's policy. It
    /// changes no counter.
    ///
    /// Where the limits of one request differ, one that is closed refuses; those that are local
    /// are counted together in this process, all or nothing; those that are open admit.
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

    /// Sets how long the store may take to answer a request with this limit, whatever the
    /// limiter's deadline. The least of a request's limits holds.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The policy of its own, if it has one.
    pub fn own_policy(&self) -> Option<OnFailure> {
        self.on_failure
    }

    /// The deadline of its own, if it has one.
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

    /// Stands for the name, the behaviour and the period.
    #[inline]
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Stands for the same where counters have names.
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
