//! Free ports.
//!
//! They are below the ephemeral range. Inside it, an outgoing connection may use the port of a
//! server that is down for a moment, and a client that keeps connecting to such a port may connect
//! to itself.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

/// The offset of a cluster node's bus port.
pub const BUS_OFFSET: u16 = 10_000;

const MIN_PORT: u16 = 10_000;
const ATTEMPTS: usize = 1000;

/// Finds a free port of the loopback address. Another process may take it first.
///
/// # Panics
///
/// Panics if a thousand ports in a row are taken.
#[must_use]
pub fn free() -> u16 {
    find(0, is_free)
}

/// Finds a free port such that the cluster bus port, [`BUS_OFFSET`] above it, is free as well.
///
/// # Panics
///
/// Panics if a thousand ports in a row are taken.
#[must_use]
pub fn free_with_bus() -> u16 {
    find(BUS_OFFSET, |port| {
        is_free(port) && is_free(port + BUS_OFFSET)
    })
}

fn find(room_above: u16, is_good: impl Fn(u16) -> bool) -> u16 {
    let highest = first_ephemeral().saturating_sub(room_above);
    // With an ephemeral range of nearly all ports, no range is left.
    let highest = if highest < MIN_PORT + 1000 {
        u16::MAX - room_above
    } else {
        highest
    };
    (0..ATTEMPTS)
        .map(|_| fastrand::u16(MIN_PORT..highest))
        .find(|&port| is_good(port))
        .expect("one of a thousand ports is free")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// The start of the ephemeral port range.
fn first_ephemeral() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_listened_on() {
        let listens = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        holds_in_two_attempts(|| listens(free()));
        holds_in_two_attempts(|| listens(free_with_bus() + BUS_OFFSET));
    }

    /// Another process may take the port in between, but hardly twice.
    fn holds_in_two_attempts(condition: impl Fn() -> bool) {
        assert!(condition() || condition());
    }
}
