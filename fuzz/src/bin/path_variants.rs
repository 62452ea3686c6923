//! Parses any bytes as the target of a request. Checks that a rule for /login applies if any of several
//! servers, each written down here in its own way, takes the path for /login.
#![no_main]

use std::sync::LazyLock;

use http::{Request, Uri};
use libfuzzer_sys::fuzz_target;
use tallygate::http::{Head, Policy};
use tallygate::rules::{Quotas, Rule, RuleLimits, RuleSet, Rules};

/// The maximum number of segments of a path that is not refused.
const MAX_SEGMENTS: usize = 256;

/// The path that a server takes a path for.
type Server = fn(&[u8]) -> Vec<u8>;

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let quota = "10/min".parse().expect("the quota is valid");
    let quotas = Quotas::new(vec![(None, quota)]).expect("one quota is valid");
    let name = "login".parse().expect("the name is valid");
    let mut rule = Rule::with_limits(name, RuleLimits::Same(quotas));
    rule.matcher.paths = vec!["/login".parse().expect("the pattern is valid")];
    let set = RuleSet {
        rules: vec![rule],
        ..RuleSet::default()
    };
    Rules::new(set).expect("the rule is valid")
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(uri) = Uri::try_from(bytes) else {
        return;
    };
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    let path = request.uri().path().as_bytes().to_vec();
    if !path.starts_with(b"/") {
        return;
    }
    let plan = RULES.plan(&Head::from(&request));
    let applies = !plan.charges().is_empty();
    if plan.stopped().is_some() {
        let slashes = path.iter().filter(|byte| b"/\\%".contains(byte)).count();
        assert!(slashes > MAX_SEGMENTS, "refused with {slashes} slashes");
        return;
    }
    let servers: [(&str, Server); 6] = [
        ("RFC 3986", rfc3986),
        ("nginx", nginx),
        ("Tomcat", tomcat),
        ("a file server", file_server),
        ("WHATWG", whatwg),
        ("WHATWG and merged slashes", |path| nginx(&whatwg(path))),
    ];
    for (server, read) in servers {
        if read(&path) == b"/login" {
            let path = String::from_utf8_lossy(&path);
            assert!(applies, "{server} takes {path} for /login");
        }
    }
});

/// Percent-decodes a text once; what is no encoding stays.
fn decode(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16));
    let mut decoded = Vec::new();
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, digit(tail.first()), digit(tail.get(1))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).expect("two digits are a byte"));
                rest = &tail[2..];
            }
            _ => {
                decoded.push(byte);
                rest = tail;
            }
        }
    }
    decoded
}

/// Joins segments, and resolves `.` and `..` one by one.
fn resolve<'s>(segments: impl Iterator<Item = &'s [u8]>) -> Vec<u8> {
    let mut stack: Vec<&[u8]> = Vec::new();
    for segment in segments {
        match segment {
            b"." => {}
            b".." => {
                stack.pop();
            }
            other => stack.push(other),
        }
    }
    // Routers ignore a slash at the end.
    while stack.last().is_some_and(|segment| segment.is_empty()) {
        stack.pop();
    }
    stack
        .iter()
        .flat_map(|segment| [b"/", *segment].concat())
        .collect()
}

fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').skip(1)
}

/// Splits, then decodes each segment, then resolves dots.
fn rfc3986(path: &[u8]) -> Vec<u8> {
    let decoded: Vec<Vec<u8>> = segments(path).map(decode).collect();
    resolve(decoded.iter().map(Vec::as_slice))
}

/// Decodes the whole path, so that `%2F` is a slash, and merges slashes.
fn nginx(path: &[u8]) -> Vec<u8> {
    let decoded = decode(path);
    resolve(segments(&decoded).filter(|segment| !segment.is_empty()))
}

/// Cuts path parameters, decodes, merges slashes.
fn tomcat(path: &[u8]) -> Vec<u8> {
    let cut = segments(path).map(|segment| segment.split(|&byte| byte == b';').next());
    let cut: Vec<u8> = cut
        .flatten()
        .flat_map(|segment| [b"/", segment].concat())
        .collect();
    nginx(&cut)
}

/// Takes backslashes for slashes after decoding.
fn file_server(path: &[u8]) -> Vec<u8> {
    let mut decoded = decode(path);
    decoded
        .iter_mut()
        .filter(|byte| **byte == b'\\')
        .for_each(|byte| *byte = b'/');
    resolve(segments(&decoded).filter(|segment| !segment.is_empty()))
}

/// `new URL(path, base).pathname`: backslashes are slashes, what follows two or more is a host, dots
/// may be encoded, and nothing else is decoded.
fn whatwg(path: &[u8]) -> Vec<u8> {
    let mut path = path.to_vec();
    path.iter_mut()
        .filter(|byte| **byte == b'\\')
        .for_each(|byte| *byte = b'/');
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    if slashes >= 2 {
        let host = path[slashes..]
            .iter()
            .take_while(|byte| **byte != b'/')
            .count();
        path.drain(..slashes + host);
    }
    let dots: Vec<Vec<u8>> = segments(&path)
        .map(|segment| match &segment.to_ascii_lowercase()[..] {
            b"%2e" => b".".to_vec(),
            b"%2e%2e" | b".%2e" | b"%2e." => b"..".to_vec(),
            _ => segment.to_vec(),
        })
        .collect();
    resolve(dots.iter().map(Vec::as_slice))
}
