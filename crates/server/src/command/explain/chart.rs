//! A bar chart of a client that takes the whole capacity at once and then whatever fits, decided
//! by the engine at supplied timestamps.

use std::io::{self, Write};

use tallygate_core::{MAX_TIME_US, Quota, State, Verb, evaluate};

use crate::describe;
use crate::format::{count, duration};

/// Columns for each span: the period of a window or log, a full drain of a bucket.
const COLUMNS_PER_SPAN: u64 = 20;
const SPANS: u64 = 3;
/// How many columns before the end of a window the client starts.
const START_BEFORE_BOUNDARY: u64 = 5;

struct Column {
    at_us: u64,
    admitted: u64,
    /// How many left the queue since the previous column; `admitted` if there is no queue.
    dequeued: u64,
}

pub(super) fn draw(quota: &Quota, out: &mut impl Write) -> io::Result<()> {
    let columns = simulate(quota);
    let width = (count(quota.capacity().into()).chars().count()).max(3);
    let capacity = count(quota.capacity().into());
    let step = duration(span_us(quota) / COLUMNS_PER_SPAN);
    let opening = if quota.capacity() == 1 {
        "one".to_owned()
    } else {
        format!("all {capacity}")
    };
    writeln!(
        out,
        "  A client takes {opening} at once, then whatever fits every {step}:\n"
    )?;
    let admitted: Vec<u64> = columns.iter().map(|column| column.admitted).collect();
    bars(out, &admitted, 4, width)?;
    axis(out, quota, columns.len(), width)?;
    if quota.algorithm().is_shaping() {
        writeln!(out, "\n  Leaving the queue:\n")?;
        let dequeued: Vec<u64> = columns.iter().map(|column| column.dequeued).collect();
        bars(out, &dequeued, 2, width)?;
        axis(out, quota, columns.len(), width)?;
    }
    let total = count(admitted.iter().sum());
    write!(out, "\n  {total} admitted")?;
    if SPANS * span_us(quota) >= quota.period_us() {
        let max = count(max_per_period(&columns, quota.period_us()));
        let period = describe::period(quota);
        write!(out, "; {max} of them within the busiest {period}")?;
    }
    writeln!(out, ".")
}

fn simulate(quota: &Quota) -> Vec<Column> {
    let span = span_us(quota);
    let start = start_us(quota);
    let mut state = State::New;
    let mut total_admitted = 0;
    let mut total_dequeued = 0;
    let mut columns = Vec::new();
    for i in 0..SPANS * COLUMNS_PER_SPAN {
        let elapsed = u128::from(i) * u128::from(span) / u128::from(COLUMNS_PER_SPAN);
        let Ok(elapsed) = u64::try_from(elapsed) else {
            break;
        };
        let at_us = start + elapsed;
        if at_us > MAX_TIME_US {
            break;
        }
        let verdict = evaluate(quota, &mut state, Verb::Take, quota.capacity(), at_us);
        let admitted = u64::from(verdict.granted());
        total_admitted += admitted;
        let mut dequeued = admitted;
        if quota.algorithm().is_shaping() {
            let queued = u64::from(verdict.limit - verdict.remaining);
            // The request in service has left the queue.
            let total = total_admitted - queued.saturating_sub(1);
            dequeued = total - total_dequeued;
            total_dequeued = total;
        }
        columns.push(Column {
            at_us,
            admitted,
            dequeued,
        });
    }
    columns
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

fn max_per_period(columns: &[Column], period_us: u64) -> u64 {
    let mut max = 0;
    let mut sum = 0;
    let mut first = 0;
    for column in columns {
        sum += column.admitted;
        while columns[first].at_us + period_us <= column.at_us {
            sum -= columns[first].admitted;
            first += 1;
        }
        max = max.max(sum);
    }
    max
}

fn bars(out: &mut impl Write, values: &[u64], rows: u64, width: usize) -> io::Result<()> {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let max = values.iter().copied().max().unwrap_or(0).max(1);
    for row in (0..rows).rev() {
        let bar = |&value: &u64| {
            // Rounded up: one among a million stays visible.
            let height = (u128::from(value) * u128::from(8 * rows)).div_ceil(u128::from(max));
            let here = height.saturating_sub(u128::from(8 * row)).min(8);
            EIGHTHS[usize::try_from(here).unwrap_or(8)]
        };
        let line: String = values.iter().map(bar).collect();
        let (label, axis) = if row == rows - 1 {
            (count(max), '┤')
        } else {
            (String::new(), '│')
        };
        writeln!(out, "  {label:>width$} {axis}{}", line.trim_end())?;
    }
    Ok(())
}

fn axis(out: &mut impl Write, quota: &Quota, columns: usize, width: usize) -> io::Result<()> {
    let mut line = String::new();
    let mut labels = String::new();
    let mut boundaries = String::new();
    let aligned = quota.algorithm().capacity_keyword().is_none() && !quota.algorithm().is_log();
    for (i, column) in (0..).zip(0..columns) {
        let labelled = u64::is_multiple_of(i, COLUMNS_PER_SPAN);
        line.push(if labelled { '┬' } else { '─' });
        if labelled {
            let room = column - labels.chars().count();
            labels.extend(std::iter::repeat_n(' ', room));
            labels += &match i / COLUMNS_PER_SPAN {
                0 => "0".to_owned(),
                spans => duration(spans * span_us(quota)),
            };
        }
        let boundary = aligned && i % COLUMNS_PER_SPAN == START_BEFORE_BOUNDARY;
        boundaries.push(if boundary { '^' } else { ' ' });
    }
    let nothing = "";
    writeln!(out, "  {nothing:>width$} └{line}")?;
    writeln!(out, "  {nothing:>width$}  {labels}")?;
    if aligned {
        let boundaries = boundaries.trim_end();
        writeln!(out, "  {nothing:>width$}  {boundaries} new window")?;
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
            let columns = simulate(&quota);
            let max = max_per_period(&columns, quota.period_us());
            let bound = quota.worst_case(quota.period_us());
            assert!(max <= bound, "{text}: {max} is above {bound}");
            let total: u64 = columns.iter().map(|column| column.admitted).sum();
            let span = columns.last().unwrap().at_us - columns[0].at_us + 1;
            let bound = quota.worst_case(span);
            assert!(total <= bound, "{text}: {total} is above {bound}");
        }
    }

    #[test]
    fn a_queue_drains_evenly() {
        let quota: Quota = "leaky-bucket 10/s queue 20".parse().unwrap();
        let columns = simulate(&quota);
        assert!(columns.iter().all(|column| column.dequeued == 1));
        assert_eq!(columns[0].admitted, 20);
    }

    #[test]
    fn a_boundary_shows_in_the_fixed_window_and_fades_in_the_counter() {
        let at = |text: &str, column: usize| simulate(&text.parse().unwrap())[column].admitted;
        assert_eq!(at("fixed-window 100/min", 5), 100);
        assert_eq!(at("sliding-window-counter 100/min", 5), 0);
        assert_eq!(at("sliding-window-counter 100/min", 6), 5);
        assert_eq!(at("sliding-window-log 100/min", 20), 100);
    }
}
