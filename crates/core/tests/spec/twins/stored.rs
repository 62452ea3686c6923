//! Formats a stored value as the `Debug` output of its Rust twin.

use std::fmt;

use tallygate_core::lua::{read_log, read_state};
use tallygate_core::{Quota, State};
use tallygate_testkit::resp::Reply;

/// Whether a stored value is a state. Only what a log holds has to be compared as text.
pub(super) fn is(value: &Reply, quota: &Quota, state: &State) -> bool {
    match value {
        Reply::Bulk(raw) if raw[0] & 15 == 4 => {
            // As whoever looks at it reads it, and as it is written down.
            read_log(quota, raw).map(State::Log).as_ref() == Some(state)
                && shown(value, quota) == format!("{state:?}")
        }
        Reply::Bulk(raw) => read_state(quota, &mut &raw[..]).as_ref() == Some(state),
        _ => *state == State::New,
    }
}

/// A stored value as text.
pub(super) fn shown(value: &Reply, quota: &Quota) -> String {
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

/// The instants and units of a stored log.
fn entries(raw: &[u8]) -> Vec<(u64, u64)> {
    let number = |from: usize, len: usize| {
        let bytes = raw[from..from + len].iter();
        bytes.fold(0, |n, &byte| n << 8 | u64::from(byte))
    };
    let index = |from, len| usize::try_from(number(from, len)).unwrap();
    let time_bytes = 4 + usize::from(raw[0] >> 4 & 3);
    let sum_bytes = [2, 3, 7][usize::from(raw[0] >> 6)];
    let (fronts, gone, latest) = (index(1, 1), index(8, 1), index(9, 1));
    let (newest, total) = (number(10, 7), number(17, 7));
    let width = time_bytes + sum_bytes;
    let slot = |i: usize| 24 + i * width;
    let mut places: Vec<usize> = Vec::new();
    let oldest = if fronts == 0 {
        assert!(raw.len() <= 84);
        assert!(0 < gone && gone <= latest && slot(latest) <= raw.len());
        places.extend((gone..latest).map(slot));
        24
    } else {
        let (room, head, count) = (index(84, 3), index(87, 3), index(90, 3));
        assert_eq!(raw.len(), 153 + room * width);
        assert!(0 < gone && gone <= fronts && fronts * width <= 60);
        assert!(latest * width <= 60 && count <= room && head <= room);
        places.extend((gone..fronts).map(|i| 93 + i * width));
        places.extend((0..count).map(|i| 153 + (head + i) % room * width));
        places.extend((0..latest).map(slot));
        93
    };
    let sums: u64 = 1 << (8 * sum_bytes).min(53);
    let times: u64 = 1 << (8 * time_bytes);
    let read = |at| (number(at, time_bytes), number(at + time_bytes, sum_bytes));
    let mut last = read(oldest + (gone - 1) * width).1;
    let entry = |(time, sum): (u64, u64)| {
        let units = sum.wrapping_sub(last) % sums;
        last = sum;
        (newest - newest.wrapping_sub(time) % times, units)
    };
    let newest_entry = (newest % times, total);
    let read_all = places.into_iter().map(read);
    read_all.chain([newest_entry]).map(entry).collect()
}
