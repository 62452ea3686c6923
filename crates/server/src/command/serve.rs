//! `tallygate serve`: opens the store, the rules and the doors, and keeps them until told to stop.
//! Knows what goes where; leaves each to the files below.

mod certificate_reload;
mod gateway;
mod logging;
mod otlp;
mod reload;
mod signals;
mod startup;
mod store;

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallygate::{MemoryStore, OnFailure, Store};
use tokio::sync::watch;

use self::signals::Signals;
use crate::active_rules::Force;
use crate::auth::Token;
use crate::cli::{Failing, ServeArgs};
use crate::config::{self, Loaded, Report, Style};
use crate::error::Failure;
use crate::gateway::Settings;
use crate::listener::{self, Bound};
use crate::metrics::Metrics;
use crate::otlp::{Client as OtlpClient, Otlp};
use crate::state::Serving;
use crate::store::Counters;
use crate::store_url::Place;
use crate::{admin, api};

/// Rules to try it out with, where no file is given.
const SAMPLE: &str = include_str!("serve/sample.yaml");
/// How long requests that are under way when it is told to stop may take.
const DRAIN: Duration = Duration::from_secs(20);
/// How often a store that has not answered yet is asked whether it would.
const ASKED_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &ServeArgs, out: &mut impl Write) -> Result<(), Failure> {
    let otlp = otlp::from_args(args)?;
    let seen = args.config.as_deref().map(reload::Seen::of);
    let loaded = rules(args.config.as_deref())?;
    let token = token(args)?;
    let place = store::url(args, &loaded.store)?;
    let gateway = gateway::asked(args, loaded.gateway.as_ref())?;
    if args.check {
        return startup::checked(&loaded, out).map_err(Failure::writing);
    }
    logging::init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Outside(format!("cannot start threads: {error}")))?;
    let served = runtime.block_on(serve(
        args,
        Start {
            seen,
            loaded,
            token,
            place,
            gateway,
            otlp,
        },
        out,
    ));
    // What is still under way had its time.
    runtime.shutdown_background();
    served
}

/// What is known before anything listens.
struct Start {
    /// What the rules file looked like before it was read.
    seen: Option<reload::Seen>,
    loaded: Loaded,
    token: Option<Token>,
    place: Place,
    /// Where the gateway listens, and where it leads to.
    gateway: Option<(SocketAddr, Settings)>,
    /// Posts telemetry.
    otlp: Option<OtlpClient>,
}

