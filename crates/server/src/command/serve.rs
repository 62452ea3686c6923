//! `tallygate serve`: opens the store, the rules and the listeners, and serves until shutdown.

mod banner;
mod gateway;
mod limit_flag;
mod logging;
mod reload;
mod signals;
mod startup;
mod store_health;

use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallygate::rules::Rule;
use tallygate::store::RefusalCacheSettings;
use tallygate::{Engine, MemoryStore, OnFailure, Replicas};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::banner::{Banner, StoreSummary};
use self::signals::{HangUps, Shutdown};
use crate::access_log::AccessLog;
use crate::active_rules::ActiveRules;
use crate::auth::{self, Token};
use crate::cli::{Failing, ServeArgs, StoreArgs};
use crate::config::{self, Config, Report, StoreConfig, Style};
use crate::endpoints::{Endpoints, GatewayEndpoint};
use crate::error::Failure;
use crate::gateway::{Limits, Settings};
use crate::listener::{self, ConnectionLimits, Http1, Options, RequestHandler};
use crate::metrics::Metrics;
use crate::otlp::{self, Otlp};
use crate::partitions::Partitions;
use crate::playground::CardStore;
use crate::redact::Redactor;
use crate::state::ServerState;
use crate::store::{Backend, ServerStore};
use crate::store_url::StoreUrl;
use crate::{admin, api, budgets};

