//! Numbers as headers' values. Knows nothing of what they count.

use std::sync::OnceLock;

use ::http::HeaderValue;

/// Numbers below this are at hand and take no memory.
const AT_HAND: usize = 1024;

static DIGITS: [[u8; 4]; AT_HAND] = {
    let mut digits = [[b'0'; 4]; AT_HAND];
    let mut number = 0;
    while number < AT_HAND {
        let text = &mut digits[number];
        text[0] += (number / 1000) as u8;
        text[1] += (number / 100 % 10) as u8;
        text[2] += (number / 10 % 10) as u8;
        text[3] += (number % 10) as u8;
        number += 1;
    }
    digits
};

/// A number in decimal.
pub(super) fn value(number: u64) -> HeaderValue {
    static VALUES: OnceLock<Vec<HeaderValue>> = OnceLock::new();
    let values = VALUES.get_or_init(|| DIGITS.iter().map(of_digits).collect());
    let at_hand = usize::try_from(number).ok().and_then(|n| values.get(n));
    at_hand.cloned().unwrap_or_else(|| {
        // Exactly as long as needed, unlike what the number's own conversion would take.
        let text = HeaderValue::from_bytes(itoa::Buffer::new().format(number).as_bytes());
        text.expect("digits may stand in a header")
    })
}

/// Four digits without those in front that say nothing.
fn of_digits(digits: &'static [u8; 4]) -> HeaderValue {
    let begin = digits.iter().take(3).take_while(|&&digit| digit == b'0');
    let text = str::from_utf8(&digits[begin.count()..]);
    HeaderValue::from_static(text.expect("digits are ASCII"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_everywhere() {
        let large = [10_000, u64::from(u32::MAX), u64::MAX];
        for number in (0..2 * AT_HAND as u64).chain(large) {
            assert_eq!(value(number), number.to_string());
        }
    }
}
