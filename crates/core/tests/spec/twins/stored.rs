//! What a script has stored, written down as its Rust twin writes itself down.

use std::fmt;

use tollgate_core::lua::{read_log, read_state};
use tollgate_core::{Quota, State};
use tollgate_testkit::resp::Reply;

/// Whether a stored value is a state. Only what a log holds has to be compared as text.
pub(super) fn is(value: &Reply, quota: &Quota, state: &State) -> bool {
    match value {
        Reply::Bulk(raw) if raw[0] & 15 == 4 => {
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
        Reply::Bulk(raw) if raw[0] & 15 == 4 => format!("Log({:?})", Entries(entries(raw))),
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
    let time_bytes = 4 + usize::from(raw[0] >> 4 & 3);
    let sum_bytes = [2, 3, 7][usize::from(raw[0] >> 6)];
    let (gone, margin, split) = (index(1, 1), index(2, 1), index(17, 1));
    let (newest, total) = (number(3, 7), number(10, 7));
    let (room, head, count) = (index(24, 3), index(27, 3), index(30, 3));
    let width = time_bytes + sum_bytes;
    let slot = |i: usize| 33 + i * width;
    let ring = |i: usize| 153 + (head + i) % room * width;
    assert!(0 < gone && gone <= margin && slot(margin) <= 153);
    if room > 0 {
        assert_eq!(raw.len(), 153 + room * width);
    }
    let split = if split > margin {
        assert_eq!((split, count), (255, 0));
        margin
    } else {
        assert!(gone <= split && 0 < count && count <= room);
        split
    };
    let places = (gone..split).map(slot);
    let places = places.chain((0..count).map(ring));
    let places = places.chain((split..margin).map(slot));
    let sums: u64 = 1 << (8 * sum_bytes).min(53);
    let times: u64 = 1 << (8 * time_bytes);
    let read = |at| (number(at, time_bytes), number(at + time_bytes, sum_bytes));
    let mut last = read(slot(gone - 1)).1;
    let entry = |(time, sum): (u64, u64)| {
        let units = sum.wrapping_sub(last) % sums;
        last = sum;
        (newest - newest.wrapping_sub(time) % times, units)
    };
    let newest_entry = (newest % times, total);
    places.map(read).chain([newest_entry]).map(entry).collect()
}
