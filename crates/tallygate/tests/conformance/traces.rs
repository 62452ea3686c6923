//! Random traces over many keys, several limits per request, and all verbs.

use tallygate::{Decision, Key, Limit, Request, Retry, Verb};

use super::TestStore;
use super::oracle::{Oracle, difference};
use tallygate_testkit::{any, with_each_seed};

/// A time in 2023 at the start of an hour.
pub(super) const T0: u64 = 1_699_999_200_000_000;
const SECOND: u64 = 1_000_000;
/// With 15 limits, 360 counters.
const KEYS: u32 = 24;
/// Small, slow, fast and uneven ones; no two with the same behaviour and period.
const QUOTAS: [&str; 12] = [
    "fixed-window 3/ms",
    "fixed-window 1000000/d",
    "sliding-window-log 4/2ms",
    "sliding-window-log 50/s",
    "5/ms",
    "7/min",
    "token-bucket 5/ms burst 3",
    "token-bucket 1000000000/30d burst 1000000",
    "leaky-bucket 3/7ms burst 4",
    "leaky-bucket 10/h burst 1",
    "leaky-bucket 3/ms queue 5",
    "leaky-bucket 7/3s queue 9",
];
const COSTS: [u32; 10] = [0, 1, 1, 1, 2, 3, 5, 9, 1_000_000, u32::MAX];

pub(super) fn limits() -> Vec<Limit> {
    let plain = QUOTAS.iter().map(|text| Limit::from(quota(text)));
    // The same quota under another name is another counter.
    let named = QUOTAS
        .iter()
        .take(3)
        .map(|text| Limit::named("other", quota(text)));
    plain.chain(named).collect()
}

fn quota(text: &str) -> tallygate::Quota {
    text.parse().unwrap()
}

fn any_key(rng: &mut fastrand::Rng) -> Key<'static> {
    let n = rng.u32(..KEYS);
    match n % 4 {
        0 => Key::from(n.to_string()),
        1 => Key::from_parts(["part", &n.to_string()]),
        2 => Key::from(n.to_le_bytes().to_vec()),
        _ => Key::from_parts([n.to_string(), String::new()]),
    }
}

/// A request with one to four limits, mostly one. With several, some have their own costs.
pub(super) fn any_request<'a>(rng: &mut fastrand::Rng, limits: &'a [Limit]) -> Request<'a> {
    let verbs = [
        Verb::Check,
        Verb::Check,
        Verb::Check,
        Verb::Take,
        Verb::Peek,
    ];
    let verb = match rng.u32(..10) {
        0..7 => any(rng, &verbs),
        7 => Verb::Charge,
        8 => Verb::Refund,
        _ => Verb::Reset,
    };
    // With a debt of years, a key would be refused for the rest of the trace.
    let costs = match verb {
        Verb::Charge => &COSTS[..8],
        _ => &COSTS[..],
    };
    let mut request = Request::new(any_key(rng), &limits[rng.usize(..limits.len())]);
    let more = any(rng, &[0, 0, 0, 1, 2, 3]);
    let own_costs = rng.bool();
    for _ in 0..more {
        let (key, limit) = (any_key(rng), &limits[rng.usize(..limits.len())]);
        let longer = if own_costs && rng.u8(..4) > 0 {
            request.clone().and_cost(key, limit, any(rng, costs))
        } else {
            request.clone().and(key, limit)
        };
        // A request cannot contain the same counter twice.
        request = longer.unwrap_or(request);
    }
    request.verb(verb).cost(any(rng, costs))
}

/// The same time, a little later, or near a boundary of the last decision.
pub(super) fn later(rng: &mut fastrand::Rng, now: u64, last: Option<&Decision>) -> u64 {
    let (retry, reset) = last.map_or((0, 0), |decision| {
        let retry = decision.retry_after().and_then(Retry::duration);
        (
            retry.unwrap_or_default().as_micros() as u64,
            decision.reset_after().as_micros() as u64,
        )
    });
    let near_boundary =
        |rng: &mut fastrand::Rng, wait: u64| (wait + rng.u64(..3)).saturating_sub(1);
    // Not years away: that would expire all other counters.
    let if_near = |wait: u64| if wait < 10 * SECOND { wait } else { 0 };
    now + match rng.u32(..10) {
        0..3 => 0,
        3 => 1,
        4 => near_boundary(rng, if_near(retry)),
        5 => near_boundary(rng, if_near(reset)),
        6..9 => rng.u64(..1_500),
        _ => rng.u64(..2 * SECOND),
    }
}

