//! Work done in fresh processes of the same program: a heap that another measurement has used
//! would change where keys lie and what memory seems to be taken.

use std::env;
use std::io;
use std::process::{Command, Stdio};

use crate::options::Options;

/// One figure on its way from a child to its parent.
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

    fn parse(line: &str) -> Option<Figure> {
        let mut parts = line.split('\t');
        let figure = Figure {
            row: parts.next()?.to_owned(),
            contender: parts.next()?.to_owned(),
            value: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(figure)
    }
}

/// Runs this program again for one task and returns the figures it prints.
///
/// # Errors
///
/// The program cannot be started, or it fails.
pub fn figures(options: &Options, task: &[String]) -> io::Result<Vec<Figure>> {
    let output = Command::new(env::current_exe()?)
        .args(&options.given)
        .arg("--child")
        .args(task)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        let task = task.join(" ");
        return Err(io::Error::other(format!("{task}: {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(Figure::parse).collect())
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
