//! Decisions as JSON lines.

use std::io::{self, Write};

use tallygate_core::{Quota, Verdict};

use super::request::ReplayRequest;
use crate::verdict_json::{write_number, write_verdict};

const CHUNK_BYTES: usize = 64 << 10;

pub(super) struct OutputWriter<W> {
    out: W,
    buffer: Vec<u8>,
    /// The first bytes of each element of `"quotas"`. Empty for a single quota, which has no such
    /// field.
    prefixes: Vec<String>,
}

impl<W: Write> OutputWriter<W> {
    pub(super) fn new(quotas: &[Quota], out: W) -> Self {
        let prefix = |quota: &Quota| format!("{{\"quota\":\"{quota}\",\"allowed\":");
        let prefixes = match quotas {
            [_] => Vec::new(),
            several => several.iter().map(prefix).collect(),
        };
        OutputWriter {
            out,
            buffer: Vec::with_capacity(2 * CHUNK_BYTES),
            prefixes,
        }
    }

    /// Writes the response to a request: the overall verdict and that of each quota.
    pub(super) fn write(
        &mut self,
        request: &ReplayRequest<'_>,
        overall: &Verdict,
        verdicts: &[Verdict],
    ) -> io::Result<()> {
        let to = &mut self.buffer;
        to.extend(b"{\"t_us\":");
        write_number(to, request.t_us);
        to.extend(b",\"key\":");
        serde_json::to_writer(&mut *to, request.key.as_ref())?;
        to.extend(b",\"allowed\":");
        write_verdict(to, overall);
        if !self.prefixes.is_empty() {
            to.extend(b",\"quotas\":[");
            for (i, (prefix, verdict)) in self.prefixes.iter().zip(verdicts).enumerate() {
                if i > 0 {
                    to.push(b',');
                }
                to.extend(prefix.as_bytes());
                write_verdict(to, verdict);
                to.push(b'}');
            }
            to.push(b']');
        }
        to.extend(b"}\n");
        if to.len() >= CHUNK_BYTES {
            self.write_buffer()?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.write_buffer()?;
        self.out.flush()
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.buffer);
        // Cleared on failure too: nothing is written twice.
        self.buffer.clear();
        written
    }
}
