//! One measured value of a table, also passed from a child process to its parent.

/// One measured value and its cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The row of the table.
    pub row: String,
    /// The contender, the column.
    pub contender: String,
    /// The value, in the row's unit.
    pub value: f64,
}

impl Measurement {
    /// Prints the measurement for the parent process.
    pub fn print(&self) {
        println!("{}\t{}\t{}", self.row, self.contender, self.value);
    }

    /// Parses a printed measurement; `None` for any other line.
    pub fn parse(line: &str) -> Option<Measurement> {
        let mut parts = line.split('\t');
        let measurement = Measurement {
            row: parts.next()?.to_owned(),
            contender: parts.next()?.to_owned(),
            value: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(measurement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_a_measurement_is_ignored() {
        let measurement = Measurement::parse("1M uniform\tgovernor, foldhash\t214.5").unwrap();
        assert_eq!(measurement.contender, "governor, foldhash");
        assert_eq!(measurement.value, 214.5);
        assert_eq!(Measurement::parse("warning: something"), None);
        assert_eq!(Measurement::parse("a\tb\tc"), None);
    }
}
