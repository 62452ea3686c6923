//! Process signals: which mean shutdown and which mean reload.

use crate::error::Failure;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind};

/// Signals received since it was created.
#[cfg(unix)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Option<Signal>,
}

pub(super) struct HangUps {
    #[cfg(unix)]
    signal: Option<Signal>,
}

#[cfg(unix)]
fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    tokio::signal::unix::signal(kind)
        .map_err(|error| Failure::Outside(format!("cannot listen to signals: {error}")))
}

#[cfg(unix)]
impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: Some(listen(SignalKind::hangup())?),
        })
    }

    /// Waits for a signal to shut down and returns its name.
    pub(super) async fn shutdown(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    pub(super) fn more_hang_ups(&self) -> Result<HangUps, Failure> {
        let signal = Some(listen(SignalKind::hangup())?);
        Ok(HangUps { signal })
    }

    /// The reload requests since the start, for the first caller.
    pub(super) fn hang_ups(&mut self) -> HangUps {
        HangUps {
            signal: self.hang_up.take(),
        }
    }
}

impl HangUps {
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}

#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Signals)
    }

    pub(super) async fn shutdown(&mut self) -> &'static str {
        let _ = tokio::signal::ctrl_c().await;
        "Ctrl-C"
    }

    pub(super) fn hang_ups(&mut self) -> HangUps {
        HangUps {}
    }

    pub(super) fn more_hang_ups(&self) -> Result<HangUps, Failure> {
        Ok(HangUps {})
    }
}
