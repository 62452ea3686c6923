//! Replay counters in Redis, decided in batches.

use std::borrow::Cow;
use std::io::Write;
use std::mem;
use std::time::Duration;

use tallygate::store::RedisStoreBuilder;
use tallygate::{Limit, MAX_LIMITS, Member, Request};
use tallygate_core::Quota;

use super::output::OutputWriter;
use super::request::ReplayRequest;
use crate::error::Failure;
use crate::temp_store::TempStore;

const MAX_BATCH_REQUESTS: usize = 1_000;
const MAX_BATCH_KEY_BYTES: usize = 1 << 20;

/// A replay has no deadline of its own, but its counters expire after a day.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(86_400);

pub(super) struct RedisCounters {
    store: TempStore,
    limits: Vec<Limit>,
    batch: Vec<ReplayRequest<'static>>,
    key_bytes: usize,
}

impl RedisCounters {
    /// Connects. A quota's counter is named by its position.
    pub(super) fn connect(builder: RedisStoreBuilder, quotas: &[Quota]) -> Result<Self, Failure> {
        if quotas.len() > MAX_LIMITS {
            let text = format!("{} quotas are more than {MAX_LIMITS}", quotas.len());
            return Err(Failure::Input(text));
        }
        let named = |(i, quota): (usize, &Quota)| Limit::named(i.to_string(), *quota);
        Ok(RedisCounters {
            store: TempStore::connect(builder.response_timeout(RESPONSE_TIMEOUT), "replay")?,
            limits: quotas.iter().enumerate().map(named).collect(),
            batch: Vec::new(),
            key_bytes: 0,
        })
    }

    /// Queues a request, and decides the batch once it is full.
    pub(super) fn submit(
        &mut self,
        request: ReplayRequest<'_>,
        output: &mut OutputWriter<impl Write>,
    ) -> Result<(), Failure> {
        let texts = [&request.key, &request.member, &request.owner];
        let id = request.id.as_ref().map_or(0, |id| id.len());
        self.key_bytes += texts.map(|text| text.len()).iter().sum::<usize>() + id;
        self.batch.push(ReplayRequest {
            key: Cow::Owned(request.key.into_owned()),
            member: Cow::Owned(request.member.into_owned()),
            owner: Cow::Owned(request.owner.into_owned()),
            id: request.id.map(|id| Cow::Owned(id.into_owned())),
            ..request
        });
        if self.batch.len() < MAX_BATCH_REQUESTS && self.key_bytes < MAX_BATCH_KEY_BYTES {
            return Ok(());
        }
        self.flush(output)
    }

    pub(super) fn flush(&mut self, output: &mut OutputWriter<impl Write>) -> Result<(), Failure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = mem::take(&mut self.batch);
        self.key_bytes = 0;
        let requests = batch.iter().map(|one| {
            let request = Request::with_limits(one.key.as_ref(), &self.limits)
                .expect("the limits are within MAX_LIMITS and have distinct names");
            let member = Member::new(&*one.member).weight(one.weight);
            let request = request.member(member).owner(&*one.owner);
            let request = match &one.id {
                Some(id) => request.id(&**id),
                None => request,
            };
            (request.verb(one.verb).cost(one.cost), one.t_us)
        });
        let requests: Vec<(Request<'_>, u64)> = requests.collect();
        let decisions = self.store.store().decide_many_at(&requests);
        let decisions = self.store.run(decisions)?;
        for (request, decision) in batch.iter().zip(&decisions) {
            output.write(request, decision.verdict(), decision.verdicts())?;
        }
        Ok(())
    }

    pub(super) fn clear(&self) -> Result<(), Failure> {
        self.store.clear()
    }
}
