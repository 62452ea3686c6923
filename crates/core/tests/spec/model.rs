//! A slow model of the specification (verbs, sections 2 and 3). Shares no arithmetic with the core.

pub(crate) mod callers;
mod counter;

use tallygate_core::{Algorithm, Quota, Retry, Verb};

pub(crate) use counter::ModelState;

/// The maximum time, wait and number of units: 2^52.
pub(crate) const MAX: u128 = 1 << 52;

/// The numbers of a quota, wide enough for any product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WideQuota {
    pub(crate) algorithm: Algorithm,
    pub(crate) limit: u128,
    pub(crate) period: u128,
    pub(crate) capacity: u128,
}

impl From<&Quota> for WideQuota {
    fn from(quota: &Quota) -> Self {
        WideQuota {
            algorithm: quota.algorithm(),
            limit: quota.limit().into(),
            period: quota.period_us().into(),
            capacity: quota.capacity().into(),
        }
    }
}

impl WideQuota {
    /// The period of a window or log, a full drain of a bucket, rounded up.
    pub(crate) fn span(&self) -> u128 {
        match self.algorithm {
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter => self.period,
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                (self.capacity * self.period).div_ceil(self.limit)
            }
            other => unreachable!("{other:?} has a model of its own"),
        }
    }
}

/// All fields of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelVerdict {
    pub(crate) retry: Option<Retry>,
    pub(crate) granted: u128,
    pub(crate) limit: u128,
    pub(crate) remaining: u128,
    pub(crate) reset_after: u128,
    pub(crate) delay: u128,
}

/// A counter at the effective time of a request (section 2).
struct View {
    quota: WideQuota,
    state: ModelState,
    /// The effective time.
    now: u128,
    /// How far the time of the request is behind it.
    lag: u128,
}

impl View {
    fn new(quota: WideQuota, state: &ModelState, t: u128) -> Self {
        let mut view = View {
            quota,
            state: state.convert_to(&quota),
            now: t,
            lag: 0,
        };
        if let Some(mark) = state.mark()
            && t < mark
        {
            if mark - t > quota.span() {
                view.state = ModelState::New;
            } else {
                view.now = mark;
                view.lag = mark - t;
            }
        }
        view
    }

    /// A wait from the time of the request.
    fn wait(&self, d: u128) -> u128 {
        if d == 0 { 0 } else { d + self.lag }
    }

    fn retry(&self, cost: u128) -> Retry {
        let d = earliest(|d| self.state.fits(&self.quota, cost, self.now + d));
        Retry::after_us(self.wait(d).try_into().unwrap())
    }

    fn delay(&self) -> u128 {
        self.wait(self.state.delay(&self.quota, self.now))
    }

    /// The verdict of this state.
    fn verdict(&self, retry: Option<Retry>, granted: u128, delay: u128) -> ModelVerdict {
        let reset = earliest(|d| self.state.as_new(&self.quota, self.now + d));
        ModelVerdict {
            retry,
            granted,
            limit: self.quota.capacity,
            remaining: self.state.available(&self.quota, self.now),
            reset_after: self.wait(reset),
            delay,
        }
    }

    /// Takes units and stores the new state.
    fn take(&mut self, units: u128, stored: &mut ModelState) {
        self.state = self.state.take(&self.quota, units, self.now);
        *stored = self.state.clone();
    }
}

/// The shortest wait after which a condition holds. It must stay true.
pub(crate) fn earliest(holds: impl Fn(u128) -> bool) -> u128 {
    if holds(0) {
        return 0;
    }
    let (mut no, mut yes) = (0, 1);
    while !holds(yes) {
        (no, yes) = (yes, yes * 2);
    }
    while yes - no > 1 {
        let middle = u128::midpoint(no, yes);
        if holds(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    yes
}

/// Decides one request over several counters with a cost each. Returns a verdict per counter.
pub(crate) fn decide(
    limits: &mut [(WideQuota, &mut ModelState, u32)],
    verb: Verb,
    t: u64,
) -> Vec<ModelVerdict> {
    let t = u128::from(t).min(MAX);
    let costs: Vec<u128> = limits.iter().map(|(.., cost)| (*cost).into()).collect();
    let views = limits.iter().map(|(quota, m, _)| View::new(*quota, m, t));
    let mut views: Vec<View> = views.collect();

    let refusal = |(s, &cost): (&View, &u128)| match verb {
        _ if cost == 0 => None,
        Verb::Check | Verb::Peek if cost > s.quota.capacity => Some(Retry::Never),
        Verb::Check | Verb::Peek if !s.state.fits(&s.quota, cost, s.now) => Some(s.retry(cost)),
        Verb::Take if !s.state.fits(&s.quota, 1, s.now) => Some(s.retry(1)),
        _ => None,
    };
    let refusals: Vec<Option<Retry>> = views.iter().zip(&costs).map(refusal).collect();
    if verb == Verb::Peek || refusals.iter().any(Option::is_some) {
        let untouched = |((s, &retry), &cost): ((&View, &Option<Retry>), &u128)| {
            let waits = retry.is_none() && cost > 0;
            s.verdict(retry, 0, if waits { s.delay() } else { 0 })
        };
        let each = views.iter().zip(&refusals).zip(&costs);
        return each.map(untouched).collect();
    }

    // A take grants what every charged limit has available.
    let charged = views.iter().zip(&costs).filter(|(_, cost)| **cost > 0);
    let least = charged.map(|(s, &cost)| s.state.available(&s.quota, s.now).min(cost));
    let least = least.min().unwrap_or(0);
    let mut verdicts = Vec::new();
    for ((view, (_, stored, _)), cost) in views.iter_mut().zip(limits).zip(costs) {
        if cost == 0 && verb != Verb::Reset {
            verdicts.push(view.verdict(None, 0, 0));
            continue;
        }
        let granted = match verb {
            Verb::Check | Verb::Charge => cost,
            Verb::Take => least,
            _ => 0,
        };
        let delay = match verb {
            Verb::Check | Verb::Take | Verb::Charge => view.delay(),
            _ => 0,
        };
        match verb {
            Verb::Check | Verb::Take | Verb::Charge => view.take(granted, stored),
            Verb::Refund => {
                if let Some(refunded) = view.state.refund(&view.quota, cost, view.now) {
                    view.state = refunded;
                    **stored = view.state.clone();
                }
            }
            Verb::Reset => {
                view.state = ModelState::New;
                **stored = ModelState::New;
            }
            _ => {}
        }
        verdicts.push(view.verdict(None, granted, delay));
    }
    verdicts
}

/// The index of the binding limit and the verdict of the whole request.
pub(crate) fn bind(verdicts: &[ModelVerdict]) -> (usize, ModelVerdict) {
    let longest = |retry: Option<Retry>| match retry {
        None => -1,
        Some(Retry::After(us) | Retry::AtMost(us)) => i128::from(us.get()),
        Some(Retry::Never) => i128::MAX,
    };
    let refused = verdicts.iter().any(|a| a.retry.is_some());
    let mut binding = 0;
    for (i, a) in verdicts.iter().enumerate() {
        let best = &verdicts[binding];
        let binds = if refused {
            longest(a.retry) > longest(best.retry)
        } else {
            a.remaining < best.remaining
        };
        if binds {
            binding = i;
        }
    }
    let mut combined = verdicts[binding];
    if !refused {
        combined.delay = verdicts.iter().map(|a| a.delay).max().unwrap();
        let charged = verdicts
            .iter()
            .map(|a| a.granted)
            .filter(|units| *units > 0);
        combined.granted = charged.min().unwrap_or(0);
    }
    (binding, combined)
}
