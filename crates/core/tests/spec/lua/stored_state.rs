//! Compares a stored value with a state, and formats it like the state's `Debug` output.

use std::fmt;

use tallygate_core::lua::{read_log, read_state};
use tallygate_core::{Quota, State};
use tallygate_testkit::resp::Reply;

/// Whether a stored value equals a state. A log is also compared as text.
pub(super) fn equals(value: &Reply, quota: &Quota, state: &State) -> bool {
    match value {
        Reply::Bulk(raw) if raw[0] & 15 == 4 => {
            read_log(quota, raw).map(State::Log).as_ref() == Some(state)
                && format(value, quota) == format!("{state:?}")
        }
        Reply::Bulk(raw) => read_state(quota, &mut &raw[..]).as_ref() == Some(state),
        _ => *state == State::New,
    }
}

/// A stored value as text.
pub(super) fn format(value: &Reply, quota: &Quota) -> String {
    match value {
        Reply::Bulk(raw) if raw[0] & 15 == 4 => {
            let entries = entries(raw);
            let newest = entries.last().unwrap().0;
            let until = newest + quota.period_us();
            let ages = entries.iter().map(|(time, units)| (newest - time, *units));
            format!("Log(until {until} {:?})", Ages(ages.collect()))
        }
        Reply::Bulk(raw) => format!("{:?}", read_state(quota, &mut &raw[..]).unwrap()),
        _ => format!("{:?}", State::New),
    }
}

struct Ages(Vec<(u64, u64)>);

impl fmt::Debug for Ages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().copied()).finish()
    }
}

/// The times and units of a stored log.
fn entries(raw: &[u8]) -> Vec<(u64, u64)> {
    let number = |from: usize, len: usize| {
        let bytes = raw[from..from + len].iter();
        bytes.fold(0, |n, &byte| n << 8 | u64::from(byte))
    };
    let index = |from, len| usize::try_from(number(from, len)).unwrap();
    let time_bytes = 4 + usize::from(raw[0] >> 4 & 3);
    let sum_bytes = [2, 3, 7][usize::from(raw[0] >> 6)];
    let (front_slots, removed, back_slots) = (index(1, 1), index(8, 1), index(9, 1));
    let (newest, total) = (number(10, 7), number(17, 7));
    let width = time_bytes + sum_bytes;
    let slot = |i: usize| 24 + i * width;
    let mut offsets: Vec<usize> = Vec::new();
    let oldest = if front_slots == 0 {
        assert!(raw.len() <= 84);
        assert!(0 < removed && removed <= back_slots && slot(back_slots) <= raw.len());
        offsets.extend((removed..back_slots).map(slot));
        24
    } else {
        let (capacity, head, count) = (index(84, 3), index(87, 3), index(90, 3));
        assert_eq!(raw.len(), 153 + capacity * width);
        assert!(0 < removed && removed <= front_slots && front_slots * width <= 60);
        assert!(back_slots * width <= 60 && count <= capacity && head <= capacity);
        offsets.extend((removed..front_slots).map(|i| 93 + i * width));
        offsets.extend((0..count).map(|i| 153 + (head + i) % capacity * width));
        offsets.extend((0..back_slots).map(slot));
        93
    };
    let sums: u64 = 1 << (8 * sum_bytes).min(53);
    let times: u64 = 1 << (8 * time_bytes);
    let read = |at| (number(at, time_bytes), number(at + time_bytes, sum_bytes));
    let mut last = read(oldest + (removed - 1) * width).1;
    let entry = |(time, sum): (u64, u64)| {
        let units = sum.wrapping_sub(last) % sums;
        last = sum;
        (newest - newest.wrapping_sub(time) % times, units)
    };
    let newest_entry = (newest % times, total);
    let read_all = offsets.into_iter().map(read);
    read_all.chain([newest_entry]).map(entry).collect()
}
