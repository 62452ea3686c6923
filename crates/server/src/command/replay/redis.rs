//! Counters of a replay in Redis, asked many at a time. Knows lines and answers; knows nothing of
//! how lines are read.

use std::borrow::Cow;
use std::io::Write;
use std::mem;
use std::time::Duration;

use tallygate::{Limit, MAX_LIMITS, RedisStoreBuilder, Request};
use tallygate_core::Quota;

use super::output::Answers;
use super::request::Line;
use crate::error::Failure;
use crate::temp_store::Scratch;

/// How many lines are decided together, and how many bytes their keys may have.
const MOST_LINES: usize = 1_000;
const MOST_BYTES: usize = 1 << 20;

/// A replay has no deadline; but counters on supplied time live for a day, and so do hopes.
const ANSWER_WITHIN: Duration = Duration::from_secs(86_400);

/// Servers, and the lines that are still to be decided.
pub(super) struct Remote {
    scratch: Scratch,
    limits: Vec<Limit>,
    lines: Vec<Line<'static>>,
    bytes: usize,
}

impl Remote {
    /// Connects for counters under these quotas, told apart by position.
    pub(super) fn connect(builder: RedisStoreBuilder, quotas: &[Quota]) -> Result<Self, Failure> {
        if quotas.len() > MAX_LIMITS {
            let text = format!("{} quotas are more than {MAX_LIMITS}", quotas.len());
            return Err(Failure::Input(text));
        }
        let named = |(i, quota): (usize, &Quota)| Limit::named(i.to_string(), *quota);
        Ok(Remote {
            scratch: Scratch::connect(builder.answer_within(ANSWER_WITHIN), "replay")?,
            limits: quotas.iter().enumerate().map(named).collect(),
            lines: Vec::new(),
            bytes: 0,
        })
    }

    /// Takes a line in, to be decided with others.
    pub(super) fn take(&mut self, line: Line<'_>) {
        self.bytes += line.key.len();
        self.lines.push(Line {
            key: Cow::Owned(line.key.into_owned()),
            ..line
        });
    }

    /// Whether it is time to decide.
    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= MOST_LINES || self.bytes >= MOST_BYTES
    }

    /// Decides the lines taken in, in their order.
    pub(super) fn decide(&mut self, answers: &mut Answers<impl Write>) -> Result<(), Failure> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let lines = mem::take(&mut self.lines);
        self.bytes = 0;
        let asked = lines.iter().map(|line| {
            let request = Request::of(line.key.as_ref(), &self.limits)
                .expect("the limits are few and each has a name of its own");
            (request.verb(line.verb).cost(line.cost), line.t_us)
        });
        let requests: Vec<(Request<'_>, u64)> = asked.collect();
        let store = self.scratch.store();
        let decisions = self.scratch.run(store.decide_many_at(&requests))?;
        for (line, decision) in lines.iter().zip(&decisions) {
            answers
                .write(line, decision.verdict(), decision.verdicts())
                .map_err(Failure::writing)?;
        }
        Ok(())
    }

    /// Deletes the counters.
    pub(super) fn clear(&self) -> Result<(), Failure> {
        self.scratch.clear()
    }
}
