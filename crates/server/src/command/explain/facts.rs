//! The exact figures of a quota, measured with the engine or computed from the worst case.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use tallygate_core::{Algorithm, Log, Quota, QuotaError, State, Verb, evaluate};

use crate::format;

/// The approximate size of a key in the memory store.
const BYTES_PER_KEY: u64 = 40;
/// The approximate size of a log whose entries fit inline.
const BYTES_PER_LOG: u64 = 47;

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

/// The most units admitted within any span.
#[derive(Serialize)]
pub(super) struct WorstCase {
    pub(super) one_period: u64,
    pub(super) ten_periods: u64,
}

/// The longest waits after the whole capacity was taken at once.
#[derive(Serialize)]
pub(super) struct AfterRefusal {
    pub(super) one_fits_after_us: u64,
    pub(super) capacity_fits_after_us: u64,
}

/// Approximate sizes in the memory store.
#[derive(Serialize)]
pub(super) struct Memory {
    pub(super) bytes_a_key: u64,
    pub(super) most_bytes_a_key: u64,
}

impl Facts {
    pub(super) fn new(quota: &Quota) -> Self {
        // The start of a window: the wait for the next one is longest.
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
        // The last of a full queue waits longest.
        let mut filling = State::New;
        evaluate(quota, &mut filling, Verb::Check, quota.capacity() - 1, now);
        let last = evaluate(quota, &mut filling, Verb::Check, 1, now);
        let (bytes_a_key, max_heap_bytes) = if quota.algorithm().is_log() {
            (BYTES_PER_LOG, Log::max_heap_bytes(quota) as u64)
        } else {
            (BYTES_PER_KEY, 0)
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
            longest_delay_us: last.delay_us(),
            forgotten_after_us: emptied.reset_after_us,
            memory: Memory {
                bytes_a_key,
                most_bytes_a_key: bytes_a_key + max_heap_bytes,
            },
        }
    }
}

/// The same limit, period and, for buckets, capacity with another algorithm.
pub(super) fn with_algorithm(quota: &Quota, algorithm: Algorithm) -> Result<Quota, QuotaError> {
    let period = Duration::from_micros(quota.period_us());
    if algorithm.capacity_keyword().is_some() && quota.algorithm().capacity_keyword().is_some() {
        Quota::with_capacity(algorithm, quota.limit(), period, quota.capacity())
    } else {
        Quota::new(algorithm, quota.limit(), period)
    }
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    facts: Facts,
    /// The same limit with every algorithm that supports it: a log does not support the largest.
    behaviours: Vec<Facts>,
}

pub(super) fn write_json(quota: &Quota, out: &mut impl Write) -> io::Result<()> {
    let quotas = Algorithm::BASIC
        .into_iter()
        .filter_map(|algorithm| with_algorithm(quota, algorithm).ok());
    let report = Report {
        facts: Facts::new(quota),
        behaviours: quotas.map(|quota| Facts::new(&quota)).collect(),
    };
    format::write_json(&report, out)
}
