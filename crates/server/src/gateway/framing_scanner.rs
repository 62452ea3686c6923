//! Finds heads that say their body's length in two ways. Knows lines and headers' names, nothing
//! else of HTTP.
//!
//! hyper drops `Content-Length` where there is a `Transfer-Encoding`, so that nobody above it can
//! tell. That is one right reading, but whoever sent both may have talked to a proxy that reads
//! otherwise: such a request is refused, and for that the bytes have to be looked at.

const LENGTH: &[u8] = b"content-length";
const CODING: &[u8] = b"transfer-encoding";

/// Looks at the bytes of an HTTP/1 connection, in whatever pieces they come.
///
/// It does not tell heads from bodies. A body that looks like such a head is taken for one; that
/// matters only to chunked requests that follow on the same connection.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The start of a line, as far as it can be a name; past its name a line is skipped.
    name: [u8; CODING.len()],
    len: usize,
    skips: bool,
    length: bool,
    coding: bool,
}

impl Scan {
    /// Whether these bytes complete a block of lines that has both.
    pub(super) fn finds_both(&mut self, mut bytes: &[u8]) -> bool {
        let mut found = false;
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.skips {
                let Some(end) = memchr::memchr(b'\n', bytes) else {
                    return found;
                };
                bytes = &bytes[end + 1..];
                (self.len, self.skips) = (0, false);
                continue;
            }
            bytes = rest;
            match byte {
                b'\n' => {
                    if self.len == 0 {
                        (self.length, self.coding) = (false, false);
                    }
                    self.len = 0;
                }
                // Part of a line's end, or of a line that is refused anyway.
                b'\r' => {}
                b':' => {
                    let name = &self.name[..self.len];
                    self.length |= name.eq_ignore_ascii_case(LENGTH);
                    self.coding |= name.eq_ignore_ascii_case(CODING);
                    found |= self.length && self.coding;
                    self.skips = true;
                }
                _ if self.len == self.name.len() => self.skips = true,
                // Neither of the two; most lines are told by their first letter.
                _ if self.len == 0 && !matches!(byte, b'C' | b'c' | b'T' | b't') => {
                    self.skips = true;
                }
                _ => {
                    self.name[self.len] = byte;
                    self.len += 1;
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &[u8] =
        b"POST / HTTP/1.1\r\nHost: a\r\ncontent-LENGTH: 5\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn a_head_with_both_is_found_in_pieces_of_any_size() {
        for size in 1..=BOTH.len() {
            let mut scan = Scan::default();
            let found = BOTH.chunks(size).any(|piece| scan.finds_both(piece));
            assert!(found, "in pieces of {size}");
        }
    }

    #[test]
    fn two_heads_with_one_each_are_not() {
        let text = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\r\nPOST / HTTP/1.1\r\n\
                     Transfer-Encoding: chunked\r\n\r\n";
        assert!(!Scan::default().finds_both(text));
    }

    #[test]
    fn longer_names_and_values_are_something_else() {
        let text = b"GET / HTTP/1.1\r\nX-Content-Length: 2\r\nTransfer-Encoding-X: chunked\r\n\
                     a: content-length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!Scan::default().finds_both(text));
    }
}
