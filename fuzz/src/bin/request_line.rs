//! Parses any lines as a method, a target and `Host` headers. Checks that the gateway accepts only what
//! servers that cut hosts in different places read alike, and that a rule by this host applies.
#![no_main]

use http::header::HOST;
use http::{HeaderValue, Method, Request, Uri, Version};
use libfuzzer_sys::fuzz_target;
use tallygate::http::{Head, Policy};
use tallygate::rules::{HostPattern, Quotas, Rule, RuleLimits, RuleSet, Rules};
use tallygate_server::gateway::request_line::{check_host, check_method, check_target};

/// Longer names are no host patterns.
const MAX_NAME_BYTES: usize = 253;

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let Some((&version, method)) = lines.next().and_then(<[u8]>::split_first) else {
        return;
    };
    let target = lines.next().unwrap_or_default();
    let (Ok(method), Ok(uri)) = (Method::from_bytes(method), Uri::try_from(target)) else {
        return;
    };
    let mut request = Request::new(());
    *request.version_mut() = match version % 3 {
        0 => Version::HTTP_10,
        1 => Version::HTTP_11,
        _ => Version::HTTP_2,
    };
    (*request.method_mut(), *request.uri_mut()) = (method, uri);
    for host in lines
        .take(3)
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
    {
        request.headers_mut().append(HOST, host);
    }
    let method = request.method().as_str();
    if check_method(request.method()).is_ok() {
        assert!(
            !method.bytes().any(|byte| byte.is_ascii_lowercase()),
            "{method}"
        );
        assert_ne!(method, "CONNECT");
    }
    if check_target(&request).is_ok() {
        let path = request.uri().path();
        assert!(
            path.starts_with('/') || (path == "*" && method == "OPTIONS"),
            "{path}"
        );
    }
    if check_host(&request).is_ok() {
        check_readings(&request);
    }
});

fn check_readings(request: &Request<()>) {
    let headers: Vec<&HeaderValue> = request.headers().get_all(HOST).iter().collect();
    assert!(headers.len() <= 1, "{headers:?}");
    let target = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    let header = headers
        .first()
        .map(|value| value.to_str().expect("a host is ASCII"));
    if target.is_none() && header.is_none() {
        assert_eq!(request.version(), Version::HTTP_10);
        return;
    }
    let mut names = Vec::new();
    for text in [target, header].into_iter().flatten() {
        let after_user = text.rsplit('@').next().unwrap_or_default();
        let elements = [text.split(','), after_user.split(',')];
        for element in elements.into_iter().flatten() {
            names.push(name(element).trim().to_ascii_lowercase());
        }
    }
    let first = names[0].clone();
    assert!(names.iter().all(|name| *name == first), "{names:?}");
    assert!(!first.is_empty());
    if first.len() > MAX_NAME_BYTES {
        return;
    }
    let pattern: HostPattern = first
        .parse()
        .unwrap_or_else(|error| panic!("{first}: {error}"));
    let plan = rules(pattern).plan(&Head::from(request));
    // A path with too many segments is refused, whatever the host.
    if plan.stopped().is_none() {
        assert_eq!(plan.charges().len(), 1, "no rule by {first}");
    }
}

/// What comes before the first colon outside of brackets.
fn name(text: &str) -> &str {
    match text.find(']') {
        Some(end) if text.starts_with('[') => &text[..=end],
        _ => text.split(':').next().unwrap_or_default(),
    }
}

/// A rule for one host.
fn rules(host: HostPattern) -> Rules {
    let quota = "10/min".parse().expect("the quota is valid");
    let quotas = Quotas::new(vec![(None, quota)]).expect("one quota is valid");
    let name = "host".parse().expect("the name is valid");
    let mut rule = Rule::with_limits(name, RuleLimits::Same(quotas));
    rule.matcher.hosts = vec![host];
    let set = RuleSet {
        rules: vec![rule],
        ..RuleSet::default()
    };
    Rules::new(set).expect("the rule is valid")
}
