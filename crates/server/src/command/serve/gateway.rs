//! The gateway of a server: its settings from the arguments and the rules file, its limits from the
//! rules in force. Knows all of them; leaves requests to the door.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tallygate::tower::RateLimitLayer;
use tokio::sync::watch;

use crate::active_rules::Force;
use crate::cli::ServeArgs;
use crate::config::GatewaySetting;
use crate::error::Failure;
use crate::gateway::{Alike, Gateway, Settings, SingleFlight, Tls, Trusted, Upstream};
use crate::listener::Bound;
use crate::state::Serving;
use crate::store::Counters;
use tallygate::rules::Identical;

/// Where it listens unless told otherwise.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8_000);

/// Where it listens and what it is told, by the arguments where they say it and by the rules file
/// otherwise; none without an upstream.
pub(super) fn asked(
    args: &ServeArgs,
    file: Option<&GatewaySetting>,
) -> Result<Option<(SocketAddr, Settings)>, Failure> {
    let wrong = |text: &str| Err(Failure::Input(text.to_owned()));
    let setting = file.cloned().unwrap_or_default();
    let upstreams = match args.upstreams.is_empty() {
        true => setting.upstreams,
        false => {
            let urls = args.upstreams.iter();
            // The URL is not repeated: it may hold a password.
            urls.map(|url| url.parse::<Upstream>())
                .collect::<Result<_, _>>()
                .map_err(|error| Failure::Input(format!("--upstream: {error}")))?
        }
    };
    if upstreams.is_empty() {
        return match (file, args) {
            (Some(_), _) => {
                wrong("the rules file has a `gateway`, but neither it nor --upstream says where to")
            }
            (None, args) if args.gateway.is_some() => {
                wrong("--gateway is given, but no --upstream to lead to")
            }
            (None, args) if args.tls_cert.is_some() || args.upstream_ca_cert.is_some() => {
                wrong("TLS is for the gateway, and there is no --upstream to lead to")
            }
            (None, _) => Ok(None),
        };
    }
    let address = args.gateway.or(setting.listen).unwrap_or(USUAL);
    let mut settings = Settings::new(upstreams);
    settings.host = setting.host;
    settings.timeouts = setting.timeouts;
    settings.timeouts.drain = super::DRAIN;
    settings.limits = setting.limits;
    let ca_cert = args.upstream_ca_cert.clone();
    settings.upstream_ca_cert = ca_cert.or(setting.upstream_ca_cert);
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    let tls = tls.map(|(certificate, key)| Tls { certificate, key });
    settings.tls = tls.or(setting.tls);
    settings
        .check()
        .map_err(|error| Failure::Input(error.to_string()))?;
    Ok(Some((address, settings)))
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

/// A gateway under the rules in force.
pub(super) fn new(
    mut settings: Settings,
    serving: &Arc<Serving>,
) -> Result<Gateway<Arc<Force>, Counters>, Failure> {
    settings.tracer = serving.tracer.clone();
    let force = Arc::clone(&serving.force);
    settings.trusted = Trusted::when(move |peer| force.rules().client().trusts(peer));
    let force = Arc::clone(&serving.force);
    let shared = SingleFlight::alike(move |head| {
        Some(match force.rules().identical(head)? {
            Identical::Credentials => Alike::Credentials,
            Identical::Key(key) => Alike::Key(key),
        })
    });
    settings.single_flight = vec![shared];
    let layer = RateLimitLayer::with_engine(serving.limiter.clone(), Arc::clone(&serving.force));
    let (recorder, tracker) = (Arc::clone(serving), Arc::clone(serving));
    let layer = layer
        .on_decision(move |enforcement, elapsed| recorder.record(enforcement, elapsed))
        .on_pending(move |plan| tracker.track_pending(plan));
    Gateway::new(settings, layer).map_err(|error| Failure::Input(error.to_string()))
}
