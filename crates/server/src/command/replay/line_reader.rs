//! Reads lines of bounded length.

use std::io::{self, BufRead, BufReader, Read};

/// The longest line, without its line end. A key of 1 MiB fits with every byte escaped.
pub(super) const MAX_LINE_BYTES: usize = 8 << 20;

const CHUNK_BYTES: usize = 256 << 10;

pub(super) struct LineReader<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

#[derive(Debug)]
pub(super) enum ReadError {
    TooLong { number: u64, max: usize },
    Io(io::Error),
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
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, ReadError> {
        self.line.clear();
        // One byte more than the longest line: its line end, or the proof that it is too long.
        let mut bounded = (&mut self.input).take(MAX_LINE_BYTES as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.line);
        if read.map_err(ReadError::Io)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        if line.len() > MAX_LINE_BYTES {
            return Err(ReadError::TooLong {
                number: self.number,
                max: MAX_LINE_BYTES,
            });
        }
        Ok(Some((self.number, line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one piece per read.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            self.0.remove(0).read(to)
        }
    }

    fn all(input: impl Read) -> Vec<(u64, String)> {
        let mut lines = LineReader::new(input);
        let mut got = Vec::new();
        while let Some((number, line)) = lines.next().unwrap() {
            got.push((number, String::from_utf8(line.to_vec()).unwrap()));
        }
        got
    }

    fn numbered(lines: &[&str]) -> Vec<(u64, String)> {
        (1..).zip(lines.iter().map(|&l| l.to_owned())).collect()
    }

    #[test]
    fn lines_do_not_depend_on_how_the_stream_is_split() {
        let text = b"one\n\ntwo\r\nthree";
        let expected = numbered(&["one", "", "two\r", "three"]);
        for split in 1..text.len() {
            let (a, b) = text.split_at(split);
            assert_eq!(all(Pieces(vec![a, b])), expected, "split at {split}");
        }
    }

    #[test]
    fn a_final_line_end_starts_no_further_line() {
        assert_eq!(all(&b""[..]), []);
        assert_eq!(all(&b"\n"[..]), numbered(&[""]));
        assert_eq!(all(&b"a\n"[..]), numbered(&["a"]));
    }

    #[test]
    fn a_line_of_the_maximum_length_is_read_and_one_byte_more_is_not() {
        let mut text = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(all(&text[..])[0].1.len(), MAX_LINE_BYTES);
        text.extend(b"\ny\n");
        assert_eq!(all(&text[..]).len(), 2);
        for end in ["", "\n"] {
            let mut text = b"first\n".to_vec();
            text.extend(vec![b'x'; MAX_LINE_BYTES + 1]);
            text.extend(end.bytes());
            let mut lines = LineReader::new(&text[..]);
            lines.next().unwrap();
            let error = lines.next().unwrap_err();
            assert!(matches!(error, ReadError::TooLong { number: 2, .. }));
        }
    }

    #[test]
    fn an_endless_line_is_not_buffered_beyond_the_maximum() {
        let mut lines = LineReader::new(io::repeat(b'x'));
        lines.next().unwrap_err();
        assert!(lines.line.capacity() <= 2 * (MAX_LINE_BYTES + 1));
    }

    #[test]
    fn ready_means_that_a_whole_line_is_buffered() {
        let mut lines = LineReader::new(Pieces(vec![b"a\nb", b"\n"]));
        assert!(!lines.is_ready());
        lines.next().unwrap();
        assert!(!lines.is_ready(), "half a line is not ready");
        assert_eq!(lines.next().unwrap(), Some((2, &b"b"[..])));
    }
}
