//! The gateway of a server: its settings from the arguments, its limits from the rules in force.
//! Knows both; leaves requests to the door.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollgate::tower::Gate;

use crate::cli::ServeArgs;
use crate::counters::Counters;
use crate::door::Bound;
use crate::door::gateway::{Gateway, Settings, Trusted, Upstream};
use crate::failure::Failure;
use crate::force::Force;
use crate::serving::Serving;

/// Where it listens unless told otherwise.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8_000);

/// Where it listens and leads to; none without an upstream.
pub(super) fn asked(args: &ServeArgs) -> Result<Option<(SocketAddr, Upstream)>, Failure> {
    match (&args.upstream, args.gateway) {
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let text = "--gateway is given, but no --upstream to lead to";
            Err(Failure::Input(text.to_owned()))
        }
        (Some(url), address) => {
            // The URL is not repeated: it may hold a password.
            let upstream = url.parse();
            let upstream =
                upstream.map_err(|error| Failure::Input(format!("--upstream: {error}")))?;
            Ok(Some((address.unwrap_or(USUAL), upstream)))
        }
    }
}

/// Lets requests through to an upstream until told to stop; then those that are under way, for at
/// most `drain`. Gives back whether all were answered.
pub(super) async fn serve(
    bound: Bound,
    gateway: Gateway<Arc<Force>, Counters>,
    mut stop: watch::Receiver<bool>,
) -> bool {
    let told = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    gateway.serve(bound.into_listener(), told).await.cut == 0
}

/// A gateway to an upstream under the rules in force.
pub(super) fn new(
    upstream: Upstream,
    serving: &Arc<Serving>,
    drain: Duration,
) -> Result<Gateway<Arc<Force>, Counters>, Failure> {
    let mut settings = Settings::new([upstream]);
    settings.timeouts.drain = drain;
    let force = Arc::clone(&serving.force);
    settings.trusted = Trusted::when(move |peer| force.rules().client().trusts(peer));
    let gate = Gate::with(serving.limiter.clone(), Arc::clone(&serving.force));
    let (counts, waits) = (Arc::clone(serving), Arc::clone(serving));
    let gate = gate
        .time(move |passage, took| counts.passed(passage, took))
        .on_waiting(move |plan| waits.held_back(plan));
    Gateway::new(settings, gate).map_err(|error| Failure::Input(error.to_string()))
}
