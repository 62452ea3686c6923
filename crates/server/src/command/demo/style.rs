//! Terminal colours.

use std::io::{self, IsTerminal};

use crate::cli::Color;

#[derive(Clone, Copy)]
pub(super) struct Style {
    enabled: bool,
}

impl Style {
    /// `Auto` colours a terminal unless `NO_COLOR` is set.
    pub(super) fn new(color: Color) -> Self {
        let enabled = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                io::stdout().is_terminal() && !no_color
            }
        };
        Style { enabled }
    }

    pub(super) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(super) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(super) fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.enabled {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
