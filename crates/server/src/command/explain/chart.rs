//! A picture of somebody who takes everything at once and never stops asking, drawn from the
//! engine's own answers on supplied time. Knows quotas and columns; tells no algorithm apart.

use std::io::{self, Write};

use tallygate_core::{MAX_TIME_US, Quota, State, Verb, evaluate};

use crate::describe;
use crate::format::{count, duration};

/// Columns for each span: the period of a window or log, a full drain of a bucket.
const COLUMNS_A_SPAN: u64 = 20;
const SPANS: u64 = 3;
/// How many columns before the end of a window the asking starts.
const BEFORE_EDGE: u64 = 5;

/// What came of asking at one moment.
struct Column {
    at_us: u64,
    let_in: u64,
    /// Let out of the queue since the column before; the same as `let_in` without a queue.
    let_out: u64,
}

pub(super) fn draw(quota: &Quota, out: &mut impl Write) -> io::Result<()> {
    let columns = hammer(quota);
    let width = (count(quota.capacity().into()).chars().count()).max(3);
    let capacity = count(quota.capacity().into());
    let step = duration(span_us(quota) / COLUMNS_A_SPAN);
    let opening = if quota.capacity() == 1 {
        "one".to_owned()
    } else {
        format!("all {capacity}")
    };
    writeln!(
        out,
        "  Somebody takes {opening} at once, then asks for more every {step}:\n"
    )?;
    let let_in: Vec<u64> = columns.iter().map(|column| column.let_in).collect();
    bars(out, &let_in, 4, width)?;
    axis(out, quota, columns.len(), width)?;
    if quota.algorithm().is_shaping() {
        writeln!(out, "\n  and this is how they leave the queue:\n")?;
        let let_out: Vec<u64> = columns.iter().map(|column| column.let_out).collect();
        bars(out, &let_out, 2, width)?;
        axis(out, quota, columns.len(), width)?;
    }
    let total = count(let_in.iter().sum());
    write!(out, "\n  {total} let in")?;
    // A picture shorter than a period has nothing to say of one.
    if SPANS * span_us(quota) >= quota.period_us() {
        let most = count(busiest(&columns, quota.period_us()));
        let period = describe::period(quota);
        write!(out, "; {most} of them in the busiest {period}")?;
    }
    writeln!(out, ".")
}

/// Takes whatever fits at every column.
fn hammer(quota: &Quota) -> Vec<Column> {
    let span = span_us(quota);
    let start = start_us(quota);
    let mut state = State::New;
    let mut total_in = 0;
    let mut total_out = 0;
    let mut columns = Vec::new();
    for i in 0..SPANS * COLUMNS_A_SPAN {
        let elapsed = u128::from(i) * u128::from(span) / u128::from(COLUMNS_A_SPAN);
        let Ok(elapsed) = u64::try_from(elapsed) else {
            break;
        };
        let at_us = start + elapsed;
        if at_us > MAX_TIME_US {
            break;
        }
        let verdict = evaluate(quota, &mut state, Verb::Take, quota.capacity(), at_us);
        let let_in = u64::from(verdict.granted());
        total_in += let_in;
        let let_out = if quota.algorithm().is_shaping() {
            let held = u64::from(verdict.limit - verdict.remaining);
            // The one in service has left the queue; it left when its service began.
            let gone = total_in - held.saturating_sub(1);
            let since = gone - total_out;
            total_out = gone;
            since
        } else {
            let_in
        };
        columns.push(Column {
            at_us,
            let_in,
            let_out,
        });
    }
    columns
}

/// The time that a span's columns stand for; no column is shorter than a microsecond.
fn span_us(quota: &Quota) -> u64 {
    quota.span_us().max(COLUMNS_A_SPAN)
}

/// Shortly before a window ends, where the edge shows; buckets have no edge.
fn start_us(quota: &Quota) -> u64 {
    match quota.algorithm().capacity_keyword() {
        Some(_) => 0,
        None => 2 * quota.period_us() - BEFORE_EDGE * quota.period_us() / COLUMNS_A_SPAN,
    }
}

