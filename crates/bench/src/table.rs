//! The figures of a run and the Markdown table they make.

use std::fmt;

use crate::child::Figure;

/// Figures by row and contender, rows in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<(String, Vec<Option<f64>>)>,
}

impl Table {
    /// A table with a column for each contender.
    pub fn new(columns: impl IntoIterator<Item = &'static str>) -> Table {
        Table {
            columns: columns.into_iter().map(str::to_owned).collect(),
            rows: Vec::new(),
        }
    }

    /// Puts a figure in its place; a contender without a column is passed over.
    pub fn add(&mut self, figure: Figure) {
        let Some(column) = self.column(&figure.contender) else {
            return;
        };
        let found = self.rows.iter().position(|(name, _)| *name == figure.row);
        let row = found.unwrap_or_else(|| {
            let empty = vec![None; self.columns.len()];
            self.rows.push((figure.row, empty));
            self.rows.len() - 1
        });
        self.rows[row].1[column] = Some(figure.value);
    }

    /// The figure of that contender in that row.
    pub fn get(&self, row: &str, contender: &str) -> Option<f64> {
        let column = self.column(contender)?;
        let (_, cells) = self.rows.iter().find(|(name, _)| name == row)?;
        cells[column]
    }

    fn column(&self, contender: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == contender)
    }
}

impl fmt::Display for Table {
    /// Markdown; beside each figure its ratio to the first column's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![header(&self.columns)];
        for (row, cells) in &self.rows {
            let first = cells.first().copied().flatten();
            let mut line = vec![row.clone()];
            for (column, cell) in cells.iter().enumerate() {
                line.push(match (cell, first) {
                    (None, _) => "–".to_owned(),
                    (Some(value), Some(first)) if column > 0 && first > 0.0 => {
                        format!("{} ({}x)", short(*value), ratio(value / first))
                    }
                    (Some(value), _) => short(*value),
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

fn header(columns: &[String]) -> Vec<String> {
    let mut header = vec!["ns a decision, unless said otherwise".to_owned()];
    header.extend(columns.iter().cloned());
    header
}

/// Three digits where there are so many.
pub fn short(value: f64) -> String {
    if value < 9.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A ratio with two digits or more.
pub fn ratio(value: f64) -> String {
    if value < 0.995 {
        format!("{value:.2}")
    } else {
        short(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(row: &str, contender: &str, value: f64) -> Figure {
        Figure {
            row: row.into(),
            contender: contender.into(),
            value,
        }
    }

    #[test]
    fn a_table_shows_the_ratio_to_its_first_column() {
        let mut table = Table::new(["ours", "theirs", "other"]);
        table.add(figure("1 key", "theirs", 30.0));
        table.add(figure("1 key", "ours", 10.0));
        table.add(figure("2 keys", "other", 5.0));
        table.add(figure("2 keys", "stranger", 5.0));
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].ends_with("|   10 | 30 (3.0x) |     – |"), "{text}");
        assert!(lines[3].ends_with("|    – |         – |   5.0 |"), "{text}");
        assert_eq!(table.get("1 key", "theirs"), Some(30.0));
        assert_eq!(table.get("1 key", "other"), None);
    }

    #[test]
    fn figures_are_as_long_as_they_are_exact() {
        assert_eq!(short(4.26), "4.3");
        assert_eq!(short(413.8), "414");
        assert_eq!(ratio(0.523), "0.52");
        assert_eq!(ratio(19.4), "19");
    }
}
