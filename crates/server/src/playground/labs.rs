//! The labs: short experiments on the real engine, bounded and rate limited.

/// Defines the `Settings` of a lab: numbers with their defaults and ranges.
macro_rules! settings {
    ($($name:ident: $default:literal in $range:expr),* $(,)?) => {
        #[derive(serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Settings {
            $($name: u32,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Settings { $($name: $default,)* }
            }
        }

        impl Settings {
            fn parse(json: &[u8]) -> Result<Self, super::Problem> {
                let settings: Self = super::parse_or_default(json)?;
                $(super::check_range(stringify!($name), settings.$name, $range)?;)*
                Ok(settings)
            }
        }
    };
}

mod boundary;
mod greedy;
mod outage;
mod race;
mod shares;
mod skew;
mod stampede;

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use serde_json::Value;
use tallygate::http::{Headers, Limits};
use tallygate::{Decision, Limit, Limiter, MemoryStore, Quota};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Playground, parse_or_default};
use crate::problem::{Code, Problem};
use crate::response;
use crate::store::ServerStore;

const MAX_CONCURRENT_LABS: usize = 2;
const START_TIMEOUT: Duration = Duration::from_secs(5);
const LAB_TIMEOUT: Duration = Duration::from_secs(20);
const CLIENT_QUOTA: &str = "token-bucket 1/s burst 12";
const LIMITER_CAPACITY: usize = 2_000;

pub(super) struct Labs {
    permits: Arc<Semaphore>,
    limiter: Limiter,
}

impl Default for Labs {
    fn default() -> Self {
        let quota: Quota = CLIENT_QUOTA.parse().expect("the quota is valid");
        let store = MemoryStore::builder().capacity(LIMITER_CAPACITY).build();
        Labs {
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_LABS)),
            limiter: Limiter::with_store(store, Limit::named("labs", quota)),
        }
    }
}

impl Playground {
    pub(super) async fn lab(
        &self,
        client: IpAddr,
        name: &str,
        json: &[u8],
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let decision = self.labs.limiter.check(client.to_string());
        if !decision.allowed() {
            return Ok(self.labs.refusal(&decision));
        }
        let permits = Arc::clone(&self.labs.permits);
        let Ok(Ok(permit)) = timeout(START_TIMEOUT, permits.acquire_owned()).await else {
            let detail = format!("{MAX_CONCURRENT_LABS} labs are running; try again later");
            return Err(Problem::new(Code::Busy, detail));
        };
        let (name, json) = (name.to_owned(), json.to_owned());
        let store = self.store.engine();
        // Spawned: if the client disconnects, the lab continues and keeps its permit.
        let running = tokio::spawn(async move {
            let _permit = permit;
            run(&name, &json, store.store()).await
        });
        let measurements = running.await.map_err(failed)??;
        Ok(response::ok(&measurements))
    }
}

async fn run(name: &str, json: &[u8], store: &ServerStore) -> LabResult {
    match name {
        "boundary" => boundary::run(json),
        "race" => race::run(json, store).await,
        "skew" => skew::run(json),
        "outage" => outage::run(json).await,
        "greedy" => greedy::run(json),
        "stampede" => stampede::run(json).await,
        "shares" => shares::run(json).await,
        _ => {
            let detail = "the labs are boundary, race, skew, outage, greedy, stampede and shares";
            Err(Problem::new(Code::NotFound, detail))
        }
    }
}

impl Labs {
    fn refusal(&self, decision: &Decision) -> Response<Full<Bytes>> {
        let detail = format!("labs are limited to {CLIENT_QUOTA} per client");
        let mut response = Problem::new(Code::TooManyLabs, detail).response();
        let limits = Limits::new(self.limiter.limits().iter().cloned());
        let limits = limits.expect("a single limit has a distinct name");
        Headers::default().write_decision(response.headers_mut(), decision, [&limits].into_iter());
        response
    }
}

/// Runs a lab on a thread of its own, so that it delays no requests, and without logs: its stores
/// fail on purpose.
async fn on_own_thread<F: Future<Output = LabResult>>(
    lab: impl FnOnce() -> F + Send + 'static,
) -> LabResult {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let silent = tracing::subscriber::NoSubscriber::default();
        tracing::subscriber::with_default(silent, || {
            // `timeout` needs the runtime's context.
            let lab = async { timeout(LAB_TIMEOUT, lab()).await };
            runtime.block_on(lab).map_err(failed)?
        })
    };
    spawn_blocking(run).await.map_err(failed)?
}

fn check_range(name: &str, value: u32, range: RangeInclusive<u32>) -> Result<(), Problem> {
    if range.contains(&value) {
        return Ok(());
    }
    let (min, max) = range.into_inner();
    let detail = format!("`{name}` {value} is not {min} to {max}");
    Err(Problem::new(Code::BadField, detail))
}

fn failed(why: impl Display) -> Problem {
    Problem::new(Code::StoreUnavailable, format!("the lab failed: {why}"))
}

type LabResult = Result<Value, Problem>;
