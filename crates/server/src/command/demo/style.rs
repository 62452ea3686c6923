//! Colour, or none. Knows the terminal's codes; knows nothing of what is painted.

use std::io::{self, IsTerminal};

use crate::cli::Color;

/// Whether to paint.
#[derive(Clone, Copy)]
pub(super) struct Ink {
    colours: bool,
}

impl Ink {
    /// Follows the wish; left to itself, colours a terminal unless `NO_COLOR` is set.
    pub(super) fn choose(color: Color) -> Self {
        let colours = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                io::stdout().is_terminal() && !unwanted
            }
        };
        Ink { colours }
    }

    pub(super) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(super) fn late(self, text: &str) -> String {
        self.paint("36", text)
    }

    pub(super) fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(super) fn quiet(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
