//! Parses any text as a path pattern, followed by paths. Checks that patterns display as they
//! parse, that errors are short, and that every spelling of a path has the same result.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tallygate::rules::{Path, PathPattern};

/// The maximum number of characters of an error: 60 of the text, each escaped, and the message.
const MAX_ERROR_LENGTH: usize = 60 * 10 + 200;
/// The maximum number of paths of one input.
const MAX_PATHS: usize = 16;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let pattern = read(lines.next().unwrap_or_default());
    for path in lines.take(MAX_PATHS) {
        check_path(path);
        if let Some(pattern) = &pattern {
            check_match(pattern, path);
        }
    }
});

fn read(text: &str) -> Option<PathPattern> {
    match text.parse::<PathPattern>() {
        Ok(pattern) => {
            assert_eq!(pattern.to_string(), text, "displayed differently");
            assert!(pattern.covers(&pattern), "{pattern} does not cover itself");
            let all: PathPattern = "/**".parse().expect("the pattern is valid");
            assert!(all.covers(&pattern), "{pattern}");
            Some(pattern)
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.chars().count() <= MAX_ERROR_LENGTH, "{message}");
            assert!(!message.chars().any(char::is_control), "{message:?}");
            None
        }
    }
}

/// Checks the invariants of every path.
fn check_path(text: &str) {
    let path = Path::new(text);
    for segment in path.segments() {
        assert!(!segment.is_empty(), "{text:?}");
        assert!(**segment != *b"." && **segment != *b"..", "{text:?}");
    }
    let length: usize = path.segments().iter().map(|segment| segment.len()).sum();
    assert!(length <= text.len(), "{text:?}");
    // A path that is built from its segments is the same path.
    let spelled = |segment: &[u8]| -> String {
        let bytes = segment.iter().map(|byte| format!("%{byte:02x}"));
        bytes.collect()
    };
    let plain: String = path
        .segments()
        .iter()
        .map(|segment| format!("/{}", spelled(segment)))
        .collect();
    assert_eq!(Path::new(&plain).segments(), path.segments(), "{text:?}");
}

/// Checks that no spelling of a path changes the result or a parameter.
fn check_match(pattern: &PathPattern, text: &str) {
    let path = Path::new(text);
    let matches = pattern.matches(&path);
    let slash = if text.starts_with('/') { "" } else { "/" };
    let spellings = [
        // Everything encoded but slashes and percent signs.
        encoded(text.as_bytes(), |byte| byte != b'/' && byte != b'%'),
        encoded(text.as_bytes(), |byte| byte.is_ascii_alphanumeric()),
        encoded(text.as_bytes(), |byte| byte == b'.'),
        format!("{slash}{text}/"),
        format!("{slash}{text}/."),
        format!("{slash}{text}/x/%2e%2E"),
        format!("/x/..{slash}{text}"),
        format!("/{slash}{text}"),
    ];
    for spelling in &spellings {
        let other = Path::new(spelling);
        assert_eq!(
            other.segments(),
            path.segments(),
            "{text:?} as {spelling:?}"
        );
        assert_eq!(pattern.matches(&other), matches, "{text:?} as {spelling:?}");
    }
    if matches {
        for name in pattern.parameter_names() {
            let value = pattern.parameter(name, &path).expect("it matches");
            assert!(!value.is_empty(), "{pattern} and {text:?}");
        }
    }
}

/// Percent-encodes selected bytes, but not the digits of an existing encoding.
fn encoded(bytes: &[u8], which: impl Fn(u8) -> bool) -> String {
    let mut text = String::new();
    let mut left = 0;
    for &byte in bytes {
        // The two digits after a `%` belong to it.
        let own = left > 0;
        left = if byte == b'%' {
            2
        } else {
            left - usize::from(own)
        };
        if (which(byte) && !own) || !byte.is_ascii() {
            text += &format!("%{byte:02x}");
        } else {
            text.push(char::from(byte));
        }
    }
    text
}
