//! The header `traceparent` of W3C Trace Context, read and written. Knows nothing of who is traced.

use std::fmt;

/// What `traceparent` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) sampled: bool,
}

impl Parent {
    /// Reads `00-<trace>-<span>-<flags>`, and later versions as far as they are alike.
    pub(super) fn read(said: &[u8]) -> Option<Self> {
        let (head, rest) = said.split_at_checked(55)?;
        let parts: Vec<&[u8]> = head.split(|byte| *byte == b'-').collect();
        let [version, trace, span, flags] = *parts.as_slice() else {
            return None;
        };
        let [version] = hex(version)?;
        let [flags] = hex(flags)?;
        let (trace, span) = (hex(trace)?, hex(span)?);
        let ends = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        (ends && trace != [0; 16] && span != [0; 8]).then_some(Parent {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }
}

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        f.write_str("00-")?;
        digits(f, &self.trace)?;
        f.write_str("-")?;
        digits(f, &self.span)?;
        f.write_str(if self.sampled { "-01" } else { "-00" })
    }
}

/// Bytes out of lower-case digits, exactly as many.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != N * 2 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_strictly() {
        let parent = Parent::read(SAMPLED.as_bytes()).unwrap();
        assert!(parent.sampled);
        assert_eq!(parent.to_string(), SAMPLED);
        assert_eq!((parent.trace[0], parent.span[7]), (0x0a, 0x31));
        let with = |from: &str, to: &str| Parent::read(SAMPLED.replace(from, to).as_bytes());
        assert!(!with("-01", "-00").unwrap().sampled);
        assert!(with("-01", "-03").unwrap().sampled);
        assert!(with("00-0", "01-0").is_some());
        assert!(with("-01", "-01-more").is_none());
        assert!(with("00-0af7", "01-0af7").is_some());
        for (from, to) in [
            ("00-0", "ff-0"),
            (
                "0af7651916cd43dd8448eb211c80319c",
                "00000000000000000000000000000000",
            ),
            ("b7ad6b7169203331", "0000000000000000"),
            ("0af7", "0AF7"),
            ("0af7", "0ag7"),
            ("-01", "-1"),
            ("-01", ""),
        ] {
            assert_eq!(with(from, to), None, "{from} {to}");
        }
        assert_eq!(Parent::read(b""), None);
    }
}
