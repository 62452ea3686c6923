//! The `match` field of a rule.

use http::Method;

use super::{Span, Spanned, Text, Validator, code, schema};
use crate::config::diagnostic::nearest;
use crate::config::schema::{OptionalField, Shorthand, Table};
use crate::rules::{HeaderCondition, HeaderMatcher, Matcher};

const STANDARD_METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

impl Validator<'_> {
    /// A matcher and the spans of its paths.
    pub(super) fn matcher(&mut self, field: &schema::Match) -> (Matcher, Vec<Span>) {
        let help = |name: &str| format!("remove `{name}` to match any");
        let mut matcher = Matcher::default();
        let mut spans = Vec::new();
        for item in self.non_empty("path", &field.path, help("path")) {
            if let Some(path) = self.parse(code::PATH, item) {
                matcher.paths.push(path);
                spans.push(item.span);
            }
        }
        for item in self.non_empty("method", &field.method, help("method")) {
            matcher.methods.extend(self.method(item));
        }
        for item in self.non_empty("host", &field.host, help("host")) {
            matcher.hosts.extend(self.parse(code::HOST, item));
        }
        for item in self.non_empty("grpc", &field.grpc, help("grpc")) {
            matcher.grpc.extend(self.parse(code::PATH, item));
        }
        if let Some(table) = field.header.value() {
            matcher.headers = self.header_matches(table);
        }
        (matcher, spans)
    }

    pub(super) fn method(&mut self, field: &Spanned<Text>) -> Option<Method> {
        let text = field.get()?;
        let upper = text.text.to_ascii_uppercase();
        let is_any = matches!(upper.as_str(), "*" | "ANY" | "ALL");
        let is_lower = text.text.bytes().any(|byte| byte.is_ascii_lowercase());
        let method = Method::from_bytes(text.text.as_bytes()).ok();
        let Some(method) = method.filter(|_| !is_any && !is_lower) else {
            let help = if is_any {
                "remove `method` to match any".to_owned()
            } else if Method::from_bytes(upper.as_bytes()).is_ok() && text.is_literal() {
                format!("methods are uppercase: `{upper}`")
            } else {
                "expected a method such as `GET`, or a list such as `[GET, HEAD]`".to_owned()
            };
            let message = format!("invalid method {}", text.quoted());
            self.error(code::METHOD, field.span, message).help(help);
            return None;
        };
        if !STANDARD_METHODS.contains(&method.as_str()) && text.is_literal() {
            let lower = STANDARD_METHODS.map(str::to_ascii_lowercase);
            if let Some(near) = nearest(method.as_str(), lower.iter().map(String::as_str)) {
                let message = format!("{} is not a standard method", text.quoted());
                self.diagnostics
                    .warning("rules::unusual-method", field.span, message)
                    .help(format!("did you mean `{}`?", near.to_ascii_uppercase()));
            }
        }
        Some(method)
    }

    fn header_matches(&mut self, table: &Table<schema::HeaderTest>) -> Vec<HeaderMatcher> {
        let mut matches = Vec::new();
        for (name, field) in &table.0 {
            let name = self.header_name(name);
            let condition = match field.get() {
                None => None,
                Some(Shorthand::Value(list)) => {
                    if list.0.is_empty() {
                        let message = "an empty list matches no header";
                        self.error(code::NO_VALUE, field.span, message)
                            .help("write `{ present: false }` to match its absence");
                    }
                    let items = list.0.iter();
                    let globs = items.filter_map(|item| self.parse(code::HEADER, item));
                    let globs: Vec<_> = globs.collect();
                    // A lone invalid value must not match every header.
                    (!globs.is_empty()).then_some(HeaderCondition::Matches(globs))
                }
                Some(Shorthand::Map(map)) => map.present.get().map(|flag| match flag.0 {
                    true => HeaderCondition::Present,
                    false => HeaderCondition::Absent,
                }),
            };
            if let Some((name, condition)) = name.zip(condition) {
                matches.push(HeaderMatcher { name, condition });
            }
        }
        matches
    }
}
