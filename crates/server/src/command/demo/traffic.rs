//! The demo's traffic.

pub(super) const LIMIT: u32 = 10;
/// One column of the chart.
pub(super) const TICK_US: u64 = 100_000;
/// A period is one second.
pub(super) const TICKS_PER_PERIOD: u64 = 10;
pub(super) const TICKS: usize = 64;
/// A whole second, so that windows start on the ruler.
pub(super) const START_US: u64 = 1_700_000_000_000_000;

/// Requests per tick: the whole limit on both sides of 1 s, then one per tick until 2 s; at 4.1 s
/// a burst of 25.
pub(super) const TRAFFIC: [u32; TICKS] = [
    0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

pub(super) fn ticks() -> impl Iterator<Item = (usize, u64)> {
    (0..TICKS).zip((0..).map(|tick: u64| tick * TICK_US))
}
