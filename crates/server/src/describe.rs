//! Texts about each algorithm, and limits as text. The only file of this crate that matches on [`Algorithm`].

use tallygate::rules::{Quotas, RuleLimits};
use tallygate_core::{Algorithm, Quota};

use crate::format::{count, duration};

pub(crate) fn worst_case_formula(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::FixedWindow => "limit x (span/period, rounded up, + 1)",
        Algorithm::SlidingWindowLog => "limit x (span/period, rounded up)",
        Algorithm::SlidingWindowCounter => "limit x (1 + span/period) + 1",
        Algorithm::TokenBucket
        | Algorithm::LeakyPolicing
        | Algorithm::SharedTokenBucket
        | Algorithm::SharedLeakyPolicing => "burst + limit x span/period",
        Algorithm::Concurrent => "limit at once",
        Algorithm::LeakyShaping => "queue + limit x span/period",
    }
}

/// The rate as text: `10 per second`, `5 every 1 h 30 min`.
pub(crate) fn rate(quota: &Quota) -> String {
    every_period(quota.limit().into(), quota)
}

/// That many units every period.
pub(crate) fn every_period(units: u64, quota: &Quota) -> String {
    let limit = count(units);
    match quota.period_us() {
        1_000 => format!("{limit} per millisecond"),
        1_000_000 => format!("{limit} per second"),
        60_000_000 => format!("{limit} per minute"),
        3_600_000_000 => format!("{limit} per hour"),
        86_400_000_000 => format!("{limit} per day"),
        _ => format!("{limit} every {}", period(quota)),
    }
}

/// The exact period: `1 s`, `1 h 30 min`, or as in a quota if it needs more than two units.
pub(crate) fn period(quota: &Quota) -> String {
    let short = duration(quota.period_us());
    match short.starts_with('~') {
        true => quota.period_text(),
        false => short,
    }
}

/// The limits of a rule, each after its tier if there are tiers.
pub(crate) fn limits(limits: &RuleLimits) -> Vec<String> {
    let texts = |quotas: &Quotas| -> Vec<String> {
        let each = quotas.iter();
        each.map(|(_, quota)| quota.to_string()).collect()
    };
    match limits {
        RuleLimits::Same(quotas) => texts(quotas),
        RuleLimits::Tiered(tiered) => {
            let tiers = tiered.tiers().iter();
            tiers
                .flat_map(|(name, quotas)| {
                    let texts = texts(quotas).into_iter();
                    texts.map(move |text| format!("{name}: {text}"))
                })
                .collect()
        }
    }
}

/// How the algorithm counts, its strengths and its costs.
pub(crate) fn summary(quota: &Quota) -> String {
    let rate = rate(quota);
    let period = period(quota);
    let capacity = count(quota.capacity().into());
    let tokens = match quota.capacity() {
        1 => "1 token".to_owned(),
        _ => format!("{capacity} tokens"),
    };
    match quota.algorithm() {
        Algorithm::FixedWindow => format!(
            "Counts requests in windows of {period} aligned to the Unix epoch, in UTC; each window \
             starts at zero. Cheap and easy to explain. But a client can send the whole limit at the end of \
             one window and again at the start of the next."
        ),
        Algorithm::SlidingWindowLog => format!(
            "Stores every admitted request and counts those of the last {period}. Exact: no span \
             of {period} ever contains more than {capacity}. The cost is memory."
        ),
        Algorithm::SlidingWindowCounter => format!(
            "Keeps two counts, of the current and the previous window, and weights the previous \
             one by how much of it the last {period} still covers. No burst at a window boundary, \
             and no log. It is an estimate: a client that sends its whole limit at once every \
             {period} has some of it refused."
        ),
        Algorithm::TokenBucket => format!(
            "A bucket of {tokens}, initially full, refilled at {rate}. A request takes its cost in \
             tokens; if there are too few, it is refused at no charge. Unused tokens accumulate \
             up to the burst and can be spent at once."
        ),
        Algorithm::LeakyPolicing => format!(
            "A bucket of capacity {capacity}, initially empty, draining at {rate}. A request adds \
             its cost; if that would overflow the bucket, it is refused at no charge. The mirror \
             image of a token bucket: same numbers, same decisions."
        ),
        Algorithm::LeakyShaping => format!(
            "A queue of capacity {capacity}, the request in service included, that drains evenly \
             at {rate}. A request that fits is admitted with a delay; one that does not is \
             refused at no charge. Bursts leave as a steady flow."
        ),
        Algorithm::SharedTokenBucket | Algorithm::SharedLeakyPolicing => {
            let least = count(quota.shared_units().unwrap_or_default().into());
            format!(
                "A bucket of {capacity} at {rate} that the members of a key share by weight. A \
                 member has its part of the rate, at least {least} at once for each unit of its \
                 weight, and borrows what others leave. A greedy member cannot use up what others \
                 need."
            )
        }
        Algorithm::Concurrent => format!(
            "At most {capacity} in flight at once. An owner holds its units until it releases \
             them, or for {period} if it is not heard of again. It counts what has not ended yet: \
             slow requests, streams, jobs."
        ),
    }
}

pub(crate) struct Demo {
    /// The burst or queue of a bucket; windows and logs have none.
    pub(crate) capacity: Option<u32>,
    pub(crate) effect: &'static str,
    pub(crate) caption: &'static str,
}

pub(crate) fn demo(algorithm: Algorithm) -> Demo {
    match algorithm {
        Algorithm::FixedWindow => Demo {
            capacity: None,
            effect: "boundary burst",
            caption: "The count restarts at 1 s, so the whole limit just before it and the whole \
                      limit just after it are both admitted.",
        },
        Algorithm::SlidingWindowLog => Demo {
            capacity: None,
            effect: "exact",
            caption: "After the first ten, nothing fits until they are one second old, at 1.8 s. \
                      Never more than the limit in any second.",
        },
        Algorithm::SlidingWindowCounter => Demo {
            capacity: None,
            effect: "smoothed boundary",
            caption: "After 1 s the previous count fades instead of vanishing: capacity returns \
                      one by one. Nearly the log, at a fraction of its memory.",
        },
        Algorithm::TokenBucket => Demo {
            capacity: Some(20),
            effect: "accumulated burst",
            caption: "The bucket fills while there are no requests, so the burst at 4.1 s finds \
                      twenty tokens: twice what a window admits. In the long run still 10 per \
                      second.",
        },
        Algorithm::LeakyPolicing => Demo {
            capacity: Some(5),
            effect: "steady level",
            caption: "A small bucket that drains at 10 per second: five fit at once, then one \
                      every 100 ms. A token bucket with burst 5 decides the same.",
        },
        Algorithm::LeakyShaping => Demo {
            capacity: Some(20),
            effect: "steady drain",
            caption: "The burst is admitted but delayed: one request leaves every 100 ms. Only \
                      what does not fit into the queue is refused.",
        },
        Algorithm::SharedTokenBucket | Algorithm::SharedLeakyPolicing => Demo {
            capacity: Some(16),
            effect: "fair shares",
            caption: "Each has half of the rate. The light tenant asks for less and gets all of it; \
                      the greedy one gets the rest, and the whole bucket whenever it is alone.",
        },
        Algorithm::Concurrent => Demo {
            capacity: None,
            effect: "in flight",
            caption: "Counts what has not ended yet: never more than 4 at once.",
        },
    }
}
