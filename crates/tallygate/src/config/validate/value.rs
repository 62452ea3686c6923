//! Scalars: integers within bounds, quotas, durations, networks, header names.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::http::Network;
use http::HeaderName;
use tallygate_core::Quota;

use super::{Spanned, Text, Validator, code};
use crate::config::schema::Integer;
use crate::config::source::Span;
use crate::rules::TextError;

impl Validator<'_> {
    pub(super) fn integer<T>(
        &mut self,
        name: &str,
        field: &Spanned<Integer>,
        range: RangeInclusive<T>,
    ) -> Option<T>
    where
        T: TryFrom<u64> + PartialOrd + Display + Copy,
    {
        let Integer(number) = *field.get()?;
        let value = T::try_from(number).ok();
        if let Some(value) = value.filter(|value| range.contains(value)) {
            return Some(value);
        }
        // Do not show a value from the environment.
        let is_literal = self.text_start(field.span, &number.to_string()).is_some();
        let found = if is_literal {
            format!(" {number}")
        } else {
            String::new()
        };
        let message = match value.is_some_and(|value| value < *range.start()) {
            true => format!("`{name}`{found} is below the minimum of {}", range.start()),
            false => format!("`{name}`{found} is above the maximum of {}", range.end()),
        };
        self.error(code::OUT_OF_RANGE, field.span, message);
        None
    }

    pub(super) fn size<T>(
        &mut self,
        name: &str,
        field: &Option<Spanned<Integer>>,
        range: RangeInclusive<T>,
    ) -> Option<T>
    where
        T: TryFrom<u64> + PartialOrd + Display + Copy,
    {
        self.integer(name, field.as_ref()?, range)
    }

    pub(super) fn cost_or(
        &mut self,
        name: &str,
        field: &Option<Spanned<Integer>>,
        default: u32,
    ) -> Option<u32> {
        match field {
            None => Some(default),
            Some(field) => self.integer(name, field, 0..=u32::MAX),
        }
    }

    pub(super) fn parse<T: FromStr<Err = TextError>>(
        &mut self,
        code: &'static str,
        field: &Spanned<Text>,
    ) -> Option<T> {
        let help = |error: &TextError| format!("expected something like {}", error.example());
        self.parse_or_help(code, field, help)
    }

    pub(super) fn network(&mut self, field: &Spanned<Text>, help: &str) -> Option<Network> {
        self.parse_or_help(code::NETWORK, field, |_| help.to_owned())
    }

    fn parse_or_help<T: FromStr<Err = TextError>>(
        &mut self,
        code: &'static str,
        field: &Spanned<Text>,
        help: impl FnOnce(&TextError) -> String,
    ) -> Option<T> {
        let text = field.get()?;
        let error = match text.text.parse() {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let message = format!("{} {}", text.quoted(), error.reason());
        self.error(code, field.span, message).help(help(&error));
        None
    }

    /// A quota. Errors point inside its text.
    pub(super) fn quota(&mut self, field: &Spanned<Text>) -> Option<Quota> {
        let text = field.get()?;
        let error = match text.text.parse::<Quota>() {
            Ok(quota) => return Some(quota),
            Err(error) => error,
        };
        let mut span = field.span;
        let mut message = format!("invalid quota {}", text.quoted());
        if text.is_literal() {
            message = error.problem().to_string();
            if let Some(range) = error.span()
                && let Some(start) = self.text_start(span, &text.text)
            {
                span = Span::new(span.file, start + range.start..start + range.end);
            }
        }
        self.error(code::QUOTA, span, message)
            .help(format!("a valid quota: `{}`", error.example_text()));
        None
    }

    /// A duration, in the syntax of a quota's period.
    pub(super) fn duration(&mut self, field: &Spanned<Text>) -> Option<Duration> {
        let text = field.get()?;
        if !text.text.contains([' ', '/'])
            && let Ok(quota) = format!("1/{}", text.text).parse::<Quota>()
        {
            return Some(quota.period());
        }
        let message = format!("invalid duration {}, expected 1ms to 366d", text.quoted());
        self.error(code::DURATION, field.span, message)
            .help("expected a duration such as `20ms`, `5s` or `1min30s`");
        None
    }

    pub(super) fn header_name(&mut self, field: &Spanned<Text>) -> Option<HeaderName> {
        let text = field.get()?;
        let name = HeaderName::from_bytes(text.text.as_bytes());
        if name.is_err() {
            let message = format!("invalid header name {}", text.quoted());
            self.error(code::HEADER, field.span, message)
                .help("expected a name such as `x-api-key`, without `:` and spaces");
        }
        name.ok()
    }

    pub(super) fn non_empty_text(&mut self, name: &str, field: &Spanned<Text>) -> Option<String> {
        let text = &field.get()?.text;
        if text.is_empty() {
            self.error(code::NO_VALUE, field.span, format!("`{name}` is empty"));
            return None;
        }
        Some(text.clone())
    }

    /// The offset at which a text starts in its file, if it is there literally.
    fn text_start(&self, span: Span, text: &str) -> Option<usize> {
        let source = self.sources.slice(span);
        let at = source.find(text)?;
        // It may only be surrounded by quotes.
        (at <= 1 && source.len() <= text.len() + 2).then_some(span.start as usize + at)
    }
}
