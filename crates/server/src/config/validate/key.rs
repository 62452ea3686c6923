//! Who is limited: the parts of a key. Knows that a path's parameter has to be in the path.

use super::{At, Checker, Problem, Span, Text, code, schema};
use crate::config::diagnostic::did_you_mean;
use crate::config::field::OneOrMany;
use tallygate::rules::{MAX_PARTS, Match, Part, PathPattern, Source};

/// The words that are a part of a key by themselves.
const WORDS: [&str; 4] = ["ip", "route", "method", "host"];
/// The fields of a part that is a mapping.
const FIELDS: [&str; 6] = ["header", "cookie", "query", "path", "claim", "constant"];

impl Checker<'_> {
    /// A key, and where each part stands; none if a part is wrong.
    pub(super) fn key(
        &mut self,
        parts: &OneOrMany<schema::Part>,
        span: Span,
        when: &Match,
    ) -> (Option<Vec<Part>>, Vec<Span>) {
        if parts.0.is_empty() {
            let problem = Problem::error(code::KEY, span, "`key` has no part");
            let hint = "leave `key` out to limit all clients together, or say who: `key: ip`";
            self.note(problem.help(hint));
            return (None, Vec::new());
        }
        let places = parts.0.iter().map(|at| at.span).collect();
        if let Some(at) = parts.0.get(MAX_PARTS) {
            let message = format!("a key of more than {MAX_PARTS} parts");
            self.note(Problem::error(code::TOO_MANY, at.span, message));
            return (None, places);
        }
        let mut key = Vec::new();
        let mut right = true;
        for at in &parts.0 {
            let mut sources = Vec::new();
            right &= self.sources(at, when, &mut sources);
            let mut sources = sources.into_iter();
            let first = sources.next();
            key.extend(first.map(|first| sources.fold(Part::new(first), Part::or)));
        }
        (right.then_some(key), places)
    }

    /// Adds where a part is found, in order. Says whether all of it is right.
    fn sources(&mut self, at: &At<schema::Part>, when: &Match, sources: &mut Vec<Source>) -> bool {
        let map = match at.get() {
            None => return false,
            Some(schema::Part::Text(text)) => return self.word(at.span, text, sources),
            Some(schema::Part::Map(map)) => map,
        };
        let source = self.source(map, at.span, when);
        let mut right = source.is_some();
        sources.extend(source);
        let others = map.or.as_ref();
        for other in others.and_then(At::get).map_or(&[][..], |list| &list.0) {
            right &= self.sources(other, when, sources);
        }
        if sources.len() > MAX_PARTS {
            let message = format!("a part with more than {MAX_PARTS} places to look");
            self.note(Problem::error(code::TOO_MANY, at.span, message));
            return false;
        }
        right && others.is_none_or(|at| at.value.is_some())
    }

    fn word(&mut self, span: Span, text: &Text, sources: &mut Vec<Source>) -> bool {
        if let Ok(source) = text.text.parse() {
            sources.push(source);
            return true;
        }
        let message = format!("{} is no part of a key", text.shown());
        let problem = Problem::error(code::KEY, span, message);
        let lower = text.text.to_lowercase();
        let hint = if !text.is_public() {
            "a part is `ip`, `route`, `method`, `host`, or `{ header: x-user }`".to_owned()
        } else if FIELDS.contains(&lower.as_str()) {
            format!("say which: `{{ {lower}: … }}`")
        } else if lower.starts_with("x-") || matches!(lower.as_str(), "authorization") {
            format!("a header is written `{{ header: {lower} }}`")
        } else if matches!(lower.as_str(), "client_ip" | "remote_addr" | "address") {
            "the client's address is `ip`".to_owned()
        } else if lower == "global" || lower == "all" {
            "leave `key` out to limit all clients together".to_owned()
        } else {
            did_you_mean(&lower, WORDS).unwrap_or_else(|| {
                "a part is `ip`, `route`, `method`, `host`, or `{ header: x-user }`".to_owned()
            })
        };
        self.note(problem.help(hint));
        false
    }

    /// Where a part that is a mapping is found.
    fn source(&mut self, map: &schema::PartMap, span: Span, when: &Match) -> Option<Source> {
        if let Some(claim) = &map.claim {
            let Some(header) = &map.header else {
                let message = "a `claim` needs the `header` it is in";
                let problem = Problem::error(code::MISSING_FIELD, span, message);
                let hint = "such as `{ claim: sub, header: x-jwt-payload }`";
                return self.refuse(problem.help(hint));
            };
            self.alone(map, span, 2)?;
            let name = self.filled("claim", claim)?;
            let header = self.header_name(header)?;
            return Some(Source::Claim { header, name });
        }
        self.alone(map, span, 1)?;
        if let Some(at) = &map.header {
            return self.header_name(at).map(Source::Header);
        }
        if let Some(at) = &map.cookie {
            return self.filled("cookie", at).map(Source::Cookie);
        }
        if let Some(at) = &map.query {
            return self.filled("query", at).map(Source::Query);
        }
        if let Some(at) = &map.path {
            return self.path_parameter(at, when).map(Source::Path);
        }
        let text = map.constant.as_ref()?.get()?;
        Some(Source::Constant(text.text.clone()))
    }

    /// Makes sure that a part is said in as many fields as it takes.
    fn alone(&mut self, map: &schema::PartMap, span: Span, fields: usize) -> Option<()> {
        let given = [
            &map.header,
            &map.cookie,
            &map.query,
            &map.path,
            &map.claim,
            &map.constant,
        ];
        let given = given.into_iter().flatten().count();
        if given == fields {
            return Some(());
        }
        if given == 0 && self.meant_in(span) {
            return None;
        }
        let (code, message) = match given {
            0 => (code::MISSING_FIELD, "a part of a key has to say what it is"),
            _ => (code::CONTRADICTION, "a part of a key is one thing"),
        };
        let problem = Problem::error(code, span, message);
        self.refuse(problem.help(match given {
            0 => "one of `header`, `cookie`, `query`, `path`, `claim` and `constant`",
            _ => "two parts are a list; `or` is for what to take where the first is missing",
        }))
    }

    fn path_parameter(&mut self, at: &At<Text>, when: &Match) -> Option<String> {
        let name = self.filled("path", at)?;
        let text = at.get()?;
        let mut known = when.paths.iter().flat_map(|path| path.parameter_names());
        let has = |path: &PathPattern| path.parameter_names().any(|own| own == name);
        let some = known.any(|own| own == name);
        if some && when.paths.iter().all(has) {
            return Some(name);
        }
        let known: Vec<&str> = when
            .paths
            .iter()
            .flat_map(|path| path.parameter_names())
            .filter(|own| *own != name)
            .collect();
        let message = match some {
            true => format!(
                "not every path of this rule has the parameter {}",
                text.shown()
            ),
            false => format!("no path of this rule has the parameter {}", text.shown()),
        };
        let problem = Problem::error(code::KEY, at.span, message);
        let near = did_you_mean(&name, known.iter().copied()).filter(|_| text.is_public());
        self.refuse(problem.help(near.unwrap_or_else(|| {
            "a path names it in braces: `match: { path: '/users/{id}' }`".to_owned()
        })))
    }
}
