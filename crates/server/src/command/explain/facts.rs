//! The exact figures of a quota: asked of the engine where it knows them, worked out from the
//! stated worst case otherwise. Knows nothing of pages.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use tallygate_core::{Algorithm, Quota, QuotaError, State, Verb, Verdict, evaluate};

/// What a key costs in the memory store, about.
const BYTES_A_KEY: u64 = 40;
/// What a log costs before it remembers anything to speak of.
const BYTES_A_LOG: u64 = 95;
/// What a log pays for each instant it remembers, at most.
pub(super) const BYTES_AN_INSTANT: u64 = 15;

/// A quota in numbers.
#[derive(Serialize)]
pub(super) struct Facts {
    pub(super) quota: String,
    pub(super) behaviour: &'static str,
    pub(super) limit: u32,
    pub(super) period_us: u64,
    pub(super) capacity: u32,
    pub(super) worst_case: WorstCase,
    pub(super) after_refusal: AfterRefusal,
    pub(super) longest_delay_us: u64,
    pub(super) forgotten_after_us: u64,
    pub(super) memory: Memory,
}

/// The most let in over any span.
#[derive(Serialize)]
pub(super) struct WorstCase {
    pub(super) one_period: u64,
    pub(super) ten_periods: u64,
}

/// The longest waits of somebody who has just taken everything.
#[derive(Serialize)]
pub(super) struct AfterRefusal {
    pub(super) one_fits_after_us: u64,
    pub(super) capacity_fits_after_us: u64,
}

/// Bytes in the memory store, about.
#[derive(Serialize)]
pub(super) struct Memory {
    pub(super) bytes_a_key: u64,
    pub(super) most_bytes_a_key: u64,
}

impl Facts {
    pub(super) fn of(quota: &Quota) -> Self {
        // The start of a window, from where the wait for the next one is longest.
        let now = quota.period_us();
        let mut state = State::New;
        let emptied = evaluate(quota, &mut state, Verb::Check, quota.capacity(), now);
        let mut wait = |cost| {
            let verdict = evaluate(quota, &mut state, Verb::Peek, cost, now);
            verdict.retry_after_us().unwrap_or(0)
        };
        let after_refusal = AfterRefusal {
            one_fits_after_us: wait(1),
            capacity_fits_after_us: wait(quota.capacity()),
        };
        let (bytes_a_key, instants) = if quota.algorithm().is_log() {
            (BYTES_A_LOG, u64::from(quota.limit()))
        } else {
            (BYTES_A_KEY, 0)
        };
        Facts {
            quota: quota.to_string(),
            behaviour: quota.algorithm().behaviour(),
            limit: quota.limit(),
            period_us: quota.period_us(),
            capacity: quota.capacity(),
            worst_case: WorstCase {
                one_period: quota.worst_case(quota.period_us()),
                ten_periods: quota.worst_case(10 * quota.period_us()),
            },
            after_refusal,
            longest_delay_us: last_in_line(quota).delay_us(),
            forgotten_after_us: emptied.reset_after_us,
            memory: Memory {
                bytes_a_key,
                most_bytes_a_key: bytes_a_key + BYTES_AN_INSTANT * instants,
            },
        }
    }
}

/// The verdict of the last single request that fits.
fn last_in_line(quota: &Quota) -> Verdict {
    let now = quota.period_us();
    let mut state = State::New;
    evaluate(quota, &mut state, Verb::Check, quota.capacity() - 1, now);
    evaluate(quota, &mut state, Verb::Check, 1, now)
}

/// The same limit, period and, among buckets, capacity under another behaviour.
pub(super) fn under(quota: &Quota, algorithm: Algorithm) -> Result<Quota, QuotaError> {
    let period = Duration::from_micros(quota.period_us());
    if algorithm.capacity_keyword().is_some() && quota.algorithm().capacity_keyword().is_some() {
        Quota::with_capacity(algorithm, quota.limit(), period, quota.capacity())
    } else {
        Quota::new(algorithm, quota.limit(), period)
    }
}

/// The whole answer of `--json`: the quota's facts, and those of its siblings.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    facts: Facts,
    /// Every behaviour that can carry this limit; a log cannot carry the largest.
    behaviours: Vec<Facts>,
}

pub(super) fn write_json(quota: &Quota, out: &mut impl Write) -> io::Result<()> {
    let siblings = Algorithm::ALL
        .into_iter()
        .filter_map(|algorithm| under(quota, algorithm).ok());
    let report = Report {
        facts: Facts::of(quota),
        behaviours: siblings.map(|sibling| Facts::of(&sibling)).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &report)?;
    writeln!(out)
}
