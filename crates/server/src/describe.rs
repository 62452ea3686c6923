//! What people are told of each behaviour: in words. Words differ by
//! algorithm, so this file matches on it; nothing else in this crate does.

use tallygate_core::{Algorithm, Quota};

use crate::format::{count, duration};

/// The worst case as a formula.
pub(crate) fn worst_case_formula(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::FixedWindow => "limit x (span/period, rounded up, + 1)",
        Algorithm::SlidingWindowLog => "limit x (span/period, rounded up)",
        Algorithm::SlidingWindowCounter => "limit x (1 + span/period) + 1",
        Algorithm::TokenBucket | Algorithm::LeakyPolicing => "burst + limit x span/period",
        Algorithm::LeakyShaping => "queue + limit x span/period",
    }
}

/// The rate in words: `10 a second`, `5 every 1 h 30 min`.
pub(crate) fn rate(quota: &Quota) -> String {
    let limit = count(quota.limit().into());
    match quota.period_us() {
        1_000 => format!("{limit} a millisecond"),
        1_000_000 => format!("{limit} a second"),
        60_000_000 => format!("{limit} a minute"),
        3_600_000_000 => format!("{limit} an hour"),
        86_400_000_000 => format!("{limit} a day"),
        _ => format!("{limit} every {}", period(quota)),
    }
}

/// The period for people, exact: `1 s`, `1 h 30 min`, or as quotas write it when it takes more
/// than two units.
pub(crate) fn period(quota: &Quota) -> String {
    let short = duration(quota.period_us());
    if !short.starts_with('~') {
        return short;
    }
    quota.period_text()
}

/// How it counts, what it is good at and what it costs.
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
            "Counts requests in windows of {period} that follow the clock, and forgets the count \
             when the next one starts. Cheap, and easy to explain to a customer. But a client can \
             send everything at the end of one window and again at the start of the next."
        ),
        Algorithm::SlidingWindowLog => format!(
            "Remembers every request it let in and counts those of the last {period}. Exact: no \
             span of {period} ever holds more than {capacity}. The price is memory."
        ),
        Algorithm::SlidingWindowCounter => format!(
            "Keeps two counts, this window's and the last one's, and weighs the last one by how \
             much of it the past {period} still covers. No burst at the edge of a window, and no \
             log to keep. It estimates: a client that sends its whole limit at once every \
             {period} is refused some of it."
        ),
        Algorithm::TokenBucket => format!(
            "A bucket of {tokens}, full at first, refilled at {rate}. A request takes \
             its cost in tokens, and is refused at no charge when there are too few. Silence is \
             banked and can be spent at once."
        ),
        Algorithm::LeakyPolicing => format!(
            "A bucket that holds {capacity}, empty at first, draining at {rate}. A request pours \
             its cost in, and is refused at no charge when it would spill over. The mirror image \
             of a token bucket: same numbers, same answers."
        ),
        Algorithm::LeakyShaping => format!(
            "A queue that holds {capacity}, the one in service included, and lets out {rate}, \
             evenly. A request that finds room is let in and told how long to wait; one that does \
             not is refused at no charge. Bursts come out as a steady flow."
        ),
    }
}

/// A behaviour's part in the demo.
pub(crate) struct Part {
    /// The burst or queue of a bucket; windows and logs have none.
    pub(crate) capacity: Option<u32>,
    /// The effect to watch for, in two words.
    pub(crate) effect: &'static str,
    /// What to look at.
    pub(crate) caption: &'static str,
}

/// What each behaviour is there to show.
pub(crate) fn part(algorithm: Algorithm) -> Part {
    match algorithm {
        Algorithm::FixedWindow => Part {
            capacity: None,
            effect: "boundary burst",
            caption: "Look at 1 s: the count is forgotten there, so a full limit just before it \
                      and another just after both get in.",
        },
        Algorithm::SlidingWindowLog => Part {
            capacity: None,
            effect: "exact",
            caption: "After the first ten nothing fits until they are a whole second old, at \
                      1.8 s. Never more than the limit in any second.",
        },
        Algorithm::SlidingWindowCounter => Part {
            capacity: None,
            effect: "smoothed edge",
            caption: "After 1 s the old count fades instead of vanishing: room comes back one by \
                      one. Nearly the log, at a fraction of its memory.",
        },
        Algorithm::TokenBucket => Part {
            capacity: Some(20),
            effect: "banked burst",
            caption: "Silence fills the bucket, so the burst at 4.1 s finds twenty tokens waiting: \
                      twice what a window lets in. In the long run still 10 a second.",
        },
        Algorithm::LeakyPolicing => Part {
            capacity: Some(5),
            effect: "steady level",
            caption: "A small bucket that drains at 10 a second: five fit at once, then one every \
                      100 ms. A token bucket with burst 5 answers the same.",
        },
        Algorithm::LeakyShaping => Part {
            capacity: Some(20),
            effect: "steady drain",
            caption: "The burst is let in but waits its turn: whatever comes in, one leaves every \
                      100 ms. Only what the queue cannot hold is refused.",
        },
    }
}
