//! Terminal colours.

use std::io::{self, IsTerminal};

use crate::cli::Color;

#[derive(Clone, Copy)]
pub(super) enum Code {
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Cyan = 36,
}

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

    pub(super) fn paint(self, code: Code, text: &str) -> String {
        match self.enabled {
            true => format!("\x1b[{}m{text}\x1b[0m", code as u8),
            false => text.to_owned(),
        }
    }
}
