//! The key of a rule: the parts of a request that identify a client.

use super::{OneOrMany, OptionalField, OptionalList, Span, Spanned, Text, Validator, code, schema};
use crate::config::diagnostic::did_you_mean;
use crate::config::schema::Shorthand;
use crate::rules::{MAX_PARTS, Matcher, Part, PathPattern, Source};

/// The parts without a mapping.
const WORDS: [&str; 4] = ["ip", "route", "method", "host"];
const PARTS: &str =
    "expected `ip`, `route`, `method`, `host`, or a mapping such as `{ header: x-user }`";

impl Validator<'_> {
    /// A key and the spans of its parts. The key is `None` if a part is invalid. Without a matcher,
    /// path parameters are not looked up.
    pub(super) fn key(
        &mut self,
        parts: &OneOrMany<schema::Part>,
        span: Span,
        matcher: Option<&Matcher>,
    ) -> (Option<Vec<Part>>, Vec<Span>) {
        let spans = parts.0.iter().map(|part| part.span).collect();
        if parts.0.is_empty() {
            self.error(code::KEY, span, "`key` is an empty list")
                .help("remove `key` to count all clients together, or add a part: `key: ip`");
            return (None, spans);
        }
        if let Some(part) = parts.0.get(MAX_PARTS) {
            let message = format!("a key has at most {MAX_PARTS} parts");
            self.error(code::TOO_MANY, part.span, message);
            return (None, spans);
        }
        let mut key = Vec::new();
        let mut valid = true;
        for part in &parts.0 {
            let mut sources = Vec::new();
            valid &= self.part(part, matcher, &mut sources).is_some();
            let mut sources = sources.into_iter();
            let first = sources.next();
            key.extend(first.map(|first| sources.fold(Part::new(first), Part::or)));
        }
        (valid.then_some(key), spans)
    }

    /// Adds the sources of a part: its own, and those under `or`.
    fn part(
        &mut self,
        field: &Spanned<schema::Part>,
        matcher: Option<&Matcher>,
        sources: &mut Vec<Source>,
    ) -> Option<()> {
        let part = match field.get()? {
            Shorthand::Value(text) => {
                sources.push(self.named_source(field.span, text)?);
                return Some(());
            }
            Shorthand::Map(part) => part,
        };
        let source = self.source(part, field.span, matcher);
        let mut valid = source.is_some() && (part.or.is_none() || part.or.value().is_some());
        sources.extend(source);
        for fallback in part.or.items() {
            valid &= self.part(fallback, matcher, sources).is_some();
        }
        if sources.len() > MAX_PARTS {
            let message = format!("a key part has at most {MAX_PARTS} sources");
            self.error(code::TOO_MANY, field.span, message);
            return None;
        }
        valid.then_some(())
    }

    fn named_source(&mut self, span: Span, text: &Text) -> Option<Source> {
        if let Ok(source) = text.text.parse() {
            return Some(source);
        }
        let lower = text.text.to_lowercase();
        let help = match lower.as_str() {
            _ if !text.is_literal() => PARTS.to_owned(),
            "header" | "cookie" | "query" | "path" | "claim" | "constant" => {
                format!("name it: `{{ {lower}: … }}`")
            }
            "client_ip" | "remote_addr" | "address" => "the client's address is `ip`".to_owned(),
            "global" | "all" => "remove `key` to count all clients together".to_owned(),
            name if name.starts_with("x-") || name == "authorization" => {
                format!("a header is written `{{ header: {lower} }}`")
            }
            name => did_you_mean(name, WORDS).unwrap_or_else(|| PARTS.to_owned()),
        };
        let message = format!("unknown key part {}", text.quoted());
        self.error(code::KEY, span, message).help(help);
        None
    }

    fn source(
        &mut self,
        part: &schema::PartSource,
        span: Span,
        matcher: Option<&Matcher>,
    ) -> Option<Source> {
        if part.claim.is_some() && part.header.is_none() {
            self.error(code::MISSING_FIELD, span, "`claim` requires `header`")
                .help("such as `{ claim: sub, header: x-jwt-payload }`");
            return None;
        }
        let fields = [
            ("header", part.header.is_some() && part.claim.is_none()),
            ("cookie", part.cookie.is_some()),
            ("query", part.query.is_some()),
            ("path", part.path.is_some()),
            ("claim", part.claim.is_some()),
            ("constant", part.constant.is_some()),
        ];
        let help = "several parts are a list; a fallback is under `or`";
        self.exactly_one("a key part", span, &fields, help)?;
        if let Some(claim) = &part.claim {
            let name = self.non_empty_text("claim", claim)?;
            let header = self.header_name(part.header.as_ref()?)?;
            return Some(Source::Claim { header, name });
        }
        if let Some(field) = &part.header {
            return self.header_name(field).map(Source::Header);
        }
        if let Some(field) = &part.cookie {
            return self.non_empty_text("cookie", field).map(Source::Cookie);
        }
        if let Some(field) = &part.query {
            return self.non_empty_text("query", field).map(Source::Query);
        }
        if let Some(field) = &part.path {
            return self.path_parameter(field, matcher).map(Source::Path);
        }
        let text = part.constant.value()?;
        Some(Source::Constant(text.text.clone()))
    }

    fn path_parameter(
        &mut self,
        field: &Spanned<Text>,
        matcher: Option<&Matcher>,
    ) -> Option<String> {
        let name = self.non_empty_text("path", field)?;
        let Some(matcher) = matcher else {
            return Some(name);
        };
        let text = field.get()?;
        let has = |path: &PathPattern| path.parameter_names().any(|own| own == name);
        let some = matcher.paths.iter().any(has);
        if matcher.has_parameter(&name) {
            return Some(name);
        }
        let paths = matcher.paths.iter();
        let known = paths.flat_map(|path| path.parameter_names());
        let help = did_you_mean(&name, known.filter(|own| *own != name));
        let help = help.filter(|_| text.is_literal());
        let missing = if some { "not every path" } else { "no path" };
        let message = format!("{missing} of this rule has the parameter {}", text.quoted());
        self.error(code::KEY, field.span, message)
            .help(help.unwrap_or_else(|| {
                "a path names parameters in braces: `match: { path: '/users/{id}' }`".to_owned()
            }));
        None
    }
}
