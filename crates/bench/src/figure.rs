//! One measured value on its way into a table, also from a child process to its parent.

/// One measured value and where it belongs.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The row of the table.
    pub row: String,
    /// The contender, the column.
    pub contender: String,
    /// The value, in the row's unit.
    pub value: f64,
}

impl Figure {
    /// Writes it on standard output, where the parent reads.
    pub fn print(&self) {
        println!("{}\t{}\t{}", self.row, self.contender, self.value);
    }

    /// Reads a printed one; none if the line is something else.
    pub fn parse(line: &str) -> Option<Figure> {
        let mut parts = line.split('\t');
        let figure = Figure {
            row: parts.next()?.to_owned(),
            contender: parts.next()?.to_owned(),
            value: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_figure_is_passed_over() {
        let figure = Figure::parse("1M uniform\tgovernor, foldhash\t214.5").unwrap();
        assert_eq!(figure.contender, "governor, foldhash");
        assert_eq!(figure.value, 214.5);
        assert_eq!(Figure::parse("warning: something"), None);
        assert_eq!(Figure::parse("a\tb\tc"), None);
    }
}
