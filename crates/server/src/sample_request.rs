//! A request that the rules limit, as a `curl` command. The rules themselves decide whether they do.

use std::net::{Ipv4Addr, SocketAddr};

use http::{HeaderName, HeaderValue, Method, Request, Uri};
use tallygate::http::{Head, Peer, Policy};
use tallygate::rules::{HeaderCondition, Rule, Rules, Source};

use crate::endpoints::http_origin;

/// Of more rules, these are tried.
const MAX_RULES: usize = 100;
/// What stands for a value that the rules leave open.
const ANY: &str = "example";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleRequest {
    method: Method,
    path: String,
    query: Vec<String>,
    headers: Vec<(String, String)>,
    /// Whether the response says what is left.
    pub(crate) is_reported: bool,
}

/// Finds a request that one of the rules limits, if it comes from this machine.
pub(crate) fn find(rules: &[Rule], compiled: &Rules) -> Option<SampleRequest> {
    let enforced = rules.iter().filter(|rule| rule.enabled && !rule.shadow);
    let candidates = enforced.take(MAX_RULES).flat_map(|rule| {
        let paths = match rule.matcher.paths.first() {
            None => vec!["/".to_owned()],
            Some(pattern) => example_paths(&pattern.to_string()),
        };
        let requests = paths.into_iter().flat_map(move |path| {
            [true, false].map(|with_key| SampleRequest::new(rule, path.clone(), with_key))
        });
        requests.map(move |request| (rule, request))
    });
    candidates
        .filter_map(|(rule, request)| request.limited_by(rule, compiled))
        .next()
}

/// A request to the check API as a `curl` command, in two parts: the third within a minute is refused.
pub(crate) fn check(api: SocketAddr) -> [String; 2] {
    let head = format!(
        "curl -i {}/v1/check -H 'content-type: application/json'",
        http_origin(api)
    );
    let body = r#"-d '{"key":"ann","quota":"sliding-window-log 2/min"}'"#;
    [head, body.to_owned()]
}

/// Paths that a pattern such as `/users/{id}/**` may match.
fn example_paths(pattern: &str) -> Vec<String> {
    let segments = pattern.split('/').map(|segment| match segment {
        "**" => String::new(),
        _ if segment.starts_with('{') => ANY.to_owned(),
        _ => segment.replace('*', ANY),
    });
    let path = segments.collect::<Vec<_>>().join("/");
    let below = format!("{path}{ANY}");
    vec![path, below]
}

impl SampleRequest {
    fn new(rule: &Rule, path: String, with_key: bool) -> Self {
        let matcher = &rule.matcher;
        let mut request = SampleRequest {
            method: matcher.methods.first().cloned().unwrap_or_default(),
            path,
            ..SampleRequest::default()
        };
        if let Some(host) = matcher.hosts.first() {
            let host = host.to_string().replace('*', "www");
            request.headers.push(("host".to_owned(), host));
        }
        for header in &matcher.headers {
            let value = match &header.condition {
                HeaderCondition::Absent => continue,
                HeaderCondition::Present => ANY.to_owned(),
                HeaderCondition::Matches(globs) => {
                    let glob = globs.first().map(ToString::to_string);
                    glob.unwrap_or_default().replace('*', ANY)
                }
            };
            request.headers.push((header.name.to_string(), value));
        }
        for part in rule.key.iter().filter(|_| with_key) {
            match part.sources().next() {
                // A request from this machine has an address, too.
                _ if part.sources().any(|source| *source == Source::Ip) => {}
                Some(Source::Header(name)) => {
                    request.headers.push((name.to_string(), ANY.to_owned()));
                }
                Some(Source::Cookie(name)) => {
                    let cookie = ("cookie".to_owned(), format!("{name}={ANY}"));
                    request.headers.push(cookie);
                }
                Some(Source::Query(name)) => request.query.push(format!("{name}={ANY}")),
                Some(_) | None => {}
            }
        }
        request
    }

