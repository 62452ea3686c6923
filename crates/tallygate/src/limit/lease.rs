//! The settings of leases.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use tallygate_core::{Quota, StateSize};

use crate::error::debug_is_display;

/// How units are taken ahead; see [`Limit::lease`](crate::Limit::lease).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseSettings {
    /// The most units that one process takes ahead for one key,
    /// [at least 2](LeaseSettings::MIN_UNITS). By default only the share bounds it: a fourth of what
    /// is available, divided by the number of processes.
    pub max: Option<u32>,
    /// How long units are held before those left are returned: 1 s by default, from
    /// [10 ms](LeaseSettings::MIN_HOLD) to [1 min](LeaseSettings::MAX_HOLD). Units that nobody uses
    /// are returned after half of it.
    pub hold: Duration,
    /// Whether only hot keys are leased: those that this process checks at least
    /// [64 times](LeaseSettings::HOT_CHECKS) in one `hold`. By default
    /// [4 times](LeaseSettings::MIN_CHECKS) suffice: to take and to return a lease are two calls.
    pub hot_only: bool,
}

impl LeaseSettings {
    /// The minimum of `max`: a lease of one unit is an ordinary check.
    pub const MIN_UNITS: u32 = 2;
    /// The minimum of `hold`.
    pub const MIN_HOLD: Duration = Duration::from_millis(10);
    /// The maximum of `hold`.
    pub const MAX_HOLD: Duration = Duration::from_secs(60);
    /// The checks in one `hold` that make a key worth a lease.
    pub const MIN_CHECKS: u32 = 4;
    /// The checks in one `hold` that make a key hot.
    pub const HOT_CHECKS: u32 = 64;

    /// Sets the most units that one process takes ahead for one key.
    #[must_use]
    pub const fn max(mut self, units: u32) -> Self {
        self.max = Some(units);
        self
    }

    /// Sets how long units are held.
    #[must_use]
    pub const fn hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// Leases only hot keys.
    #[must_use]
    pub const fn hot_only(mut self) -> Self {
        self.hot_only = true;
        self
    }

    /// Checks the settings for limits of a quota.
    ///
    /// # Errors
    /// If the quota shapes, is shared or concurrent, or a setting is out of its bounds.
    pub fn validate(&self, quota: &Quota) -> Result<(), LeaseError> {
        let problem = if quota.algorithm().is_shaping() {
            format!("`{quota}` delays requests: what they take cannot be leased")
        } else if quota.algorithm().state_size() == StateSize::Callers {
            format!("`{quota}` tells callers apart: what one takes cannot be leased")
        } else if let Some(max) = self.max
            && max < Self::MIN_UNITS
        {
            format!("a lease of at most {max} is below {}", Self::MIN_UNITS)
        } else if self.hold < Self::MIN_HOLD {
            format!("a hold of {:?} is below {:?}", self.hold, Self::MIN_HOLD)
        } else if self.hold > Self::MAX_HOLD {
            format!("a hold of {:?} is above {:?}", self.hold, Self::MAX_HOLD)
        } else {
            return Ok(());
        };
        Err(LeaseError { problem })
    }

    #[cfg(feature = "redis")]
    pub(crate) fn hold_us(&self) -> u64 {
        u64::try_from(self.hold.as_micros()).unwrap_or(u64::MAX)
    }

    /// The checks in one `hold` that make a counter worth a lease.
    #[cfg(feature = "redis")]
    pub(crate) fn threshold(&self) -> u32 {
        match self.hot_only {
            true => Self::HOT_CHECKS,
            false => Self::MIN_CHECKS,
        }
    }
}

impl Default for LeaseSettings {
    fn default() -> Self {
        LeaseSettings {
            max: None,
            hold: Duration::from_secs(1),
            hot_only: false,
        }
    }
}

/// Why a limit cannot be leased.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseError {
    problem: String,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

debug_is_display!(LeaseError);

impl Error for LeaseError {}
