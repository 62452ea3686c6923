//! A bar chart of a client that takes the whole capacity at once and then whatever fits, decided
//! by the engine at supplied timestamps.

use std::io::{self, Write};

use tallygate_core::{MAX_TIME_US, Quota, State, Verb, evaluate};

use crate::command::busiest_period::max_per_period;
use crate::describe;
use crate::format::{count, duration};

/// Columns for each span: the period of a window or log, a full drain of a bucket.
const COLUMNS_PER_SPAN: u64 = 20;
const SPANS: u64 = 3;
/// How many columns before the end of a window the client starts.
const START_BEFORE_BOUNDARY: u64 = 5;

pub(super) fn draw(quota: &Quota, out: &mut impl Write) -> io::Result<()> {
    let Simulation { admitted, dequeued } = simulate(quota);
    let step = duration(span_us(quota) / COLUMNS_PER_SPAN);
    let opening = match quota.capacity() {
        1 => "one".to_owned(),
        capacity => format!("all {}", count(capacity.into())),
    };
    let client = match quota.algorithm().is_shared() {
        true => "One member",
        false => "A client",
    };
    writeln!(
        out,
        "  {client} takes {opening} at once, then whatever fits every {step}:\n"
    )?;
    let units: Vec<u64> = admitted.iter().map(|(_, units)| *units).collect();
    bars(out, quota, &units, 4)?;
    if quota.algorithm().is_shaping() {
        writeln!(out, "\n  Leaving the queue:\n")?;
        bars(out, quota, &dequeued, 2)?;
    }
    let total = count(units.iter().sum());
    write!(out, "\n  {total} admitted")?;
    if SPANS * span_us(quota) >= quota.period_us() {
        let max = count(max_per_period(&admitted, quota.period_us()));
        let period = describe::period(quota);
        write!(out, "; {max} of them within the busiest {period}")?;
    }
    writeln!(out, ".")
}

/// One entry for each column.
struct Simulation {
    /// The time and the units admitted.
    admitted: Vec<(u64, u64)>,
    /// How many left the queue since the previous column.
    dequeued: Vec<u64>,
}

fn simulate(quota: &Quota) -> Simulation {
    let start = start_us(quota);
    let columns = 0..SPANS * COLUMNS_PER_SPAN;
    let times = columns.map(|i| start + i * span_us(quota) / COLUMNS_PER_SPAN);
    let (mut admitted, mut dequeued) = (Vec::new(), Vec::new());
    let mut state = State::New;
    let mut queued = 0;
    for at_us in times.take_while(|at_us| *at_us <= MAX_TIME_US) {
        let verdict = evaluate(quota, &mut state, Verb::Take, quota.capacity(), at_us);
        let units = u64::from(verdict.granted());
        admitted.push((at_us, units));
        // The request in service has left the queue.
        let still_queued = u64::from(verdict.limit - verdict.remaining).saturating_sub(1);
        dequeued.push((queued + units).saturating_sub(still_queued));
        queued = still_queued;
    }
    Simulation { admitted, dequeued }
}

/// The duration of a span, at least a microsecond per column.
fn span_us(quota: &Quota) -> u64 {
    quota.span_us().max(COLUMNS_PER_SPAN)
}

/// Shortly before a window boundary, if the algorithm has one.
fn start_us(quota: &Quota) -> u64 {
    match quota.algorithm().capacity_keyword() {
        Some(_) => 0,
        None => {
            2 * quota.period_us() - START_BEFORE_BOUNDARY * quota.period_us() / COLUMNS_PER_SPAN
        }
    }
}

/// Draws a bar for each value, and below them the time and the window boundaries.
fn bars(out: &mut impl Write, quota: &Quota, values: &[u64], rows: u64) -> io::Result<()> {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = count(quota.capacity().into()).len().max(3);
    let max = values.iter().copied().max().unwrap_or(0).max(1);
    for row in (0..rows).rev() {
        let bar = |&value: &u64| {
            // Rounded up: one among a million stays visible.
            let height = (u128::from(value) * u128::from(8 * rows)).div_ceil(u128::from(max));
            let here = height.saturating_sub(u128::from(8 * row)).min(8);
            EIGHTHS[usize::try_from(here).unwrap_or(8)]
        };
        let line: String = values.iter().map(bar).collect();
        let (label, axis) = match row + 1 == rows {
            true => (count(max), '┤'),
            false => (String::new(), '│'),
        };
        writeln!(out, "  {label:>width$} {axis}{}", line.trim_end())?;
    }
    let columns = || (0..COLUMNS_PER_SPAN).cycle().take(values.len());
    let axis = columns().map(|column| if column == 0 { '┬' } else { '─' });
    writeln!(out, "  {:width$} └{}", "", axis.collect::<String>())?;
    let spans = (0..).zip(values.chunks(COLUMNS_PER_SPAN as usize));
    let labels = spans.map(|(span, columns)| {
        let at = match span {
            0 => "0".to_owned(),
            _ => duration(span * span_us(quota)),
        };
        format!("{at:<width$}", width = columns.len())
    });
    let labels: String = labels.collect();
    writeln!(out, "  {:width$}  {}", "", labels.trim_end())?;
    let aligned = quota.algorithm().capacity_keyword().is_none() && !quota.algorithm().is_log();
    if aligned {
        let mark = |column| match column {
            START_BEFORE_BOUNDARY => '^',
            _ => ' ',
        };
        let marks: String = columns().map(mark).collect();
        writeln!(out, "  {:width$}  {} new window", "", marks.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_chart_exceeds_the_worst_case() {
        for text in crate::command::explain::tests::QUOTAS {
            let quota: Quota = text.parse().unwrap();
            if quota.algorithm().is_concurrent() {
                continue;
            }
            let admitted = simulate(&quota).admitted;
            let max = max_per_period(&admitted, quota.period_us());
            let bound = quota.worst_case(quota.period_us());
            assert!(max <= bound, "{text}: {max} is above {bound}");
            let total: u64 = admitted.iter().map(|(_, units)| units).sum();
            let span = admitted.last().unwrap().0 - admitted[0].0 + 1;
            let bound = quota.worst_case(span);
            assert!(total <= bound, "{text}: {total} is above {bound}");
        }
    }
}
