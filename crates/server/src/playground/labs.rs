//! The labs: short experiments on the real engine, bounded and rate limited.

macro_rules! settings {
    ($($name:ident: $type:ty = $default:literal in $range:expr),* $(,)?) => {
        #[derive(serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct Settings {
            $($name: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Settings { $($name: $default,)* }
            }
        }

        impl Settings {
            fn check(&self) -> Result<(), super::Problem> {
                $(super::check_range(stringify!($name), self.$name, $range)?;)*
                Ok(())
            }
        }
    };
}

mod boundary;
mod greedy;
mod outage;
mod race;
mod skew;
mod stampede;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tallygate::http::{Headers, Limits};
use tallygate::{Decision, Limit, Limiter, MemoryStore, Quota};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Playground;
use super::sessions::SessionId;
use crate::api::Object;
use crate::problem::{Code, Problem};
use crate::response;
use crate::state::ServerState;

const MAX_CONCURRENT_LABS: usize = 2;
const START_TIMEOUT: Duration = Duration::from_secs(5);
const LAB_TIMEOUT: Duration = Duration::from_secs(20);
const SESSION_QUOTA: &str = "token-bucket 1/s burst 12";
const LIMITER_CAPACITY: usize = 2_000;

pub(super) struct Labs {
    permits: Arc<Semaphore>,
    limiter: Limiter,
}

impl Default for Labs {
    fn default() -> Self {
        let quota: Quota = SESSION_QUOTA.parse().expect("the quota is valid");
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
        id: SessionId,
        name: &str,
        json: &[u8],
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let decision = self.labs.limiter.check(id.key("\0labs"));
        if !decision.allowed() {
            return Ok(self.labs.refusal(&decision));
        }
        let permits = Arc::clone(&self.labs.permits);
        let Ok(Ok(permit)) = timeout(START_TIMEOUT, permits.acquire_owned()).await else {
            let detail = format!("{MAX_CONCURRENT_LABS} labs are running; try again later");
            return Err(Problem::new(Code::Busy, detail));
        };
        let (name, json) = (name.to_owned(), json.to_owned());
        let state = Arc::clone(&self.state);
        // Spawned: if the client disconnects, the lab continues and keeps its permit.
        let running = tokio::spawn(async move {
            let _permit = permit;
            run(&name, &json, &state).await
        });
        let measurements = running.await.map_err(failed)??;
        Ok(response::ok(&measurements))
    }
}

async fn run(name: &str, json: &[u8], state: &ServerState) -> LabResult {
    match name {
        "boundary" => boundary::run(&settings(json)?),
        "race" => race::run(settings(json)?, state.engine.store()).await,
        "skew" => skew::run(&settings(json)?),
        "outage" => outage::run(settings(json)?).await,
        "greedy" => greedy::run(&settings(json)?),
        "stampede" => stampede::run(settings(json)?).await,
        _ => {
            let detail = "the labs are boundary, race, skew, outage, greedy and stampede";
            Err(Problem::new(Code::NotFound, detail))
        }
    }
}

impl Labs {
    fn refusal(&self, decision: &Decision) -> Response<Full<Bytes>> {
        let detail = format!("labs are limited to {SESSION_QUOTA} per visitor");
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

fn settings<T: DeserializeOwned + Default>(json: &[u8]) -> Result<T, Problem> {
    match json.trim_ascii() {
        [] => Ok(T::default()),
        json => Ok(response::parse_json::<Object<T>>(json)?.0),
    }
}

fn check_range<T: Display + PartialOrd>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Problem> {
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
