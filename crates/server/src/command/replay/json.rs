//! The little JSON a replay line is made of: strings, numbers and marks, read in place. Knows
//! nothing of fields or what they mean, and repeats no text it read.

use std::borrow::Cow;

/// What is wrong, and before which byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) problem: &'static str,
}

/// Whether there is nothing but white space.
pub(super) fn is_blank(text: &[u8]) -> bool {
    text.iter().all(|&byte| is_space(byte))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// A place in a text.
pub(super) struct Reader<'a> {
    text: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Reader { text, at: 0 }
    }

    /// The next byte, left where it is.
    pub(super) fn look(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn fault(&self, problem: &'static str) -> Fault {
        Fault {
            at: self.at,
            problem,
        }
    }

    pub(super) fn skip_space(&mut self) {
        while self.look().is_some_and(is_space) {
            self.at += 1;
        }
    }

    /// Passes one mark, and says whether it was there.
    pub(super) fn mark(&mut self, mark: u8) -> bool {
        let there = self.look() == Some(mark);
        self.at += usize::from(there);
        there
    }

    /// What kind of value begins here, for people.
    pub(super) fn kind(&self) -> &'static str {
        match &self.text[self.at..] {
            [b'"', ..] => "a string",
            [b'-' | b'0'..=b'9', ..] => "a number",
            [b'{', ..] => "an object",
            [b'[', ..] => "an array",
            [b't', b'r', b'u', b'e', ..] => "true",
            [b'f', b'a', b'l', b's', b'e', ..] => "false",
            [b'n', b'u', b'l', b'l', ..] => "null",
            [_, ..] => "no JSON value",
            [] => "missing",
        }
    }

    /// A string, borrowed where nothing in it is escaped.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        if !self.mark(b'"') {
            return Err(self.fault("expected a string"));
        }
        let run = self.plain_run()?;
        if self.mark(b'"') {
            return Ok(Cow::Borrowed(run));
        }
        let mut whole = run.to_owned();
        loop {
            // A run ends before a quote or a backslash, nothing else.
            if self.mark(b'"') {
                return Ok(Cow::Owned(whole));
            }
            whole.push(self.escape()?);
            whole.push_str(self.plain_run()?);
        }
    }

    /// The text up to the next quote or backslash.
    fn plain_run(&mut self) -> Result<&'a str, Fault> {
        let start = self.at;
        let rest = &self.text[start..];
        let special = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < b' ';
        let Some(length) = rest.iter().position(special) else {
            self.at = self.text.len();
            return Err(self.fault("the string has no end"));
        };
        self.at += length;
        if rest[length] < b' ' {
            return Err(self.fault("a control character in a string must be escaped"));
        }
        str::from_utf8(&rest[..length]).map_err(|error| Fault {
            at: start + error.valid_up_to(),
            problem: "invalid UTF-8",
        })
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let start = self.at;
        let fault = |problem| Fault { at: start, problem };
        self.at += 1;
        let letter = self.look();
        self.at += 1;
        Ok(match letter {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                const LONE: &str = "a lone surrogate escape is no character";
                let unit = self.four_digits()?;
                match unit {
                    0xd800..=0xdbff => {
                        if !(self.mark(b'\\') && self.mark(b'u')) {
                            return Err(fault(LONE));
                        }
                        let low = self.four_digits()?;
                        if !(0xdc00..=0xdfff).contains(&low) {
                            return Err(fault(LONE));
                        }
                        let high = unit - 0xd800;
                        char::from_u32(0x10000 + (high << 10) + (low - 0xdc00))
                    }
                    other => char::from_u32(other),
                }
                .ok_or(fault(LONE))?
            }
            Some(_) | None => return Err(fault("unknown escape in a string")),
        })
    }

    fn four_digits(&mut self) -> Result<u32, Fault> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.look().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.fault("expected four hexadecimal digits after \\u"));
            };
            value = value * 16 + digit;
            self.at += 1;
        }
        Ok(value)
    }

    /// A number as it is written.
    pub(super) fn number(&mut self) -> Result<&'a str, Fault> {
        let start = self.at;
        self.mark(b'-');
        if self.mark(b'0') {
            if matches!(self.look(), Some(b'0'..=b'9')) {
                return Err(self.fault("a number has no leading zero"));
            }
        } else {
            self.digits()?;
        }
        if self.mark(b'.') {
            self.digits()?;
        }
        if self.mark(b'e') || self.mark(b'E') {
            let _sign = self.mark(b'+') || self.mark(b'-');
            self.digits()?;
        }
        let written = &self.text[start..self.at];
        Ok(str::from_utf8(written).expect("digits, signs and points are ASCII"))
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while matches!(self.look(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.fault("expected a digit"));
        }
        Ok(())
    }
}
