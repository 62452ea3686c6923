//! A slow model of the specification (verbs, sections 2 and 3). Shares no arithmetic with the crate.

mod memory;

use tallygate_core::{Algorithm, Quota, Retry, Verb};

pub(crate) use memory::Memory;

/// The latest time, the longest wait and the most units: 2^52.
pub(crate) const TOP: u128 = 1 << 52;

/// A quota's numbers, wide enough for any product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) algorithm: Algorithm,
    pub(crate) limit: u128,
    pub(crate) period: u128,
    pub(crate) capacity: u128,
}

impl From<&Quota> for Terms {
    fn from(quota: &Quota) -> Self {
        Terms {
            algorithm: quota.algorithm(),
            limit: quota.limit().into(),
            period: quota.period_us().into(),
            capacity: quota.capacity().into(),
        }
    }
}

impl Terms {
    /// The period of a window or log, a full drain of a bucket, rounded up.
    pub(crate) fn span(&self) -> u128 {
        match self.algorithm {
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter => self.period,
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                (self.capacity * self.period).div_ceil(self.limit)
            }
        }
    }
}

/// Every figure of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) retry: Option<Retry>,
    pub(crate) granted: u128,
    pub(crate) limit: u128,
    pub(crate) remaining: u128,
    pub(crate) reset_after: u128,
    pub(crate) delay: u128,
}

/// One counter as a request at one time finds it: section 2 applied.
struct Sight {
    terms: Terms,
    memory: Memory,
    /// When it is decided.
    now: u128,
    /// How far the caller's time lies behind that.
    lag: u128,
}

impl Sight {
    fn new(terms: Terms, memory: &Memory, t: u128) -> Self {
        let mut sight = Sight {
            terms,
            memory: memory.under(&terms),
            now: t,
            lag: 0,
        };
        if let Some(mark) = memory.mark()
            && t < mark
        {
            if mark - t > terms.span() {
                sight.memory = Memory::New;
            } else {
                sight.now = mark;
                sight.lag = mark - t;
            }
        }
        sight
    }

    /// Counts a wait from the caller's time.
    fn wait(&self, d: u128) -> u128 {
        if d == 0 { 0 } else { d + self.lag }
    }

    fn retry(&self, cost: u128) -> Retry {
        let d = earliest(|d| self.memory.fits(&self.terms, cost, self.now + d));
        Retry::after_us(self.wait(d).try_into().unwrap())
    }

    fn delay(&self) -> u128 {
        self.wait(self.memory.delay(&self.terms, self.now))
    }

    /// The answer of a counter in this condition.
    fn answer(&self, retry: Option<Retry>, granted: u128, delay: u128) -> Answer {
        let reset = earliest(|d| self.memory.as_new(&self.terms, self.now + d));
        Answer {
            retry,
            granted,
            limit: self.terms.capacity,
            remaining: self.memory.room(&self.terms, self.now),
            reset_after: self.wait(reset),
            delay,
        }
    }

    /// Takes units and writes the outcome down.
    fn take(&mut self, units: u128, stored: &mut Memory) {
        self.memory = self.memory.take(&self.terms, units, self.now);
        *stored = self.memory.clone();
    }
}

/// The least wait after which something that stays true is true.
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

/// Decides one request over several counters, each with a cost of its own: each one's answer.
pub(crate) fn decide(limits: &mut [(Terms, &mut Memory, u32)], verb: Verb, t: u64) -> Vec<Answer> {
    let t = u128::from(t).min(TOP);
    let costs: Vec<u128> = limits.iter().map(|(.., cost)| (*cost).into()).collect();
    let sights = limits.iter().map(|(terms, m, _)| Sight::new(*terms, m, t));
    let mut sights: Vec<Sight> = sights.collect();

    let refusal = |(s, &cost): (&Sight, &u128)| match verb {
        _ if cost == 0 => None,
        Verb::Check | Verb::Peek if cost > s.terms.capacity => Some(Retry::Never),
        Verb::Check | Verb::Peek if !s.memory.fits(&s.terms, cost, s.now) => Some(s.retry(cost)),
        Verb::Take if !s.memory.fits(&s.terms, 1, s.now) => Some(s.retry(1)),
        _ => None,
    };
    let refusals: Vec<Option<Retry>> = sights.iter().zip(&costs).map(refusal).collect();
    if verb == Verb::Peek || refusals.iter().any(Option::is_some) {
        let untouched = |((s, &retry), &cost): ((&Sight, &Option<Retry>), &u128)| {
            let waits = retry.is_none() && cost > 0;
            s.answer(retry, 0, if waits { s.delay() } else { 0 })
        };
        let each = sights.iter().zip(&refusals).zip(&costs);
        return each.map(untouched).collect();
    }

    // What a take gives to each: what every limit that is charged at all can give.
    let charged = sights.iter().zip(&costs).filter(|(_, cost)| **cost > 0);
    let least = charged.map(|(s, &cost)| s.memory.room(&s.terms, s.now).min(cost));
    let least = least.min().unwrap_or(0);
    let mut answers = Vec::new();
    for ((sight, (_, stored, _)), cost) in sights.iter_mut().zip(limits).zip(costs) {
        if cost == 0 && verb != Verb::Reset {
            answers.push(sight.answer(None, 0, 0));
            continue;
        }
        let granted = match verb {
            Verb::Check | Verb::Charge => cost,
            Verb::Take => least,
            Verb::Peek | Verb::Refund | Verb::Reset => 0,
        };
        let delay = match verb {
            Verb::Check | Verb::Take | Verb::Charge => sight.delay(),
            Verb::Peek | Verb::Refund | Verb::Reset => 0,
        };
        match verb {
            Verb::Check | Verb::Take | Verb::Charge => sight.take(granted, stored),
            Verb::Refund => {
                let given = sight.memory.give_back(&sight.terms, cost, sight.now);
                sight.memory = given;
                **stored = sight.memory.clone();
            }
            Verb::Reset => {
                sight.memory = Memory::New;
                **stored = Memory::New;
            }
            Verb::Peek => {}
        }
        answers.push(sight.answer(None, granted, delay));
    }
    answers
}

/// The binding limit's position and the figures of the whole request.
pub(crate) fn bind(answers: &[Answer]) -> (usize, Answer) {
    let longest = |retry: Option<Retry>| match retry {
        None => -1,
        Some(Retry::After(us)) => i128::from(us.get()),
        Some(Retry::Never) => i128::MAX,
    };
    let refused = answers.iter().any(|a| a.retry.is_some());
    let mut binding = 0;
    for (i, a) in answers.iter().enumerate() {
        let best = &answers[binding];
        let binds = if refused {
            longest(a.retry) > longest(best.retry)
        } else {
            a.remaining < best.remaining
        };
        if binds {
            binding = i;
        }
    }
    let mut whole = answers[binding];
    if !refused {
        whole.delay = answers.iter().map(|a| a.delay).max().unwrap();
        let charged = answers.iter().map(|a| a.granted).filter(|units| *units > 0);
        whole.granted = charged.min().unwrap_or(0);
    }
    (binding, whole)
}
