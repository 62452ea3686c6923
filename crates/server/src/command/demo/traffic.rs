//! The demo's traffic and its limit. Knows times and numbers of requests, nothing else.

/// The limit of every lane, a period.
pub(super) const LIMIT: u32 = 10;
/// One column.
pub(super) const TICK_US: u64 = 100_000;
/// A period is one second.
pub(super) const TICKS_A_PERIOD: u64 = 10;
/// The columns of the picture.
pub(super) const TICKS: usize = 64;
/// The first column: a whole second of some day in 2023, so that windows start on the ruler.
pub(super) const START_US: u64 = 1_700_000_000_000_000;

/// Requests in each column: a limit's worth either side of 1 s and a trickle after it; silence;
/// a burst of twenty-five in the middle of a second.
pub(super) const TRAFFIC: [u32; TICKS] = {
    let mut traffic = [0; TICKS];
    let mut tick = 8;
    while tick < 12 {
        traffic[tick] = 5;
        tick += 1;
    }
    while tick < 20 {
        traffic[tick] = 1;
        tick += 1;
    }
    traffic[41] = 9;
    traffic[42] = 9;
    traffic[43] = 7;
    traffic
};

/// Every column with its time since the first.
pub(super) fn ticks() -> impl Iterator<Item = (usize, u64)> {
    (0..TICKS).zip((0..).map(|tick: u64| tick * TICK_US))
}