/// The rules that apply without a rules file.
const SAMPLE: &str = include_str!("serve/sample.yaml");
const SAMPLE_ORIGIN: &str = "the built-in sample";
/// How long requests in flight may take after shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
const ADMIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the store may take to get leased units back.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Of the API, and of the admin port.
const MAX_HTTP_CONNECTIONS: usize = 8_192;
const SHARING_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &ServeArgs, out: &mut impl Write) -> Result<(), Failure> {
    let inputs = Inputs {
        otlp: otlp_client(args)?,
        // Before the rules are read, so that a change in between is noticed.
        fingerprint: args.config.as_deref().map(reload::Fingerprint::from_file),
        loaded: load_rules(args)?,
        token: read_token(args)?,
    };
    let store = store_url(args, &inputs.loaded.store)?;
    let gateway = gateway::settings(args, &inputs.loaded)?;
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
    let mut log_hang_ups = HangUps::new()?;
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
    let on_failure = match args.on_failure {
        Failing::Local => OnFailure::default(),
        Failing::Open => OnFailure::Open,
        Failing::Closed => OnFailure::Closed,
    };
    let cannot_open = |error| Failure::Input(format!("cannot use the store: {error}"));
    let playground = args
        .serves_playground()
        .then(|| CardStore::open(&store, on_failure).map_err(cannot_open))
        .transpose()?;
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
            let store = builder.open().map_err(cannot_open)?;
            store_health::check_configuration(&store).await?;
            Backend::Redis(store)
        }
    };
    let metrics = Arc::new(Metrics::new(backend.kind()));
    let store = ServerStore {
        backend,
        metrics: metrics.store(),
    };
    let origin = rules_origin(args);
    let active_rules = ActiveRules::new(
        loaded.rules.clone(),
        partitions,
        origin,
        Arc::clone(&metrics),
    );
    let active_rules = Arc::new(active_rules.map_err(|error| Failure::Input(error.to_string()))?);
    let otlp = otlp.map(Otlp::start);
    let access_log = open_access_log(args, &metrics)?;
    let endpoints = Endpoints {
        api: api_address,
        admin: admin_address,
        gateway: gateway
            .as_ref()
            .map(|((_, address), settings)| GatewayEndpoint {
                address: *address,
                is_tls: settings.tls.is_some(),
            }),
        has_playground: args.serves_playground(),
    };
    let state = Arc::new(ServerState::new(
        Engine::new(store).on_failure(on_failure),
        active_rules,
        metrics,
        Redactor::new(args.show_keys),
        otlp.as_ref().map(Otlp::tracer),
        access_log.clone(),
        token,
        endpoints,
    ));

    let shutdown = CancellationToken::new();
    // The admin port and OTLP stay up while the other ports drain.
    let shutdown_admin = CancellationToken::new();
    let compiled = state.active_rules.rules();
    let banner = Banner {
        origin: rules_origin(args),
        is_sample: args.config.is_none() && args.limits.is_empty(),
        rules: &loaded.rules.rules,
        compiled: &compiled,
        endpoints: &state.endpoints,
        upstreams: gateway.as_ref().map_or(Vec::new(), |(_, settings)| {
            settings.upstreams.iter().map(ToString::to_string).collect()
        }),
        store: store_summary(state.engine.store(), keys),
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
    startup::print_addresses(&state.endpoints, out).map_err(Failure::from)?;
    banner.announce();
    let gateway = gateway.map(|(gateway, listener)| {
        let shutdown = shutdown.clone().cancelled_owned();
        tokio::spawn(async move { gateway.serve(listener, shutdown).await.aborted == 0 })
    });
    let handler = api::Api::new(Arc::clone(&state), playground);
    let per_client = args.connections_per_client;
    let options = http_options(&state, "api", DRAIN_TIMEOUT, per_client);
    let api = tokio::spawn(serve_http(api, handler, options, shutdown.clone()));
    let handler = admin::Admin::new(Arc::clone(&state), shutdown_admin.clone());
    let options = http_options(&state, "admin", ADMIN_DRAIN_TIMEOUT, per_client);
    let admin = tokio::spawn(serve_http(admin, handler, options, shutdown_admin.clone()));
    let otlp = otlp.map(|otlp| tokio::spawn(otlp.run(Arc::clone(&state), shutdown_admin.clone())));
    tokio::spawn(store_health::watch(Arc::clone(&state)));
    tokio::spawn(budgets::watch(Arc::clone(&state)));
    if let Backend::Redis(_) = state.engine.store().backend {
        warn_of_unset_replicas(&loaded.rules.rules);
    }
    tokio::spawn(warn_of_sharing(Arc::clone(&state)));
    if let Some(log) = access_log.clone() {
        tokio::spawn(async move {
            loop {
                log_hang_ups.next().await;
                log.reopen();
            }
        });
    }
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
    if let Backend::Redis(store) = &state.engine.store().backend {
        // What is left of leases goes back.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, store.close()).await;
    }
    shutdown_admin.cancel();
    let _ = admin.await;
    if let Some(otlp) = otlp {
        let _ = otlp.await;
    }
    if let Some(reload) = reload {
        reload.abort();
    }
    if let Some(log) = access_log {
        log.flush().await;
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

fn open_access_log(args: &ServeArgs, metrics: &Metrics) -> Result<Option<Arc<AccessLog>>, Failure> {
    // Compose files pass unset variables on as empty ones.
    let path = args.access_log.as_deref();
    let path = path.filter(|path| !path.as_os_str().is_empty());
    let open = |path: &Path| {
        let log = AccessLog::open(path, args.show_keys, metrics.access_log());
        log.map(Arc::new).map_err(|error| {
            let path = path.display();
            Failure::Outside(format!("cannot open the access log {path}: {error}"))
        })
    };
    path.map(open).transpose()
}

fn store_summary(store: &ServerStore, keys: usize) -> StoreSummary {
    match store.redis_store() {
        None => StoreSummary::Memory { keys },
        Some(redis) => StoreSummary::Redis {
            servers: redis
                .breakers()
                .into_iter()
                .map(|(server, _)| server)
                .collect(),
        },
    }
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

/// The options of the API and the admin port.
fn http_options(
    state: &ServerState,
    name: &str,
    drain_timeout: Duration,
    connections_per_client: Option<usize>,
) -> Options {
    let active_rules = Arc::clone(&state.active_rules);
    let default = Limits::default().connections_per_client;
    Options {
        connections: ConnectionLimits {
            max: MAX_HTTP_CONNECTIONS,
            max_per_client: connections_per_client.unwrap_or(default),
            is_exempt: Arc::new(move |peer| active_rules.rules().client().trusts(peer)),
            gauge: state.metrics.connections(name, MAX_HTTP_CONNECTIONS),
        },
        drain_timeout,
        proxy_protocol: None,
        tls: None,
    }
}

/// Serves the API or the admin port. Returns whether every request was answered.
async fn serve_http<H: RequestHandler>(
    listener: TcpListener,
    handler: H,
    options: Options,
    shutdown: CancellationToken,
) -> bool {
    let handler = Arc::new(Http1(handler));
    listener::serve(listener, handler, &options, shutdown.cancelled()).await == 0
}

fn load_rules(args: &ServeArgs) -> Result<Config, Failure> {
    let limits = limit_flag::parse(&args.limits)?;
    let loaded = match &args.config {
        Some(_) if !limits.is_empty() => return Err(limit_flag::beside_config(&limits)),
        Some(path) => config::load(path),
        None if !limits.is_empty() => limit_flag::load(&limits),
        None => config::load_bytes(SAMPLE_ORIGIN, SAMPLE.as_bytes(), &|_| None),
    };
    loaded.map_err(|report: Report| {
        let text = report.render(Style::Plain);
        Failure::Input(format!("the rules are wrong\n{text}"))
    })
}

/// Where the rules come from, for people.
fn rules_origin(args: &ServeArgs) -> String {
    match &args.config {
        Some(path) => path.display().to_string(),
        None if !args.limits.is_empty() => "--limit".to_owned(),
        None => SAMPLE_ORIGIN.to_owned(),
    }
}

fn read_token(args: &ServeArgs) -> Result<Option<Token>, Failure> {
    let text = auth::read_token(args.admin_token_file.as_deref())?;
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
    Ok(match StoreUrl::with_default_timeouts(&store)? {
        StoreUrl::Memory => StoreUrl::Memory,
        StoreUrl::Redis(mut builder) => {
            // Whichever URL: without these, processes would count apart.
            if let Some(secret) = &file.hmac_secret {
                builder = builder.hmac_secret(secret.as_str());
            }
            if let Some(count) = file.hash_tags {
                builder = builder.hash_tags(count);
            }
            StoreUrl::Redis(builder)
        }
    })
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
