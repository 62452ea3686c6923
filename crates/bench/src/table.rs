//! Collects the measurements of a run in a Markdown table.

use std::fmt;

use crate::measure::median;
use crate::measurement::Measurement;

/// Measurements by row and contender; rows in order of insertion.
///
/// A cell with several values shows the median. The ratio of two cells with equally many values,
/// which were measured alternately, is the median of the ratios of each round: noise that affects
/// both cancels.
#[derive(Clone, Debug, Default)]
pub struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<Vec<f64>>)>,
}

/// A cell of a table: the row and the contender.
pub type Cell<'a> = (&'a str, &'a str);

impl Table {
    /// Creates a table with a column per contender; the title heads the row names.
    pub fn new(title: &str, columns: impl IntoIterator<Item = &'static str>) -> Table {
        Table {
            title: title.to_owned(),
            columns: columns.into_iter().map(str::to_owned).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a measurement; a contender without a column is ignored.
    pub fn add(&mut self, measurement: Measurement) {
        let Some(column) = self.column(&measurement.contender) else {
            return;
        };
        let found = self
            .rows
            .iter()
            .position(|(name, _)| *name == measurement.row);
        let row = found.unwrap_or_else(|| {
            let empty = vec![Vec::new(); self.columns.len()];
            self.rows.push((measurement.row, empty));
            self.rows.len() - 1
        });
        self.rows[row].1[column].push(measurement.value);
    }

    /// The median of a cell.
    pub fn get(&self, cell: Cell<'_>) -> Option<f64> {
        self.values(cell).and_then(middle)
    }

    /// The ratio of two cells.
    pub fn ratio(&self, one: Cell<'_>, other: Cell<'_>) -> Option<f64> {
        times(self.values(one)?, self.values(other)?)
    }

    fn values(&self, (row, contender): Cell<'_>) -> Option<&[f64]> {
        let column = self.column(contender)?;
        let (_, cells) = self.rows.iter().find(|(name, _)| name == row)?;
        Some(&cells[column])
    }

    fn column(&self, contender: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == contender)
    }
}

fn middle(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| median(values))
}

fn times(one: &[f64], other: &[f64]) -> Option<f64> {
    let times = |(one, other): (&f64, &f64)| (*other > 0.0).then(|| one / other);
    if one.len() == other.len() {
        let each: Option<Vec<f64>> = one.iter().zip(other).map(times).collect();
        return middle(&each?);
    }
    times((&middle(one)?, &middle(other)?))
}

impl fmt::Display for Table {
    /// Markdown; beside each value its ratio to the first column's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut header = vec![self.title.clone()];
        header.extend(self.columns.iter().cloned());
        let mut lines = vec![header];
        for (row, cells) in &self.rows {
            let mut line = vec![row.clone()];
            for (column, cell) in cells.iter().enumerate() {
                let first = cells.first().filter(|_| column > 0);
                let ratio = first.and_then(|first| times(cell, first));
                line.push(match (middle(cell), ratio) {
                    (None, _) => "–".to_owned(),
                    (Some(value), Some(ratio)) => format!("{} ({}x)", short(value), short(ratio)),
                    (Some(value), None) => short(value),
                });
            }
            lines.push(line);
        }

        let widths: Vec<usize> = (0..=self.columns.len())
            .map(|column| {
                let cells = lines.iter().map(|line| line[column].chars().count());
                cells.max().unwrap_or(0)
            })
            .collect();
        for (number, line) in lines.iter().enumerate() {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                if column == 0 {
                    write!(f, "| {cell:<width$} ")?;
                } else {
                    write!(f, "| {cell:>width$} ")?;
                }
            }
            writeln!(f, "|")?;
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let dashes = "-".repeat(width + 1);
                    let end = if column == 0 { '-' } else { ':' };
                    write!(f, "|{dashes}{end}")?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// Formats a value with at least two digits.
pub fn short(value: f64) -> String {
    if value < 0.995 {
        format!("{value:.2}")
    } else if value < 9.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(row: &str, contender: &str, value: f64) -> Measurement {
        Measurement {
            row: row.into(),
            contender: contender.into(),
            value,
        }
    }

    #[test]
    fn a_table_shows_the_ratio_to_its_first_column() {
        let mut table = Table::new("ns", ["ours", "theirs", "other"]);
        table.add(measurement("1 key", "theirs", 30.0));
        table.add(measurement("1 key", "ours", 10.0));
        table.add(measurement("2 keys", "other", 5.0));
        table.add(measurement("2 keys", "unknown", 5.0));
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].ends_with("|   10 | 30 (3.0x) |     – |"), "{text}");
        assert!(lines[3].ends_with("|    – |         – |   5.0 |"), "{text}");
        assert_eq!(table.get(("1 key", "theirs")), Some(30.0));
        assert_eq!(table.get(("1 key", "other")), None);
    }

    #[test]
    fn the_ratio_of_alternating_measurements_is_the_median_of_each_round() {
        let mut table = Table::new("ns", ["ours", "theirs"]);
        for (ours, theirs) in [(1.0, 3.0), (10.0, 20.0), (5.0, 20.0)] {
            table.add(measurement("1 key", "ours", ours));
            table.add(measurement("1 key", "theirs", theirs));
        }
        assert_eq!(table.get(("1 key", "ours")), Some(5.0));
        assert_eq!(table.get(("1 key", "theirs")), Some(20.0));
        let ratio = table.ratio(("1 key", "theirs"), ("1 key", "ours"));
        assert_eq!(ratio, Some(3.0));
    }

    #[test]
    fn values_are_formatted_with_two_digits() {
        assert_eq!(short(4.26), "4.3");
        assert_eq!(short(413.8), "414");
        assert_eq!(short(0.523), "0.52");
        assert_eq!(short(19.4), "19");
    }
}
