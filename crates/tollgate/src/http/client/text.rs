//! An address as the text that its key is made of. Knows nothing of whose it is.

use std::net::IpAddr;

use crate::key::{IN_PLACE, Key};

/// A key of one part: an address as text.
// Most are IPv4, whose formatting by the standard library would be the most of a decision.
pub(in crate::http) fn key(ip: IpAddr) -> Key<'static> {
    match ip {
        IpAddr::V4(ip) => {
            let mut text = [0; IN_PLACE];
            let mut end = 0;
            for octet in ip.octets() {
                text[end..end + 4].copy_from_slice(&OCTETS[usize::from(octet)]);
                end += 2 + usize::from(octet >= 10) + usize::from(octet >= 100);
            }
            Key::short(text, end - 1)
        }
        IpAddr::V6(ip) => Key::from(ip.to_string()),
    }
}

/// Every octet in decimal, with a dot behind it.
static OCTETS: [[u8; 4]; 256] = {
    let mut octets = [[b'.'; 4]; 256];
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
