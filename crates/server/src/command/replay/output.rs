//! A decision as a JSON line, to the byte. Knows the wire form; knows nothing of how it came.

use std::io::{self, Write};

use tallygate_core::{Quota, Verdict};

use super::request::Line;
use crate::verdict_json::{figures, number};

/// How much is gathered before it is written.
const CHUNK: usize = 64 << 10;

/// Writes answers in the order they are given.
pub(super) struct Answers<W> {
    out: W,
    buffer: Vec<u8>,
    /// How each element of `"quotas"` begins; empty with one quota, which has no such field.
    openings: Vec<String>,
}

impl<W: Write> Answers<W> {
    pub(super) fn new(quotas: &[Quota], out: W) -> Self {
        let opening = |quota: &Quota| format!("{{\"quota\":\"{quota}\",\"allowed\":");
        let openings = match quotas {
            [_] => Vec::new(),
            several => several.iter().map(opening).collect(),
        };
        Answers {
            out,
            buffer: Vec::with_capacity(2 * CHUNK),
            openings,
        }
    }

    /// Answers a line with the figures of all together and of each quota.
    pub(super) fn write(
        &mut self,
        line: &Line<'_>,
        together: &Verdict,
        each: &[Verdict],
    ) -> io::Result<()> {
        let to = &mut self.buffer;
        to.extend(b"{\"t_us\":");
        number(to, line.t_us);
        to.extend(b",\"key\":");
        serde_json::to_writer(&mut *to, line.key.as_ref())?;
        to.extend(b",\"allowed\":");
        figures(to, together);
        if !self.openings.is_empty() {
            to.extend(b",\"quotas\":[");
            for (i, (opening, verdict)) in self.openings.iter().zip(each).enumerate() {
                if i > 0 {
                    to.push(b',');
                }
                to.extend(opening.as_bytes());
                figures(to, verdict);
                to.push(b'}');
            }
            to.push(b']');
        }
        to.extend(b"}\n");
        if to.len() >= CHUNK {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Writes out everything so far.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.hand_over()?;
        self.out.flush()
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.buffer);
        // Also when it failed: nothing is written twice.
        self.buffer.clear();
        written
    }
}
