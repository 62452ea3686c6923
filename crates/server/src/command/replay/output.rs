//! Decisions as JSON lines.

use std::io::{self, BufWriter, Write};

use tallygate_core::{Quota, Verdict};

use super::request::ReplayRequest;
use crate::verdict_json::{write_number, write_verdict};

const CHUNK_BYTES: usize = 64 << 10;

pub(super) struct OutputWriter<W: Write> {
    out: BufWriter<W>,
    line: Vec<u8>,
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
            out: BufWriter::with_capacity(CHUNK_BYTES, out),
            line: Vec::new(),
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
        let to = &mut self.line;
        to.clear();
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
        self.out.write_all(to)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
