//! Formats an address as a key.

use std::net::IpAddr;

use crate::key::{Key, MAX_INLINE_BYTES};

/// A key of one part: an address as text.
pub(crate) fn address_key(ip: IpAddr) -> Key<'static> {
    let ip = match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => return Key::from(ip.to_string()),
    };
    // `Ipv4Addr::to_string` would take longer than the decision.
    let mut text = [0; MAX_INLINE_BYTES];
    let mut end = 0;
    for octet in ip.octets() {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(octet).as_bytes();
        text[end..end + digits.len()].copy_from_slice(digits);
        text[end + digits.len()] = b'.';
        end += digits.len() + 1;
    }
    Key::short(text, end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_formatted_as_by_the_standard_library() {
        for octet in 0..=255 {
            for ip in [[octet, 0, 10, 99], [100, 7, octet, octet], [octet; 4]] {
                let ip = IpAddr::from(ip);
                assert!(address_key(ip) == Key::from(ip.to_string()), "{ip}");
            }
        }
        let ip: IpAddr = "2001:db8:0:1::".parse().unwrap();
        assert!(address_key(ip) == Key::from("2001:db8:0:1::"));
    }
}