/// The most let in within one period, wherever it starts.
fn busiest(columns: &[Column], period_us: u64) -> u64 {
    let mut most = 0;
    let mut sum = 0;
    let mut first = 0;
    for column in columns {
        sum += column.let_in;
        while columns[first].at_us + period_us <= column.at_us {
            sum -= columns[first].let_in;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

fn bars(out: &mut impl Write, values: &[u64], rows: u64, width: usize) -> io::Result<()> {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    for row in (0..rows).rev() {
        let bar = |&value: &u64| {
            // Rounded up, so that a single one among a million is seen.
            let height = (u128::from(value) * u128::from(8 * rows)).div_ceil(u128::from(most));
            let here = height.saturating_sub(u128::from(8 * row)).min(8);
            EIGHTHS[usize::try_from(here).unwrap_or(8)]
        };
        let line: String = values.iter().map(bar).collect();
        let (label, edge) = if row == rows - 1 {
            (count(most), '┤')
        } else {
            (String::new(), '│')
        };
        writeln!(out, "  {label:>width$} {edge}{}", line.trim_end())?;
    }
    Ok(())
}

fn axis(out: &mut impl Write, quota: &Quota, columns: usize, width: usize) -> io::Result<()> {
    let mut line = String::new();
    let mut labels = String::new();
    let mut edges = String::new();
    let aligned = quota.algorithm().capacity_keyword().is_none() && !quota.algorithm().is_log();
    for (i, column) in (0..).zip(0..columns) {
        let labelled = u64::is_multiple_of(i, COLUMNS_A_SPAN);
        line.push(if labelled { '┬' } else { '─' });
        if labelled {
            let room = column - labels.chars().count();
            labels.extend(std::iter::repeat_n(' ', room));
            labels += &match i / COLUMNS_A_SPAN {
                0 => "0".to_owned(),
                spans => duration(spans * span_us(quota)),
            };
        }
        let edge = aligned && i % COLUMNS_A_SPAN == BEFORE_EDGE;
        edges.push(if edge { '^' } else { ' ' });
    }
    let nothing = "";
    writeln!(out, "  {nothing:>width$} └{line}")?;
    writeln!(out, "  {nothing:>width$}  {labels}")?;
    if aligned {
        let edges = edges.trim_end();
        writeln!(out, "  {nothing:>width$}  {edges} a new window")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_picture_shows_more_than_the_stated_worst_case() {
        for text in crate::command::explain::tests::QUOTAS {
            let quota: Quota = text.parse().unwrap();
            let columns = hammer(&quota);
            let most = busiest(&columns, quota.period_us());
            let bound = quota.worst_case(quota.period_us());
            assert!(most <= bound, "{text}: {most} is above {bound}");
            let total: u64 = columns.iter().map(|column| column.let_in).sum();
            let span = columns.last().unwrap().at_us - columns[0].at_us + 1;
            let bound = quota.worst_case(span);
            assert!(total <= bound, "{text}: {total} is above {bound}");
        }
    }

    #[test]
    fn a_queue_lets_out_no_more_than_it_lets_in() {
        let quota: Quota = "leaky-bucket 10/s queue 20".parse().unwrap();
        let columns = hammer(&quota);
        assert!(columns.iter().all(|column| column.let_out == 1));
        assert_eq!(columns[0].let_in, 20);
    }

    #[test]
    fn an_edge_shows_in_the_fixed_window_and_fades_in_the_counter() {
        let at = |text: &str, column: usize| hammer(&text.parse().unwrap())[column].let_in;
        assert_eq!(at("fixed-window 100/min", 5), 100);
        assert_eq!(at("sliding-window-counter 100/min", 5), 0);
        assert_eq!(at("sliding-window-counter 100/min", 6), 5);
        assert_eq!(at("sliding-window-log 100/min", 20), 100);
    }
}
