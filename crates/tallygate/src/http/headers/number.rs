//! Numbers as header values.

use std::sync::OnceLock;

use ::http::HeaderValue;

/// Numbers below this are cached, without an allocation for each.
const CACHED: usize = 1024;

static DIGITS: [[u8; 4]; CACHED] = {
    let mut digits = [[b'0'; 4]; CACHED];
    let mut number = 0;
    while number < CACHED {
        let text = &mut digits[number];
        text[0] += (number / 1000) as u8;
        text[1] += (number / 100 % 10) as u8;
        text[2] += (number / 10 % 10) as u8;
        text[3] += (number % 10) as u8;
        number += 1;
    }
    digits
};

/// Formats a number.
pub(super) fn value(number: u64) -> HeaderValue {
    static VALUES: OnceLock<Vec<HeaderValue>> = OnceLock::new();
    let values = VALUES.get_or_init(|| DIGITS.iter().map(from_digits).collect());
    let cached = usize::try_from(number).ok().and_then(|n| values.get(n));
    cached.cloned().unwrap_or_else(|| {
        // Not `HeaderValue::from`, which allocates more than the digits.
        let text = HeaderValue::from_bytes(itoa::Buffer::new().format(number).as_bytes());
        text.expect("digits are valid in a header")
    })
}

/// Strips leading zeros.
fn from_digits(digits: &'static [u8; 4]) -> HeaderValue {
    let begin = digits.iter().take(3).take_while(|&&digit| digit == b'0');
    let text = str::from_utf8(&digits[begin.count()..]);
    HeaderValue::from_static(text.expect("digits are ASCII"))
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
