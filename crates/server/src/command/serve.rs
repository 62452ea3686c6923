//! `tallygate serve`: opens the store, the rules and the listeners, and serves until shutdown.

mod gateway;
mod logging;
mod reload;
mod signals;
mod startup;

use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallygate::rules::Rule;
use tallygate::{
    Engine, MemoryStore, OnFailure, RedisStore, RefusalCacheSettings, Replicas, Store,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::signals::{HangUps, Shutdown};
use self::startup::Addresses;
use crate::active_rules::ActiveRules;
use crate::auth::Token;
use crate::cli::{Failing, ServeArgs, StoreArgs};
use crate::command::doctor;
use crate::config::{self, Config, Report, StoreConfig, Style};
use crate::error::Failure;
use crate::gateway::Settings;
use crate::listener::{self, Http1, Options, RequestHandler};
use crate::metrics::Metrics;
use crate::otlp::{self, Otlp};
use crate::partitions::Partitions;
use crate::redact::Redactor;
use crate::state::ServerState;
use crate::store::{Backend, ServerStore};
use crate::store_url::StoreUrl;
use crate::{admin, api};

/// The rules that apply without a rules file.
const SAMPLE: &str = include_str!("serve/sample.yaml");
/// How long requests in flight may take after shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
const ADMIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const SHARING_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often a store that has not answered yet is probed.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &ServeArgs, out: &mut impl Write) -> Result<(), Failure> {
    let inputs = Inputs {
        otlp: otlp_client(args)?,
        // Before the rules are read, so that a change in between is noticed.
        fingerprint: args.config.as_deref().map(reload::Fingerprint::from_file),
        loaded: load_rules(args.config.as_deref())?,
        token: read_token(args)?,
    };
    let store = store_url(args, &inputs.loaded.store)?;
    let gateway = gateway::settings(args, inputs.loaded.gateway.as_ref())?;
    if args.check {
        return startup::print_check(&inputs.loaded, out).map_err(Failure::from);
    }
    logging::init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Outside(format!("cannot start threads: {error}")))?;
    let result = runtime.block_on(serve(args, inputs, store, gateway, out));
    // Draining is over.
    runtime.shutdown_background();
    result
}

/// What is read before anything listens.
struct Inputs {
    otlp: Option<otlp::Client>,
    fingerprint: Option<reload::Fingerprint>,
    loaded: Config,
    token: Option<Token>,
}

