//! The exact figures of a quota, measured with the engine or computed from the worst case.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use tallygate_core::{
    Algorithm, Caller, Log, MAX_MEMBERS, Quota, QuotaError, State, StateSize, Verb, evaluate_by,
};

use crate::format;

/// The approximate size of a key in the memory store.
const BYTES_PER_KEY: u64 = 40;
/// The approximate size of a log whose entries fit inline.
const BYTES_PER_LOG: u64 = 47;
/// The approximate size of a shared bucket, and of a member.
const BYTES_PER_SHARE: u64 = 310;
pub(super) const BYTES_PER_MEMBER: u64 = 60;
/// The approximate size of a concurrency limit, and of an owner.
const BYTES_PER_HOLDS: u64 = 180;
pub(super) const BYTES_PER_OWNER: u64 = 50;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) share: Option<Share>,
}

/// What a member of a shared bucket gets.
#[derive(Serialize)]
pub(super) struct Share {
    /// For each unit of its weight, however many members there are.
    pub(super) least_at_once: u32,
    /// What members beyond their share leave to the others.
    pub(super) reserve: u32,
    pub(super) max_members: u32,
    pub(super) equal_members: Vec<EqualMembers>,
}

/// What each of some members of equal weight gets while all ask.
#[derive(Serialize)]
pub(super) struct EqualMembers {
    pub(super) members: u32,
    /// The time in which the part of one member admits one unit, rounded up.
    pub(super) one_every_us: u64,
    pub(super) at_once: u32,
}

impl Share {
    /// `None` if nothing is shared.
    fn new(quota: &Quota) -> Option<Self> {
        let least_at_once = quota.shared_units()?;
        let [limit, capacity, period] = [
            quota.limit().into(),
            quota.capacity().into(),
            quota.period_us().into(),
        ] as [u128; 3];
        let equal = |members: u32| {
            let n = u128::from(members);
            // As the core rounds: the part of a full drain in microseconds, then whole units.
            let part = capacity * period / limit / n * limit / period;
            EqualMembers {
                members,
                one_every_us: u64::try_from((period * n).div_ceil(limit)).unwrap_or(u64::MAX),
                at_once: u32::try_from(part).unwrap_or(u32::MAX).max(least_at_once),
            }
        };
        Some(Share {
            least_at_once,
            reserve: quota.capacity() / 4,
            max_members: MAX_MEMBERS,
            equal_members: [2, 10, 100, MAX_MEMBERS].map(equal).into(),
        })
    }
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
        let first = Caller::NONE;
        let check =
            |state: &mut State, cost| evaluate_by(quota, state, &first, Verb::Check, cost, now);
        let emptied = check(&mut state, quota.capacity());
        // The owner itself could always ask again for what it holds.
        let other = Caller { owner: 1, ..first };
        let mut wait = |cost| {
            let verdict = evaluate_by(quota, &mut state, &other, Verb::Peek, cost, now);
            verdict.retry_after_us().unwrap_or(0)
        };
        let after_refusal = AfterRefusal {
            one_fits_after_us: wait(1),
            capacity_fits_after_us: wait(quota.capacity()),
        };
        // The last of a full queue waits longest.
        let mut filling = State::New;
        check(&mut filling, quota.capacity() - 1);
        let last = check(&mut filling, 1);
        let (bytes_a_key, most_bytes_a_key) = bytes(quota);
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
                most_bytes_a_key,
            },
            share: Share::new(quota),
        }
    }
}

/// The least and the most that a key takes.
fn bytes(quota: &Quota) -> (u64, u64) {
    match quota.algorithm().state_size() {
        StateSize::Packed => (BYTES_PER_KEY, BYTES_PER_KEY),
        StateSize::Log => (
            BYTES_PER_LOG,
            BYTES_PER_LOG + Log::max_heap_bytes(quota) as u64,
        ),
        StateSize::Callers => {
            let (alone, callers, each) = match quota.algorithm().is_shared() {
                true => (BYTES_PER_SHARE, 2 * MAX_MEMBERS, BYTES_PER_MEMBER),
                false => (BYTES_PER_HOLDS, quota.limit(), BYTES_PER_OWNER),
            };
            (alone + each, alone + u64::from(callers) * each)
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
    /// The same limit with every algorithm that supports it: a log does not support the largest, and
    /// what is in flight is no rate.
    behaviours: Vec<Facts>,
}

pub(super) fn write_json(quota: &Quota, out: &mut impl Write) -> io::Result<()> {
    let is_rate = !quota.algorithm().is_concurrent();
    let quotas = Algorithm::BASIC
        .into_iter()
        .filter(|_| is_rate)
        .filter_map(|algorithm| with_algorithm(quota, algorithm).ok());
    let report = Report {
        facts: Facts::new(quota),
        behaviours: quotas.map(|quota| Facts::new(&quota)).collect(),
    };
    format::write_json(&report, out)
}
