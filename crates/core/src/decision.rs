//! The verdict of one limit, and the decision over all limits of a request.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

/// When the same request would be admitted. Its text is a wait such as `2.5s`, or `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// After this many microseconds, and not earlier.
    After(NonZeroU64),
    /// After this many microseconds at the latest: what others hold may be released earlier.
    AtMost(NonZeroU64),
    /// Never: the cost is above the capacity, or what should be renewed is gone.
    Never,
}

impl Retry {
    /// After a wait, at least one microsecond.
    #[inline]
    pub fn after_us(wait: u64) -> Self {
        Retry::After(NonZeroU64::new(wait).unwrap_or(NonZeroU64::MIN))
    }

    /// After a wait at the latest, at least one microsecond.
    #[inline]
    pub fn at_most_us(wait: u64) -> Self {
        Retry::AtMost(NonZeroU64::new(wait).unwrap_or(NonZeroU64::MIN))
    }

    /// The wait; `None` if it is `Never`.
    #[inline]
    pub fn duration(self) -> Option<Duration> {
        self.us().map(Duration::from_micros)
    }

    /// The wait in microseconds; `None` if it is `Never`.
    #[inline]
    pub fn us(self) -> Option<u64> {
        match self {
            Retry::After(us) | Retry::AtMost(us) => Some(us.get()),
            Retry::Never => None,
        }
    }

    /// Whether the request would not be admitted earlier.
    pub fn is_exact(self) -> bool {
        match self {
            Retry::After(_) | Retry::Never => true,
            Retry::AtMost(_) => false,
        }
    }

    /// Orders retries by length; `Never` is the longest.
    fn rank(self) -> (bool, u64) {
        match self.us() {
            Some(us) => (false, us),
            None => (true, 0),
        }
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.duration() {
            Some(wait) => write!(f, "{wait:?}"),
            None => f.write_str("never"),
        }
    }
}

/// Whether one limit admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It fits (or the verb never refuses).
    Admitted {
        /// Units taken; 0 for a peek, a refund, a reset, a cost of 0, or when another limit refused.
        granted: u32,
        /// The delay in a shaping queue, in microseconds.
        delay_us: u64,
    },
    /// It does not fit; nothing was charged.
    Refused {
        /// When it would.
        retry: Retry,
    },
}

impl Outcome {
    /// Admitted, and nothing was taken.
    pub(crate) const UNCHARGED: Self = Outcome::Admitted {
        granted: 0,
        delay_us: 0,
    };
}

/// The verdict of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// Admitted or refused.
    pub outcome: Outcome,
    /// The capacity: the limit of a window or log, the burst or queue of a bucket.
    pub limit: u32,
    /// The units available after this request.
    pub remaining: u32,
    /// Microseconds without requests after which the key is as if never seen.
    pub reset_after_us: u64,
}

impl Verdict {
    /// Whether it was admitted.
    #[inline]
    pub fn allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Admitted { .. })
    }

    /// Units taken.
    #[inline]
    pub fn granted(&self) -> u32 {
        match self.outcome {
            Outcome::Admitted { granted, .. } => granted,
            Outcome::Refused { .. } => 0,
        }
    }

    /// The shaping delay in microseconds.
    #[inline]
    pub fn delay_us(&self) -> u64 {
        match self.outcome {
            Outcome::Admitted { delay_us, .. } => delay_us,
            Outcome::Refused { .. } => 0,
        }
    }

    /// When to try again, if refused.
    #[inline]
    pub fn retry(&self) -> Option<Retry> {
        match self.outcome {
            Outcome::Admitted { .. } => None,
            Outcome::Refused { retry } => Some(retry),
        }
    }

    /// The wait before the same request fits; `None` if admitted or if it never can. It may be less
    /// if the retry is [not exact](Retry::is_exact).
    #[inline]
    pub fn retry_after_us(&self) -> Option<u64> {
        self.retry().and_then(Retry::us)
    }
}

/// The decision on one request over all its limits: admitted by all or charged to none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// That of the binding limit; if admitted, with the largest delay and the least grant of all.
    verdict: Verdict,
    /// `None` for a single limit, which keeps nearly every decision small.
    several: Option<Box<Several>>,
}

/// The verdicts of several limits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Several {
    binding: usize,
    verdicts: Vec<Verdict>,
}

impl Decision {
    /// Builds the decision over one limit.
    #[inline]
    pub fn from_verdict(verdict: Verdict) -> Self {
        Decision {
            verdict,
            several: None,
        }
    }

    /// Combines the verdicts of several limits, in order. If refused, the binding limit is the
    /// refusing one with the longest retry; if admitted, the one with the smallest remaining; ties
    /// go to the first. The grant is the least of all limits that were charged. No verdicts admit.
    pub fn from_verdicts(verdicts: Vec<Verdict>) -> Self {
        let charged = verdicts
            .iter()
            .map(Verdict::granted)
            .filter(|units| *units > 0);
        let granted = charged.min().unwrap_or(0);
        Self::combine(verdicts, granted)
    }

    /// Combines verdicts as [`from_verdicts`](Decision::from_verdicts), with that grant if admitted.
    pub(crate) fn combine(verdicts: Vec<Verdict>, least: u32) -> Self {
        let mut binding = 0;
        let mut delay = 0;
        for (i, verdict) in verdicts.iter().enumerate() {
            delay = delay.max(verdict.delay_us());
            if i == 0 {
                continue;
            }
            let best = &verdicts[binding];
            let binds = match (best.retry(), verdict.retry()) {
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(longest), Some(retry)) => retry.rank() > longest.rank(),
                (None, None) => verdict.remaining < best.remaining,
            };
            if binds {
                binding = i;
            }
        }
        let Some(&(mut verdict)) = verdicts.get(binding) else {
            return Decision::from_verdict(Verdict {
                outcome: Outcome::UNCHARGED,
                limit: 0,
                remaining: 0,
                reset_after_us: 0,
            });
        };
        if let Outcome::Admitted { granted, delay_us } = &mut verdict.outcome {
            *granted = least;
            *delay_us = delay;
        }
        let several = (verdicts.len() > 1).then(|| Box::new(Several { binding, verdicts }));
        Decision { verdict, several }
    }

    /// The verdict to report: that of the binding limit, with the largest delay and, of the limits
    /// that were charged, the least grant.
    #[inline]
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The position of the binding limit in the request.
    #[inline]
    pub fn binding(&self) -> usize {
        self.several.as_ref().map_or(0, |several| several.binding)
    }

    /// The verdict of every limit, in the request's order.
    #[inline]
    pub fn verdicts(&self) -> &[Verdict] {
        match &self.several {
            Some(several) => &several.verdicts,
            None => core::slice::from_ref(&self.verdict),
        }
    }
}
