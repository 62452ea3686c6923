//! Single values: numbers in their bounds, quotas, durations, networks, names. Knows nothing of
//! which field they are for.

use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;
use tallygate::http::Network;
use tallygate_core::Quota;

use super::Checker;
use crate::config::diagnostic::{Problem, code};
use crate::config::field::{At, Flag, Text, Whole};
use crate::config::source::Span;
use tallygate::rules::TextError;

impl Checker<'_> {
    /// A whole number within bounds.
    pub(super) fn whole(
        &mut self,
        what: &str,
        at: &At<Whole>,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let Whole(number) = *at.get()?;
        let public = self.is_written(at.span, &number.to_string());
        let shown = if public {
            format!(" {number}")
        } else {
            String::new()
        };
        let message = if number < least {
            format!("`{what}`{shown} is below {least}")
        } else if number > most {
            format!("`{what}`{shown} is above {most}")
        } else {
            return Some(number);
        };
        self.refuse(Problem::error(code::OUT_OF_RANGE, at.span, message))
    }

    /// A whole number that fits a cost.
    pub(super) fn units(&mut self, what: &str, at: &At<Whole>) -> Option<u32> {
        let number = self.whole(what, at, 0, u32::MAX.into())?;
        u32::try_from(number).ok()
    }

    /// A yes or no, or what holds unless it is given.
    pub(super) fn flag(&self, at: Option<&At<Flag>>, otherwise: bool) -> bool {
        at.and_then(At::get).map_or(otherwise, |flag| flag.0)
    }

    /// Whatever the rules can read from text.
    pub(super) fn parsed<T: FromStr<Err = TextError>>(
        &mut self,
        code: &'static str,
        at: &At<Text>,
    ) -> Option<T> {
        let text = at.get()?;
        match text.text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                let message = format!("{} {}", text.shown(), error.why());
                let problem = Problem::error(code, at.span, message);
                self.refuse(problem.help(format!("write it like {}", error.example())))
            }
        }
    }

    /// A quota; an error points inside its text.
    pub(super) fn quota(&mut self, at: &At<Text>) -> Option<Quota> {
        let text = at.get()?;
        let error = match text.text.parse::<Quota>() {
            Ok(quota) => return Some(quota),
            Err(error) => error,
        };
        let hint = format!("a correct quota: `{}`", error.example_text());
        if !text.is_public() {
            let message = format!("{} is no quota", text.shown());
            return self.refuse(Problem::error(code::QUOTA, at.span, message).help(hint));
        }
        let inside = error.span().and_then(|range| {
            let start = self.text_start(at.span, &text.text)?;
            let file = at.span.file;
            Some(Span::new(file, start + range.start..start + range.end))
        });
        let problem = Problem::error(code::QUOTA, inside.unwrap_or(at.span), error.problem());
        self.refuse(problem.help(hint))
    }

    /// A duration, written as a quota's period is.
    pub(super) fn duration(&mut self, at: &At<Text>) -> Option<Duration> {
        let text = at.get()?;
        // A quota's periods are the one way to write a span of time.
        let fits = !text.text.contains(' ') && !text.text.contains('/');
        let quota = format!("1/{}", text.text).parse::<Quota>();
        match quota {
            Ok(quota) if fits => Some(quota.period()),
            Ok(_) | Err(_) => {
                let message = format!("{} is no duration from 1ms to 366d", text.shown());
                let problem = Problem::error(code::DURATION, at.span, message);
                self.refuse(problem.help("write it like 20ms, 5s or 1min30s"))
            }
        }
    }

    pub(super) fn network(&mut self, at: &At<Text>) -> Option<Network> {
        let text = at.get()?;
        match text.text.parse::<Network>() {
            Ok(network) => Some(network),
            Err(error) => {
                // What is wrong comes after the text in quotes; the hint is told apart.
                let whole = error.to_string();
                let why = whole.rsplit('"').next().unwrap_or_default();
                let (why, _) = why.split_once("; ").unwrap_or((why, ""));
                let message = format!("{}{why}", text.shown());
                let problem = Problem::error(code::NETWORK, at.span, message);
                self.refuse(problem.help("write it like 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7"))
            }
        }
    }

    pub(super) fn header_name(&mut self, at: &At<Text>) -> Option<HeaderName> {
        let text = at.get()?;
        match HeaderName::from_bytes(text.text.as_bytes()) {
            Ok(name) => Some(name),
            Err(_) => {
                let message = format!("{} is no name of a header", text.shown());
                let problem = Problem::error(code::HEADER, at.span, message);
                self.refuse(problem.help("write it like x-api-key, without `:` and spaces"))
            }
        }
    }

    /// A text that is not empty, such as a cookie's name.
    pub(super) fn filled(&mut self, what: &str, at: &At<Text>) -> Option<String> {
        let text = at.get()?;
        if text.text.is_empty() {
            let message = format!("`{what}` is empty");
            return self.refuse(Problem::error(code::NO_VALUE, at.span, message));
        }
        Some(text.text.clone())
    }

    /// Where a text begins in its file, if it stands there as it is.
    fn text_start(&self, span: Span, text: &str) -> Option<usize> {
        let written = self.sources.slice(span);
        let at = written.find(text)?;
        // Quotes are all that may stand around it.
        (at <= 1 && written.len() <= text.len() + 2).then_some(span.start as usize + at)
    }

    /// Whether a value stands in the file as it is; if not, the environment had a part in it.
    fn is_written(&self, span: Span, value: &str) -> bool {
        self.text_start(span, value).is_some()
    }
}
