//! The faults of the proxy.

use std::time::Duration;

/// What the proxy does with requests and replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forwards everything.
    Pass,
    /// Accepts connections, drops requests and replies. A connection that lost bytes is reset when
    /// the mode changes, since TCP cannot skip a byte.
    BlackHole,
    /// Accepts connections, holds all bytes and forwards them when the mode changes.
    Hold,
    /// Refuses connections, and closes open ones.
    Refuse,
    /// Resets the connection on a request; the server does not receive it.
    ResetBefore,
    /// Resets the connection on a reply; the server ran the call.
    ResetAfter,
    /// Forwards the request; replies with bytes that are not RESP.
    Garbage,
    /// Forwards the request; replies with these bytes.
    Answer(Vec<u8>),
    /// Replaces bytes in replies, such as the version, by others of the same length.
    Replace(&'static [u8], &'static [u8]),
    /// Delays replies without reducing the throughput.
    Delay(Duration),
    /// Sends half a reply, then closes the connection.
    Cut,
}

/// Not the start of any reply, and without a line end.
pub(super) const GARBAGE: &[u8] = b"\x00\xff\xfe<garbage>\x01\r\n\x7f\r\n";
