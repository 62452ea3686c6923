//! An address as the text that its key is made of. Knows nothing of whose it is.

use std::net::{IpAddr, Ipv4Addr};

use crate::key::{Key, MAX_INLINE_BYTES};

/// A key of one part: an address as text.
pub(super) fn key(ip: IpAddr) -> Key<'static> {
    match ip {
        IpAddr::V4(ip) => ipv4(ip),
        IpAddr::V6(ip) => Key::from(ip.to_string()),
    }
}

/// The same of an address as most have: the standard library's way would be the most of a decision.
#[inline]
fn ipv4(ip: Ipv4Addr) -> Key<'static> {
    // Two octets fit a word, with their dots.
    let pair = |first: u8, second: u8| {
        let text = |octet: u8| u64::from(u32::from_le_bytes(OCTETS[usize::from(octet)]));
        let len = |octet: u8| 2 + u32::from(octet >= 10) + u32::from(octet >= 100);
        let both = text(first) | text(second) << (8 * len(first));
        (both, len(first) + len(second))
    };
    let [a, b, c, d] = ip.octets();
    let ((front, middle), (back, end)) = (pair(a, b), pair(c, d));
    let whole = u128::from(front) | u128::from(back) << (8 * middle);
    let mut text = [0; MAX_INLINE_BYTES];
    text[..16].copy_from_slice(&whole.to_le_bytes());
    Key::short(text, (middle + end - 1) as usize)
}

/// Every octet in decimal, with a dot behind it.
static OCTETS: [[u8; 4]; 256] = {
    let mut octets = [[0; 4]; 256];
    let mut octet = 0;
    while octet < 256 {
        let (digits, text) = (octet as u8, &mut octets[octet]);
        let (hundreds, tens, ones) = (digits / 100, digits / 10 % 10, digits % 10);
        let mut end = 0;
        if octet >= 100 {
            text[end] = b'0' + hundreds;
            end += 1;
        }
        if octet >= 10 {
            text[end] = b'0' + tens;
            end += 1;
        }
        text[end] = b'0' + ones;
        text[end + 1] = b'.';
        octet += 1;
    }
    octets
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_everywhere() {
        for octet in 0..=255 {
            for ip in [[octet, 0, 10, 99], [100, 7, octet, octet], [octet; 4]] {
                let ip = IpAddr::from(ip);
                assert!(key(ip) == Key::from(ip.to_string()), "{ip}");
            }
        }
        let ip: IpAddr = "2001:db8:0:1::".parse().unwrap();
        assert!(key(ip) == Key::from("2001:db8:0:1::"));
    }
}