pub(super) fn run<'a>(
    store: &mut impl TestStore,
    steps: usize,
    mut next: impl FnMut(Option<&Decision>, u64) -> (Request<'a>, u64),
) {
    let mut oracle = Oracle::default();
    let mut last = None;
    let mut now = T0;
    for step in 0..steps {
        let (mut request, at) = next(last.as_ref(), now);
        now = at;
        let rolled_back = store.rolls_back() && oracle.was_rolled_back_later(&request, now);
        if rolled_back || oracle.may_be_expired(&request, now) {
            // Delete the counters in both.
            request = request.verb(Verb::Reset);
        } else if oracle.may_have_forgotten(&request, now) {
            request = request.verb(Verb::Peek);
        }
        let actual = store.decide(&request, now);
        let expected = oracle.decide(&request, now);
        if let Some(difference) = difference(&actual, &expected) {
            panic!("step {step} at {now}: {request:?}\n{difference}");
        }
        last = Some(actual);
    }
}

/// Time moves forward.
pub(crate) fn random_traces_are_decided_exactly<D: TestStore>(fresh: impl Fn() -> D) {
    let limits = limits();
    with_each_seed(|rng| {
        let next =
            |last: Option<&Decision>, now| (any_request(rng, &limits), later(rng, now, last));
        let mut store = fresh();
        let steps = store.steps();
        run(&mut store, steps, next);
    });
}

/// A request on a limit at each of some times, each once or twice, after a reset.
fn repeated<'a>(
    rng: &mut fastrand::Rng,
    limit: &'a Limit,
    requests: impl IntoIterator<Item = (Verb, u64)>,
) -> Vec<(Request<'a>, u64)> {
    let mut steps = Vec::new();
    for (verb, t) in requests {
        for _ in 0..rng.u8(1..3) {
            let request = Request::new("pairs", limit).verb(verb);
            steps.push((request.cost(rng.u32(1..4)), t));
        }
    }
    let (_, first) = &steps[0];
    steps.insert(0, (Request::new("pairs", limit).verb(Verb::Reset), *first));
    steps
}

/// Every pair of verbs on every limit, with a step back between.
fn pairs_of_verbs<'a>(rng: &mut fastrand::Rng, limits: &'a [Limit]) -> Vec<(Request<'a>, u64)> {
    let mut steps = Vec::new();
    let mut t = T0;
    for limit in limits {
        let span = limit.quota().span_us();
        for (first, second) in Verb::BASIC
            .iter()
            .flat_map(|&first| Verb::BASIC.map(|second| (first, second)))
        {
            t += 10 * span;
            let back = [0, 1, span / 2, span - 1, span, span + 1, 2 * span - 1];
            let times = [(); 3].map(|()| t - any(rng, &back));
            let requests = [Verb::Charge, first, second, Verb::Charge];
            let times = [t, times[0], times[1], times[2]];
            steps.extend(repeated(rng, limit, requests.into_iter().zip(times)));
        }
    }
    steps
}

/// Time steps back between every pair of verbs. Then it mostly moves forward, and sometimes back by a
/// little, by a span, or by 20 seconds.
pub(crate) fn clock_steps_back_are_decided_exactly<D: TestStore>(fresh: impl Fn() -> D) {
    let limits = limits();
    with_each_seed(|rng| {
        let steps = pairs_of_verbs(rng, &limits);
        let mut steps = steps.into_iter();
        run(&mut fresh(), steps.len(), |_, _| steps.next().unwrap());

        let next = |last: Option<&Decision>, now: u64| {
            let request = any_request(rng, &limits);
            let span = request.entries()[0].limit.quota().span_us();
            let now = match rng.u32(..100) {
                0..8 => now - 1,
                8..12 => now - rng.u64(..2_000),
                12..14 if span < 10 * SECOND => now - span,
                14..16 if span < 10 * SECOND => now - span - 1,
                16 => now - 20 * SECOND,
                _ => later(rng, now, last),
            };
            (request, now)
        };
        let mut store = fresh();
        let steps = store.steps();
        run(&mut store, steps, next);
    });
}

/// Times above the maximum count as the maximum; time 0 is valid.
pub(crate) fn extreme_times_are_decided_exactly<D: TestStore>(fresh: impl Fn() -> D) {
    const LAST: u64 = 1 << 52;
    let beginning = [0, 0, 1, 999, 1_000, 1_001, SECOND];
    let end = [
        LAST - 1,
        LAST,
        LAST,
        LAST + 1,
        1 << 54,
        u64::MAX - 1,
        u64::MAX,
    ];
    let limits = limits();
    with_each_seed(|rng| {
        for times in [beginning, end] {
            let next = |_: Option<&Decision>, now| {
                let i = if now == T0 {
                    0
                } else {
                    rng.usize(..times.len())
                };
                // Forward only: all times above the maximum are the same.
                let at = times[i].max(if now == T0 { 0 } else { now });
                (any_request(rng, &limits), at)
            };
            let mut store = fresh();
            let steps = store.steps() / 3;
            run(&mut store, steps, next);
        }
    });
}
