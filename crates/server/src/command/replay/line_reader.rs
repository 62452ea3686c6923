//! Reads lines of bounded length.

use std::io::{BufRead, BufReader, Read};

use crate::error::Failure;

/// The longest line, without its line end. A key of 1 MiB fits with every byte escaped.
const MAX_LINE_BYTES: usize = 8 << 20;

const CHUNK_BYTES: usize = 256 << 10;

pub(super) struct LineReader<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(input: R) -> Self {
        LineReader {
            input: BufReader::with_capacity(CHUNK_BYTES, input),
            line: Vec::new(),
            number: 0,
        }
    }

    /// Returns whether a whole line is buffered, so that [`next`](Self::next) cannot block.
    pub(super) fn is_ready(&self) -> bool {
        self.input.buffer().contains(&b'\n')
    }

    /// Returns the next line and its number from 1, or `None` at the end. The last line needs no
    /// line end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, Failure> {
        self.line.clear();
        // One byte more than the longest line: its line end, or the proof that it is too long.
        let mut bounded = (&mut self.input).take(MAX_LINE_BYTES as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.line);
        let read = read.map_err(|e| Failure::Outside(format!("cannot read the input: {e}")))?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        if line.len() > MAX_LINE_BYTES {
            let number = self.number;
            let text = format!("line {number}: longer than {MAX_LINE_BYTES} bytes");
            return Err(Failure::Input(text));
        }
        Ok(Some((self.number, line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_maximum_length_is_read_and_one_byte_more_is_not() {
        let mut text = vec![b'x'; MAX_LINE_BYTES];
        for end in ["", "\ny\n"] {
            text.extend(end.bytes());
            let mut lines = LineReader::new(&text[..]);
            let (_, line) = lines.next().unwrap().unwrap();
            assert_eq!(line.len(), MAX_LINE_BYTES);
        }
        for end in ["", "\n"] {
            let mut text = vec![b'x'; MAX_LINE_BYTES + 1];
            text.extend(end.bytes());
            LineReader::new(&text[..]).next().unwrap_err();
        }
    }

    #[test]
    fn an_endless_line_is_not_buffered_beyond_the_maximum() {
        let mut lines = LineReader::new(std::io::repeat(b'x'));
        lines.next().unwrap_err();
        assert!(lines.line.capacity() <= 2 * (MAX_LINE_BYTES + 1));
    }
}
