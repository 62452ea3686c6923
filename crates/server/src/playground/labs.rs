//! The labs: experiments of a moment on the real engine, each within bounds, a few at a time.
//! Knows which there are and who may have one; leaves each to a file of its own.

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
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tallygate::http::{Headers, Limits};
use tallygate::{Decision, Limit, Limiter, MemoryStore, Quota};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Playground;
use super::sessions::Id;
use crate::api::Object;
use crate::problem::{Code, Problem};
use crate::response;
use crate::state::Serving;

/// How many run at a time.
const AT_ONCE: usize = 2;
/// How long one waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// How long one may take.
const LAB_WITHIN: Duration = Duration::from_secs(20);
/// How often a visitor may have one, and how many of those are remembered.
const EACH: &str = "token-bucket 1/s burst 12";
const REMEMBERED: usize = 2_000;

/// Who may have a lab, and when.
pub(super) struct Labs {
    turns: Arc<Semaphore>,
    /// What is shown here is used here.
    limiter: Limiter,
}

impl Default for Labs {
    fn default() -> Self {
        let quota: Quota = EACH.parse().expect("it is a quota");
        let store = MemoryStore::builder().capacity(REMEMBERED).build();
        Labs {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            limiter: Limiter::over(store, Limit::named("labs", quota)),
        }
    }
}

impl Playground {
    /// Runs an experiment and answers what was measured.
    pub(super) async fn lab(
        &self,
        id: Id,
        name: &str,
        json: &[u8],
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let decision = self.labs.limiter.check(id.key("\0labs"));
        if !decision.allowed() {
            return Ok(self.labs.refusal(&decision));
        }
        let turns = Arc::clone(&self.labs.turns);
        let Ok(Ok(turn)) = timeout(TURN_WITHIN, turns.acquire_owned()).await else {
            let detail = format!("{AT_ONCE} labs run already; try again in a moment");
            return Err(Problem::new(Code::Busy, detail));
        };
        let (name, json) = (name.to_owned(), json.to_owned());
        let serving = Arc::clone(&self.serving);
        // A lab goes on when whoever asked has left, and so long nobody else has its turn.
        let running = tokio::spawn(async move {
            let _turn = turn;
            measure(&name, &json, &serving).await
        });
        let measured = running.await.map_err(failed)??;
        Ok(response::value(StatusCode::OK, &measured))
    }
}

async fn measure(name: &str, json: &[u8], serving: &Serving) -> Measured {
    match name {
        "boundary" => boundary::run(&settings(json)?),
        "race" => race::run(settings(json)?, serving.limiter.store()).await,
        "skew" => skew::run(&settings(json)?),
        "outage" => outage::run(settings(json)?).await,
        "greedy" => greedy::run(&settings(json)?),
        "stampede" => stampede::run(settings(json)?).await,
        _ => {
            let detail = "there is boundary, race, skew, outage, greedy and stampede";
            Err(Problem::new(Code::NotFound, detail))
        }
    }
}

impl Labs {
    fn refusal(&self, decision: &Decision) -> Response<Full<Bytes>> {
        let detail = format!("labs are limited to {EACH} for each visitor");
        let mut response = Problem::new(Code::TooManyLabs, detail).response();
        let limits = Limits::new(self.limiter.limits().iter().cloned());
        let limits = limits.expect("one limit goes together with itself");
        let told = [&limits].into_iter();
        Headers::default().write_decision(response.headers_mut(), decision, told);
        response
    }
}

/// Runs a lab on one thread of its own: nobody's requests wait, and the log does not tell of stores
/// that were switched off on purpose.
async fn apart<F: Future<Output = Measured>>(lab: impl FnOnce() -> F + Send + 'static) -> Measured {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let silent = tracing::subscriber::NoSubscriber::default();
        tracing::subscriber::with_default(silent, || {
            // Made within the runtime, whose clock it goes by.
            let limited = async { timeout(LAB_WITHIN, lab()).await };
            runtime.block_on(limited).map_err(failed)?
        })
    };
    spawn_blocking(run).await.map_err(failed)?
}

/// The settings of a lab; what is left out is as usual.
fn settings<T: DeserializeOwned + Default>(json: &[u8]) -> Result<T, Problem> {
    match json.trim_ascii() {
        [] => Ok(T::default()),
        json => Ok(response::parse::<Object<T>>(json)?.0),
    }
}

/// Whether a setting is one that a lab can run with.
fn within<T: Display + PartialOrd>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Problem> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    let detail = format!("`{name}` {value} is not {least} to {most}");
    Err(Problem::new(Code::BadField, detail))
}

/// A lab that could not go on, through nobody's fault who asked.
fn failed(why: impl Display) -> Problem {
    Problem::new(Code::StoreUnavailable, format!("the lab stopped: {why}"))
}

/// What a lab measured.
type Measured = Result<Value, Problem>;
