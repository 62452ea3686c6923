//! Which requests a rule is about. Knows what people write where they mean "any".

use http::Method;

use super::{At, Checker, Problem, Span, Text, code, schema};
use crate::config::diagnostic::nearest;
use crate::config::field::{OneOrMany, Table};
use crate::config::lint;
use tallygate::rules::{Glob, HeaderMatch, HeaderTest, Match};

/// Methods that are usual, near which another one is probably a slip.
const USUAL: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

impl Checker<'_> {
    /// Which requests, and where each path stands.
    pub(super) fn when(&mut self, raw: &schema::Match) -> (Match, Vec<Span>) {
        let mut paths = Vec::new();
        let mut places = Vec::new();
        for at in self.list("path", raw.path.as_ref()) {
            if let Some(path) = self.parsed(code::PATH, at) {
                paths.push(path);
                places.push(at.span);
            }
        }
        let methods = self.list("method", raw.method.as_ref());
        let methods = methods.iter().filter_map(|at| self.method(at)).collect();
        let hosts = self.list("host", raw.host.as_ref());
        let hosts = hosts
            .iter()
            .filter_map(|at| self.parsed(code::HOST, at))
            .collect();
        let grpc = self.list("grpc", raw.grpc.as_ref());
        let grpc = grpc
            .iter()
            .filter_map(|at| self.parsed(code::PATH, at))
            .collect();
        let headers = raw.header.as_ref().and_then(At::get);
        let headers = headers.map_or_else(Vec::new, |table| self.header_tests(table));
        let when = Match {
            methods,
            hosts,
            paths,
            headers,
            grpc,
        };
        (when, places)
    }

    /// A list that has something in it.
    fn list<'r>(&mut self, what: &str, at: Option<&'r At<OneOrMany<Text>>>) -> &'r [At<Text>] {
        let Some(at) = at else { return &[] };
        let items = at.get().map_or(&[][..], |list| list.0.as_slice());
        if at.value.is_some() && items.is_empty() {
            let message = format!("`{what}` is an empty list, which nothing can match");
            let problem = Problem::error(code::NO_VALUE, at.span, message);
            self.note(problem.help(format!("leave `{what}` out to match any")));
        }
        items
    }

    pub(super) fn method(&mut self, at: &At<Text>) -> Option<Method> {
        let text = at.get()?;
        let upper = text.text.to_ascii_uppercase();
        if matches!(upper.as_str(), "*" | "ANY" | "ALL") {
            let message = format!("{} is no method", text.shown());
            let problem = Problem::error(code::METHOD, at.span, message);
            return self.refuse(problem.help("leave `method` out to match any"));
        }
        let method = Method::from_bytes(text.text.as_bytes()).ok();
        let Some(method) = method.filter(|_| !text.text.bytes().any(|b| b.is_ascii_lowercase()))
        else {
            let message = format!("{} is no method", text.shown());
            let hint = if Method::from_bytes(upper.as_bytes()).is_ok() && text.is_public() {
                format!("methods are in upper case: `{upper}`")
            } else {
                "write it like GET or [GET, HEAD]".to_owned()
            };
            return self.refuse(Problem::error(code::METHOD, at.span, message).help(hint));
        };
        if !USUAL.contains(&method.as_str()) && text.is_public() {
            let lower = USUAL.map(str::to_ascii_lowercase);
            let near = nearest(method.as_str(), lower.iter().map(String::as_str));
            if let Some(near) = near {
                let message = format!("{} is an unusual method", text.shown());
                let problem = Problem::warning(lint::UNUSUAL_METHOD, at.span, message);
                let meant = near.to_ascii_uppercase();
                self.note(problem.help(format!("did you mean `{meant}`?")));
            }
        }
        Some(method)
    }

    fn header_tests(&mut self, table: &Table<schema::HeaderTest>) -> Vec<HeaderMatch> {
        let mut matches = Vec::new();
        for (name, test) in &table.0 {
            let header = self.header_name(name);
            let test = match test.get() {
                None => None,
                Some(schema::HeaderTest::Text(at)) => {
                    self.glob(at).map(|glob| HeaderTest::Like(vec![glob]))
                }
                Some(schema::HeaderTest::List(list)) => {
                    if list.is_empty() {
                        let message = "an empty list matches no header";
                        let problem = Problem::error(code::NO_VALUE, test.span, message);
                        self.note(problem.help("`{ present: false }` is for its absence"));
                    }
                    let globs = list.iter().filter_map(|at| self.glob(at)).collect();
                    Some(HeaderTest::Like(globs))
                }
                Some(schema::HeaderTest::Map(map)) => map.present.get().map(|flag| match flag.0 {
                    true => HeaderTest::Present,
                    false => HeaderTest::Absent,
                }),
            };
            let both = header.zip(test);
            matches.extend(both.map(|(name, test)| HeaderMatch { name, test }));
        }
        matches
    }

    fn glob(&mut self, at: &At<Text>) -> Option<Glob> {
        self.parsed(code::HEADER, at)
    }
}
