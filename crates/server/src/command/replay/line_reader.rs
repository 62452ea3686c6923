//! Lines of bounded length from a stream, without copying them. Knows nothing of what they say.

use std::io::{self, Read};

use memchr::memchr;

/// The longest line, its end not counted. A key of 1 MiB fits with every byte escaped.
pub(super) const LONGEST: usize = 8 << 20;

/// How much is asked for at once.
const CHUNK: usize = 256 << 10;

/// A stream cut into lines.
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// What has been read and not yet given out is `buffer[start..end]`.
    start: usize,
    end: usize,
    /// The length of the next line, once its end has been seen.
    found: Option<usize>,
    /// How far from `start` there is certainly no line end.
    searched: usize,
    at_end: bool,
    number: u64,
}

/// Why there is no next line.
#[derive(Debug)]
pub(super) enum LinesError {
    TooLong { number: u64, bound: usize },
    Read(io::Error),
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Lines {
            input,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            found: None,
            searched: 0,
            at_end: false,
            number: 0,
        }
    }

    /// Whether the next line can be had without reading.
    pub(super) fn ready(&mut self) -> bool {
        if self.found.is_none() {
            let unread = &self.buffer[self.start..self.end];
            match memchr(b'\n', &unread[self.searched..]) {
                Some(at) => self.found = Some(self.searched + at),
                None => self.searched = unread.len(),
            }
        }
        self.found.is_some()
    }

    /// The next line and its number from 1; none at the end. The last one needs no line end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, LinesError> {
        while !self.ready() && !self.at_end {
            if self.searched > LONGEST {
                break;
            }
            self.read().map_err(LinesError::Read)?;
        }
        let length = match self.found.take() {
            Some(length) => length,
            None if self.start == self.end => return Ok(None),
            None => self.end - self.start,
        };
        self.number += 1;
        if length > LONGEST {
            return Err(LinesError::TooLong {
                number: self.number,
                bound: LONGEST,
            });
        }
        let line = self.start..self.start + length;
        // Past the line end, where there is one.
        self.start = (line.end + 1).min(self.end);
        self.searched = 0;
        Ok(Some((self.number, &self.buffer[line])))
    }

    /// Reads what is there, making room first: at most a line and a chunk are ever held.
    fn read(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < CHUNK / 2 {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces one read at a time.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let mut piece = self.0.remove(0);
            let n = piece.len().min(to.len());
            to[..n].copy_from_slice(&piece[..n]);
            if n < piece.len() {
                self.0.insert(0, piece.split_off(n));
            }
            Ok(n)
        }
    }

    fn all(input: impl Read) -> Vec<(u64, String)> {
        let mut lines = Lines::new(input);
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
    fn every_cut_of_the_stream_gives_the_same_lines() {
        let text = b"one\n\ntwo\r\nthree";
        let expected = numbered(&["one", "", "two\r", "three"]);
        for cut in 0..=text.len() {
            let (a, b) = text.split_at(cut);
            // An empty read would mean the end.
            let pieces = [a, b].into_iter().filter(|piece| !piece.is_empty());
            let stream = Pieces(pieces.map(<[u8]>::to_vec).collect());
            assert_eq!(all(stream), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_line_end_at_the_end_opens_no_further_line() {
        assert_eq!(all(&b""[..]), []);
        assert_eq!(all(&b"\n"[..]), numbered(&[""]));
        assert_eq!(all(&b"a\n"[..]), numbered(&["a"]));
    }

    #[test]
    fn a_line_of_the_longest_length_passes_and_one_byte_more_does_not() {
        let mut text = vec![b'x'; LONGEST];
        assert_eq!(all(&text[..])[0].1.len(), LONGEST);
        text.extend(b"\ny\n");
        assert_eq!(all(&text[..]).len(), 2);
        for end in ["", "\n"] {
            let mut text = b"first\n".to_vec();
            text.extend(vec![b'x'; LONGEST + 1]);
            text.extend(end.bytes());
            let mut lines = Lines::new(&text[..]);
            lines.next().unwrap();
            let error = lines.next().unwrap_err();
            assert!(matches!(error, LinesError::TooLong { number: 2, .. }));
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_held_beyond_the_bound() {
        let mut lines = Lines::new(io::repeat(b'x'));
        lines.next().unwrap_err();
        assert!(lines.buffer.len() <= 2 * (LONGEST + CHUNK));
    }

    #[test]
    fn ready_means_that_a_whole_line_is_there() {
        let mut lines = Lines::new(Pieces(vec![b"a\nb".to_vec(), b"\n".to_vec()]));
        assert!(!lines.ready());
        lines.next().unwrap();
        assert!(!lines.ready(), "half a line is not ready");
        assert_eq!(lines.next().unwrap(), Some((2, &b"b"[..])));
    }
}
