//! Numbers as header values.

use std::sync::OnceLock;

use ::http::HeaderValue;

/// Numbers below this are cached, without an allocation for each.
const CACHED: usize = 1024;

/// Formats a number.
pub(super) fn value(number: u64) -> HeaderValue {
    static VALUES: OnceLock<Vec<HeaderValue>> = OnceLock::new();
    let values = VALUES.get_or_init(|| {
        // Leaked once: a static value is cloned without counting references.
        let value = |number: usize| HeaderValue::from_static(number.to_string().leak());
        (0..CACHED).map(value).collect()
    });
    let cached = usize::try_from(number).ok().and_then(|n| values.get(n));
    cached.cloned().unwrap_or_else(|| {
        // Not `HeaderValue::from`, which allocates more than the digits.
        let text = HeaderValue::from_bytes(itoa::Buffer::new().format(number).as_bytes());
        text.expect("digits are valid in a header")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_in_decimal() {
        let large = [10_000, u64::from(u32::MAX), u64::MAX];
        for number in (0..2 * CACHED as u64).chain(large) {
            assert_eq!(value(number), number.to_string());
        }
    }
}
