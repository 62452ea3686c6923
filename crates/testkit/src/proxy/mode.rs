//! The ways in which a network or a server fails.

use std::time::Duration;

/// What happens to what passes through the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It passes.
    Pass,
    /// Connections open, requests and replies vanish. A connection that lost something is reset
    /// when the mode changes, since TCP never skips a byte.
    BlackHole,
    /// Connections open, nothing moves; when the mode changes, all of it arrives.
    Hold,
    /// Nobody listens, and what was open is closed.
    Refuse,
    /// A request resets its connection; the server never gets it.
    ResetBefore,
    /// A reply resets its connection; the server ran the call, the client never knows.
    ResetAfter,
    /// A request is passed on; bytes that are no protocol come instead of the reply.
    Garbage,
    /// A request is passed on; these bytes come instead of the reply.
    Answer(Vec<u8>),
    /// In replies the first bytes are replaced by the second, as many: an older server's version.
    Replace(&'static [u8], &'static [u8]),
    /// Replies arrive so much later; how many a second is unchanged.
    Delay(Duration),
    /// Half a reply arrives, then the connection is closed.
    Cut,
}

/// No reply begins like this, and no line ends.
pub(super) const GARBAGE: &[u8] = b"\x00\xff\xfe<garbage>\x01\r\n\x7f\r\n";