async fn serve(args: &ServeArgs, start: Start, out: &mut impl Write) -> Result<(), Failure> {
    let Start {
        seen,
        loaded,
        token,
        place,
        gateway,
        otlp,
    } = start;
    // Before anybody can learn that it runs: from the first line on it can be told to stop.
    let mut signals = Signals::new()?;
    let api = bind(args.listen, "--listen").await?;
    let admin = bind(args.admin, "--admin").await?;
    let gateway = match gateway {
        Some((address, settings)) => Some((bind(address, "--gateway").await?, settings)),
        None => None,
    };
    let kind = match place {
        Place::Memory => "memory",
        Place::Redis(_) => "redis",
    };
    let metrics = Arc::new(Metrics::new(kind));
    let counters = match place {
        Place::Memory => Counters::memory(MemoryStore::new(), metrics.store()),
        Place::Redis(builder) => {
            // Also if no server answers yet: policies say what to do without.
            let store = builder
                .open()
                .map_err(|error| Failure::Input(format!("cannot use the store: {error}")))?;
            Counters::redis(store, metrics.store())
        }
    };
    let origin = match &args.config {
        Some(path) => path.display().to_string(),
        None => "the built-in sample".to_owned(),
    };
    let force = Force::new(loaded.rules.clone(), origin, Arc::clone(&metrics));
    let force = Arc::new(force.map_err(|fault| Failure::Input(fault.to_string()))?);
    let on_failure = match args.on_failure {
        Failing::Open => OnFailure::Open,
        Failing::Closed => OnFailure::Closed,
    };
    let serving = Serving::new(counters, on_failure, force, metrics, token);
    let serving = serving.show_keys(args.show_keys);
    let otlp = otlp.map(Otlp::start);
    let serving = Arc::new(serving.trace(otlp.as_ref().map(Otlp::tracer)));

    let (stop, stopping) = watch::channel(false);
    // The admin door stays open while the others drain: somebody wants to see that they do.
    let (stop_admin, stopping_admin) = watch::channel(false);
    let exporting_stops = stopping_admin.clone();
    let addresses = startup::Addresses {
        api: api.address,
        gateway: gateway.as_ref().map(|(bound, _)| bound.address),
        admin: admin.address,
    };
    let gateway = match gateway {
        Some((bound, settings)) => {
            let gateway = gateway::new(settings, &serving)?;
            if let Some(certificate) = gateway.certificate() {
                let hang_ups = signals.more_hang_ups()?;
                tokio::spawn(certificate_reload::run(certificate.clone(), hang_ups));
            }
            Some(gateway::serve(bound, gateway, stopping.clone()))
        }
        None => None,
    };
    startup::bound(&addresses, out).map_err(Failure::writing)?;
    startup::banner(args.config.as_deref(), &addresses);
    let gateway = gateway.map(tokio::spawn);
    let api = tokio::spawn(api.serve(
        Arc::new(api::Api::new(Arc::clone(&serving))),
        stopping,
        DRAIN,
    ));
    let admin = tokio::spawn(admin.serve(
        Arc::new(admin::Admin::new(
            Arc::clone(&serving),
            stopping_admin.clone(),
        )),
        stopping_admin,
        Duration::from_secs(1),
    ));
    let exporting = otlp.map(|otlp| tokio::spawn(otlp.run(Arc::clone(&serving), exporting_stops)));
    tokio::spawn(reach(Arc::clone(&serving)));
    let force = Arc::clone(&serving.force);
    tokio::spawn(async move { force.keep_time().await });
    let reloading = args.config.clone().zip(seen).map(|(path, seen)| {
        let reload = reload::Reload::new(path, seen, loaded, Arc::clone(&serving));
        tokio::spawn(reload.run(signals.hang_ups()))
    });

    let signal = signals.stop().await;
    serving.drain();
    tracing::info!(signal, "draining");
    stop.send_replace(true);
    let mut drained = api.await.unwrap_or(false);
    if let Some(gateway) = gateway {
        drained &= gateway.await.unwrap_or(false);
    }
    stop_admin.send_replace(true);
    let _ = admin.await;
    if let Some(exporting) = exporting {
        let _ = exporting.await;
    }
    if let Some(reloading) = reloading {
        reloading.abort();
    }
    match drained {
        true => tracing::info!("every request is answered; good night"),
        false => tracing::warn!("some requests took longer than {} s", DRAIN.as_secs()),
    }
    Ok(())
}

async fn bind(address: SocketAddr, flag: &str) -> Result<Bound, Failure> {
    listener::bind(address).await.map_err(|error| {
        let help = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("; something else listens there: give another address with {flag}")
            }
            _ => String::new(),
        };
        Failure::Outside(format!("cannot listen on {address}: {error}{help}"))
    })
}

/// What the rules file says, or the sample.
fn rules(path: Option<&Path>) -> Result<Loaded, Failure> {
    let shown = |report: Report| {
        let text = report.text(Style::Plain);
        Failure::Input(format!("the rules are wrong\n{text}"))
    };
    match path {
        Some(path) => config::load(path).map_err(shown),
        None => {
            config::load_text("the built-in sample", SAMPLE.as_bytes(), &|_| None).map_err(shown)
        }
    }
}

/// The admin token, if there is one.
fn token(args: &ServeArgs) -> Result<Option<Token>, Failure> {
    let text =
        match &args.admin_token_file {
            Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
                Failure::Input(format!("cannot read {}: {error}", path.display()))
            })?),
            // Whoever composes containers hands on variables that nobody set.
            None => std::env::var("TALLYGATE_ADMIN_TOKEN")
                .ok()
                .filter(|text| !text.trim().is_empty()),
        };
    let token = text.map(|text| Token::new(&text)).transpose();
    token.map_err(Failure::Input)
}

/// Finds out when the store answers for the first time.
async fn reach(serving: Arc<Serving>) {
    let mut said = false;
    loop {
        match serving.limiter.store().probe().await {
            Ok(()) => break,
            Err(error) if !said => {
                said = true;
                tracing::warn!(%error, "not ready: requests are decided by policy until then");
            }
            Err(_) => {}
        }
        tokio::time::sleep(ASKED_EVERY).await;
    }
    serving.reach();
    if said {
        tracing::info!("the store answers: ready");
    }
}