async fn serve(
    args: &ServeArgs,
    inputs: Inputs,
    store: StoreUrl,
    gateway: Option<(SocketAddr, Settings)>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let Inputs {
        otlp,
        fingerprint,
        loaded,
        token,
    } = inputs;
    // Before the first line of output: from then on callers may send signals.
    let mut shutdown_signals = Shutdown::new()?;
    let (rules_hang_ups, certificate_hang_ups) = (HangUps::new()?, HangUps::new()?);
    let (api, api_address) = bind(args.listen, "--listen").await?;
    let (admin, admin_address) = bind(args.admin, "--admin").await?;
    let gateway = match gateway {
        Some((address, settings)) => Some((bind(address, "--gateway").await?, settings)),
        None => None,
    };
    let keys = args.memory_keys.or(loaded.store.keys);
    let keys = keys.unwrap_or(config::DEFAULT_KEYS);
    let (partitions, sizes) =
        Partitions::divide(&loaded.rules.rules, keys).map_err(Failure::Input)?;
    let backend = match store {
        StoreUrl::Memory => {
            let builder = MemoryStore::builder().capacity(keys);
            Backend::Memory(builder.partitions(sizes).build())
        }
        StoreUrl::Redis(builder) => {
            let mut builder = builder.own_thread(true);
            builder = builder.local_keys(keys).local_partitions(sizes);
            if let Some(cache) = loaded.store.refusal_cache {
                let mut settings = RefusalCacheSettings::default();
                (settings.max_age, settings.keys) = (cache.max_age, cache.keys);
                builder = builder.refusal_cache(settings);
            }
            // Does not connect: until a server answers, the failure policies apply.
            let store = builder.open();
            let cannot_open = |error| Failure::Input(format!("cannot use the store: {error}"));
            Backend::Redis(store.map_err(cannot_open)?)
        }
    };
    let metrics = Arc::new(Metrics::new(backend.kind()));
    let store = ServerStore {
        backend,
        metrics: metrics.store(),
    };
    let origin = match &args.config {
        Some(path) => path.display().to_string(),
        None => "the built-in sample".to_owned(),
    };
    let active_rules = ActiveRules::new(
        loaded.rules.clone(),
        partitions,
        origin,
        Arc::clone(&metrics),
    );
    let active_rules = Arc::new(active_rules.map_err(|error| Failure::Input(error.to_string()))?);
    let on_failure = match args.on_failure {
        Failing::Local => OnFailure::default(),
        Failing::Open => OnFailure::Open,
        Failing::Closed => OnFailure::Closed,
    };
    let otlp = otlp.map(Otlp::start);
    let state = Arc::new(ServerState::new(
        Engine::new(store).on_failure(on_failure),
        active_rules,
        metrics,
        Redactor::new(args.show_keys),
        otlp.as_ref().map(Otlp::tracer),
        token,
    ));

    let shutdown = CancellationToken::new();
    // The admin port and OTLP stay up while the other ports drain.
    let shutdown_admin = CancellationToken::new();
    let addresses = Addresses {
        api: api_address,
        gateway: gateway.as_ref().map(|((_, address), _)| *address),
        admin: admin_address,
    };
    let gateway = match gateway {
        Some(((listener, _), settings)) => {
            let gateway = gateway::build(settings, &state)?;
            if let Some(certificate) = gateway.certificate() {
                let certificate = certificate.clone();
                tokio::spawn(reload::run_certificate(certificate, certificate_hang_ups));
            }
            Some((gateway, listener))
        }
        None => None,
    };
    startup::print_addresses(&addresses, out).map_err(Failure::from)?;
    startup::announce(args.config.as_deref(), &addresses);
    let gateway = gateway.map(|(gateway, listener)| {
        let shutdown = shutdown.clone().cancelled_owned();
        tokio::spawn(async move { gateway.serve(listener, shutdown).await.aborted == 0 })
    });
    let handler = api::Api::new(Arc::clone(&state));
    let api = tokio::spawn(serve_http(api, handler, DRAIN_TIMEOUT, shutdown.clone()));
    let handler = admin::Admin::new(Arc::clone(&state), shutdown_admin.clone());
    let admin = tokio::spawn(serve_http(
        admin,
        handler,
        ADMIN_DRAIN_TIMEOUT,
        shutdown_admin.clone(),
    ));
    let otlp = otlp.map(|otlp| tokio::spawn(otlp.run(Arc::clone(&state), shutdown_admin.clone())));
    tokio::spawn(probe_store(Arc::clone(&state)));
    if let Backend::Redis(_) = state.engine.store().backend {
        warn_of_unset_replicas(&loaded.rules.rules);
    }
    tokio::spawn(warn_of_sharing(Arc::clone(&state)));
    let active_rules = Arc::clone(&state.active_rules);
    tokio::spawn(async move { active_rules.expire_overrides().await });
    let reload = args.config.clone().zip(fingerprint);
    let reload = reload.map(|(path, fingerprint)| {
        let state = Arc::clone(&state);
        let reload = reload::Reload {
            path,
            loaded,
            state,
            fingerprint,
        };
        tokio::spawn(reload.run(rules_hang_ups))
    });

    let signal = shutdown_signals.wait().await;
    state.drain();
    tracing::info!(signal, "draining");
    shutdown.cancel();
    let mut drained = api.await.unwrap_or(false);
    if let Some(gateway) = gateway {
        drained &= gateway.await.unwrap_or(false);
    }
    shutdown_admin.cancel();
    let _ = admin.await;
    if let Some(otlp) = otlp {
        let _ = otlp.await;
    }
    if let Some(reload) = reload {
        reload.abort();
    }
    match drained {
        true => tracing::info!("every request was answered"),
        false => tracing::warn!(
            "some requests took longer than {} s",
            DRAIN_TIMEOUT.as_secs()
        ),
    }
    Ok(())
}

async fn bind(address: SocketAddr, flag: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|error: std::io::Error| {
        let help = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("; something else listens there: give another address with {flag}")
            }
            _ => String::new(),
        };
        Failure::Outside(format!("cannot listen on {address}: {error}{help}"))
    })
}

/// Serves the API or the admin port. Returns whether every request was answered.
async fn serve_http<H: RequestHandler>(
    listener: TcpListener,
    handler: H,
    drain_timeout: Duration,
    shutdown: CancellationToken,
) -> bool {
    let options = Options {
        max_connections: Http1::<H>::MAX_CONNECTIONS,
        drain_timeout,
        tls: None,
    };
    let handler = Arc::new(Http1(handler));
    listener::serve(listener, handler, &options, shutdown.cancelled()).await == 0
}

