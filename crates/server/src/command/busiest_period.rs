//! The busiest period of a simulation.

/// The most units admitted within any period, given the time and units of each admission, sorted.
pub(crate) fn max_per_period(admissions: &[(u64, u64)], period_us: u64) -> u64 {
    let from = |(first, (start, _)): (usize, &(u64, u64))| {
        let rest = admissions[first..].iter();
        let within = rest.take_while(|(at, _)| *at < start + period_us);
        within.map(|(_, units)| units).sum()
    };
    admissions.iter().enumerate().map(from).max().unwrap_or(0)
}
