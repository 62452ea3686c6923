//! Builds the gateway from the arguments, the rules file and the active rules.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tallygate::tower::RateLimitLayer;

use crate::active_rules::ActiveRules;
use crate::cli::ServeArgs;
use crate::config::Config;
use crate::error::Failure;
use crate::gateway::{
    Gateway, Host, Limits, RuleHeaders, Settings, SingleFlight, Timeouts, Tls, TrustedPeers,
    Upstream,
};
use crate::state::ServerState;
use crate::store::ServerStore;

const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8_000);

/// The address and the settings of the gateway, `None` without an upstream. Arguments take
/// precedence over the rules file.
pub(super) fn settings(
    args: &ServeArgs,
    loaded: &Config,
) -> Result<Option<(SocketAddr, Settings)>, Failure> {
    let input_error = |text: &str| Err(Failure::Input(text.to_owned()));
    let file = loaded.gateway.as_ref();
    let setting = file.cloned().unwrap_or_default();
    let urls = match args.upstreams.is_empty() {
        true => setting.upstreams.iter().map(ToString::to_string).collect(),
        false => args.upstreams.clone(),
    };
    // The URL is not repeated: it may hold a password.
    let upstreams = urls.iter().map(|url| url.parse::<Upstream>());
    let upstreams: Vec<Upstream> = upstreams
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::Input(format!("--upstream: {error}")))?;
    if upstreams.is_empty() {
        return match (file, args) {
            (Some(_), _) => input_error(
                "the rules file has a `gateway`, but neither it nor --upstream names an upstream",
            ),
            (None, args) if args.gateway.is_some() => {
                input_error("--gateway is given without an --upstream")
            }
            (None, args) if args.tls_cert.is_some() || args.upstream_ca_cert.is_some() => {
                input_error("TLS is for the gateway, which needs an --upstream")
            }
            (None, args) if args.proxy_protocol => {
                input_error("--proxy-protocol is for the gateway, which needs an --upstream")
            }
            (None, _) => Ok(None),
        };
    }
    let address = args.gateway.or(setting.listen).unwrap_or(DEFAULT_ADDRESS);
    let mut settings = Settings::new(upstreams);
    settings.host = match setting.upstream_host {
        true => Host::Upstream,
        false => Host::Client,
    };
    settings.timeouts = Timeouts::from(&setting.timeouts);
    settings.timeouts.drain = super::DRAIN_TIMEOUT;
    settings.limits = Limits::from(&setting.sizes);
    if let Some(connections) = args.connections_per_client {
        settings.limits.connections_per_client = connections;
    }
    settings.proxy_protocol = args.proxy_protocol || setting.proxy_protocol;
    if settings.proxy_protocol && !loaded.rules.client.names_proxies() {
        return input_error(
            "--proxy-protocol needs the networks of the proxies that send it, in the rules file: \
             trusted_proxies: [10.0.0.0/8]",
        );
    }
    let ca_cert = args.upstream_ca_cert.clone();
    settings.upstream_ca_cert = ca_cert.or(setting.upstream_ca_cert);
    let tls = args
        .tls_cert
        .clone()
        .zip(args.tls_key.clone())
        .or(setting.tls);
    settings.tls = tls.map(|(certificate, key)| Tls { certificate, key });
    settings
        .check()
        .map_err(|error| Failure::Input(error.to_string()))?;
    Ok(Some((address, settings)))
}

pub(super) fn build(
    mut settings: Settings,
    state: &Arc<ServerState>,
) -> Result<Gateway<Arc<ActiveRules>, ServerStore>, Failure> {
    settings.tracer = state.tracer.clone();
    settings.access_log = state.access_log.clone();
    let upstreams = settings.upstreams.iter().map(Upstream::authority);
    let upstreams: Vec<String> = upstreams.map(ToString::to_string).collect();
    let metrics = state
        .metrics
        .gateway(upstreams, settings.limits.connections);
    settings.metrics = Some(Arc::new(metrics));
    let active_rules = Arc::clone(&state.active_rules);
    settings.trusted = TrustedPeers::when(move |peer| active_rules.rules().client().trusts(peer));
    let active_rules = Arc::clone(&state.active_rules);
    settings.rule_headers = RuleHeaders::new(move || active_rules.rules());
    let active_rules = Arc::clone(&state.active_rules);
    let single_flight = SingleFlight::by(move |head| active_rules.rules().coalesce_key(head));
    settings.single_flight = vec![single_flight];
    let layer = RateLimitLayer::with_engine(state.engine.clone(), Arc::clone(&state.active_rules));
    let (recorder, tracker) = (Arc::clone(state), Arc::clone(state));
    let layer = layer
        .on_decision(move |enforcement, elapsed| recorder.record(enforcement, elapsed))
        .on_pending(move |plan| tracker.track_pending(plan));
    Gateway::new(settings, layer).map_err(|error| Failure::Input(error.to_string()))
}