fn load_rules(path: Option<&Path>) -> Result<Config, Failure> {
    let loaded = match path {
        Some(path) => config::load(path),
        None => config::load_bytes("the built-in sample", SAMPLE.as_bytes(), &|_| None),
    };
    loaded.map_err(|report: Report| {
        let text = report.render(Style::Plain);
        Failure::Input(format!("the rules are wrong\n{text}"))
    })
}

fn read_token(args: &ServeArgs) -> Result<Option<Token>, Failure> {
    let text =
        match &args.admin_token_file {
            Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
                Failure::Input(format!("cannot read {}: {error}", path.display()))
            })?),
            // Compose files pass unset variables on as empty ones.
            None => std::env::var("TALLYGATE_ADMIN_TOKEN")
                .ok()
                .filter(|text| !text.trim().is_empty()),
        };
    let token = text.map(|text| Token::new(&text)).transpose();
    token.map_err(Failure::Input)
}

/// The store that the arguments name, or else the rules file.
fn store_url(args: &ServeArgs, file: &StoreConfig) -> Result<StoreUrl, Failure> {
    let mut store = StoreArgs {
        url: file.url.clone(),
        ca_cert: args.ca_cert.clone(),
        client_cert: args.client_cert.clone(),
        client_key: args.client_key.clone(),
    };
    match &args.store {
        Some(url) => store.url.clone_from(url),
        None => {
            store.ca_cert = store.ca_cert.or_else(|| file.ca_cert.clone());
            store.client_cert = store.client_cert.or_else(|| file.client_cert.clone());
            store.client_key = store.client_key.or_else(|| file.client_key.clone());
        }
    }
    StoreUrl::with_default_timeouts(&store)
}

fn otlp_client(args: &ServeArgs) -> Result<Option<otlp::Client>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let disabled =
        variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let endpoint = args.otlp.as_deref().filter(|_| !disabled);
    let settings = otlp::Settings::new(endpoint, args.otlp_sample, &variable);
    let client = settings.map_err(Failure::Input)?.map(otlp::Client::new);
    client.transpose().map_err(Failure::Outside)
}

/// Warns of rules that count in this process while the store fails, without a lower bound of the
/// number of processes: a fleet that starts without its store admits each limit once per process.
fn warn_of_unset_replicas(rules: &[Rule]) {
    let unset = |rule: &&Rule| {
        let local = OnFailure::Local(Replicas::Counted {
            at_least: NonZeroU32::MIN,
        });
        rule.on_failure.is_none_or(|policy| policy == local)
    };
    let names: Vec<&str> = rules
        .iter()
        .filter(unset)
        .map(|rule| rule.name.as_str())
        .collect();
    if !names.is_empty() {
        tracing::warn!(
            rules = names.join(", "),
            "until the store has counted the replicas, each process admits the whole limit while \
             the store fails: set on_failure: {{policy: local, replicas: {{at_least: N}}}}"
        );
    }
}

/// Warns once for each rule whose keys share a budget because its part of the memory is full.
async fn warn_of_sharing(state: Arc<ServerState>) {
    let Some(store) = state.engine.store().memory_store() else {
        return;
    };
    let mut warned = HashSet::new();
    loop {
        tokio::time::sleep(SHARING_CHECK_INTERVAL).await;
        for partition in store.sharing_partitions() {
            if !warned.insert(partition) {
                continue;
            }
            let mut rule = "(none)".to_owned();
            state.active_rules.for_each_rule(|known, _| {
                if known.partition == partition {
                    rule = known.name.to_string();
                }
            });
            tracing::warn!(
                rule,
                keys = store.partition_capacity(partition),
                "the rule's part of the memory is full: new keys share a budget; raise its `keys`, \
                 or --memory-keys"
            );
        }
    }
}

async fn probe_store(state: Arc<ServerState>) {
    let mut failed = false;
    while let Err(error) = state.engine.store().probe().await {
        if !failed {
            failed = true;
            tracing::warn!(%error, "not ready: failure policies decide until the store answers");
        }
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
    state.mark_store_reached();
    if failed {
        tracing::info!("the store answers: ready");
    }
    if let Some(store) = state.engine.store().redis_store() {
        warn_of_eviction(&state.metrics, store).await;
    }
}

/// Says in the log and in a metric which servers may evict counters.
async fn warn_of_eviction(metrics: &Metrics, store: &RedisStore) {
    for server in store.servers().await.unwrap_or_default() {
        let Some(evicts) = doctor::may_evict(&server).await else {
            continue;
        };
        metrics.set_evicts(server.address(), evicts);
        if evicts {
            tracing::warn!(
                server = server.address(),
                "the server may evict counters, and clients start anew: set maxmemory-policy \
                 noeviction"
            );
        }
    }
}
