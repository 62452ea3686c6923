//! What a script has stored, written down as its Rust twin writes itself down.

use std::fmt;

use tollgate_core::lua::{read_log, read_state};
use tollgate_core::{Quota, State};
use tollgate_testkit::resp::Reply;

/// Whether a stored value is a state. Only what a log holds has to be compared as text.
pub(super) fn is(value: &Reply, quota: &Quota, state: &State) -> bool {
    match value {
        Reply::Bulk(raw) if raw[0] == 4 => {
            // As whoever looks at it reads it, and as it is written down.
            read_log(raw).map(State::Log).as_ref() == Some(state)
                && shown(value, quota) == format!("{state:?}")
        }
        Reply::Bulk(raw) => read_state(quota, &mut &raw[..]).as_ref() == Some(state),
        _ => *state == State::New,
    }
}

/// A stored value as text.
pub(super) fn shown(value: &Reply, quota: &Quota) -> String {
    match value {
        Reply::Bulk(raw) if raw[0] == 4 => format!("Log({:?})", Entries(entries(raw))),
        Reply::Bulk(raw) => format!("{:?}", read_state(quota, &mut &raw[..]).unwrap()),
        _ => format!("{:?}", State::New),
    }
}

struct Entries(Vec<(u64, u64)>);

impl fmt::Debug for Entries {
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
    let (time_bytes, sum_bytes) = (index(1, 1), index(2, 1));
    let (room, head, count) = (index(3, 3), index(6, 3), index(9, 3));
    let (fronts, tails) = (index(12, 1), index(13, 1));
    let (newest, oldest) = (number(14, 7), number(21, 7));
    let (before, total) = (number(28, 7), number(35, 7));
    let width = time_bytes + sum_bytes;
    if room > 0 {
        assert_eq!(raw.len(), 144 + room * width);
    }
    let ring = |i: usize| 144 + (head + i) % room * width;
    for i in 0..fronts {
        let copy = 48 + i * width;
        assert_eq!(raw[copy..copy + width], raw[ring(i)..ring(i) + width]);
    }
    let places = (0..count).map(ring);
    let places = places.chain((fronts..fronts + tails).map(|i| 48 + i * width));
    let sums: u64 = 1 << (8 * sum_bytes).min(53);
    let times: u64 = 1 << (8 * time_bytes);
    let read = |at| (number(at, time_bytes), number(at + time_bytes, sum_bytes));
    let mut last = before;
    let entry = |(time, sum): (u64, u64)| {
        let units = sum.wrapping_sub(last) % sums;
        last = sum;
        (newest - newest.wrapping_sub(time) % times, units)
    };
    let newest_entry = (newest % times, total);
    let entries: Vec<(u64, u64)> = places.map(read).chain([newest_entry]).map(entry).collect();
    assert_eq!(entries[0].0, oldest);
    entries
}