    /// The request, if this rule limits it and no other stops it.
    fn limited_by(mut self, rule: &Rule, compiled: &Rules) -> Option<Self> {
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target().parse::<Uri>().ok()?;
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let value = HeaderValue::from_str(value).ok()?;
            request.headers_mut().append(name, value);
        }
        let peer = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        request.extensions_mut().insert(Peer(peer));
        let plan = compiled.plan(&Head::from(&request));
        let mut charges = plan.charges().iter();
        let own = charges.find(|charge| *charge.settings.name == *rule.name.as_str())?;
        self.is_reported = own.settings.reported;
        plan.stopped().is_none().then_some(self)
    }

    fn target(&self) -> String {
        match self.query.is_empty() {
            true => self.path.clone(),
            false => format!("{}?{}", self.path, self.query.join("&")),
        }
    }

    /// The command that sends it; `origin` is a scheme and an authority.
    pub(crate) fn curl(&self, origin: &str) -> String {
        let mut command = "curl -i".to_owned();
        if origin.starts_with("https:") {
            // The certificate is for another name than the address.
            command += "k";
        }
        match self.method {
            Method::GET => {}
            Method::HEAD => command += " --head",
            ref method => command += &format!(" -X {}", quoted(method.as_str())),
        }
        for (name, value) in &self.headers {
            command += &format!(" -H {}", quoted(&format!("{name}: {value}")));
        }
        let url = format!("{origin}{}", self.target());
        format!("{command} {}", quoted(&url))
    }
}

/// An argument for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/:._-~,@%+".contains(&byte);
    match text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn curl(rules: &str) -> Option<String> {
        let text = format!("version: 1\nrules:\n{rules}");
        let config = config::load_bytes("rules.yaml", text.as_bytes(), &|_| None);
        let set = config
            .map_err(|report| report.render(config::Style::Plain))
            .unwrap()
            .rules;
        let found = find(&set.rules, &Rules::new(set.clone()).unwrap())?;
        Some(found.curl("http://127.0.0.1:8000"))
    }

    #[test]
    fn the_first_rule_that_is_enforced_is_shown() {
        for (rules, expected) in [
            ("  - { name: a, key: ip, limits: 1/s }", "/"),
            (
                "  - { name: s, key: ip, limits: 1/s, shadow: true }\n  \
                 - { name: a, match: { path: /api/** }, key: ip, limits: 1/s }",
                "/api/",
            ),
            (
                "  - { name: a, match: { path: '/users/{id}/*.json' }, key: { path: id }, limits: 1/s }",
                "/users/example/example.json",
            ),
            (
                "  - { name: a, key: { query: user }, limits: 1/s }",
                "/?user=example",
            ),
        ] {
            let shown = curl(rules).unwrap();
            let expected = match expected.contains('?') {
                true => format!("curl -i 'http://127.0.0.1:8000{expected}'"),
                false => format!("curl -i http://127.0.0.1:8000{expected}"),
            };
            assert_eq!(shown, expected, "{rules}");
        }
    }

    #[test]
    fn method_host_and_headers_of_a_rule_are_in_the_command() {
        let rules = "  - name: a\n    match: { method: POST, host: '*.example.com', header: { x-plan: \
                     'p*' } }\n    key: { header: x-api-key }\n    limits: 1/s\n";
        assert_eq!(
            curl(rules).unwrap(),
            "curl -i -X POST -H 'host: www.example.com' -H 'x-plan: pexample' -H 'x-api-key: \
             example' http://127.0.0.1:8000/"
        );
    }

    #[test]
    fn without_a_rule_that_limits_there_is_no_sample() {
        assert_eq!(
            curl("  - { name: a, key: ip, limits: 1/s, enabled: false }"),
            None
        );
        let denied = "  - { name: a, key: ip, limits: 1/s, deny: [127.0.0.1] }";
        assert_eq!(curl(denied), None);
    }

    #[test]
    fn arguments_are_quoted_for_a_shell() {
        assert_eq!(quoted("a/b"), "a/b");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("http://[::1]:1/"), "'http://[::1]:1/'");
    }
}
