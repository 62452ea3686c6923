//! Process signals: which mean shutdown and which mean reload.

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Failure;

/// The shutdown signals since it was created.
pub(super) struct Shutdown {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

/// The reload signals since it was created.
pub(super) struct HangUps {
    #[cfg(unix)]
    signal: Signal,
}

#[cfg(unix)]
fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::Outside(format!("cannot listen to signals: {error}")))
}

impl Shutdown {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Shutdown {
            #[cfg(unix)]
            interrupt: listen(SignalKind::interrupt())?,
            #[cfg(unix)]
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal and returns its name.
    #[cfg(unix)]
    pub(super) async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    #[cfg(not(unix))]
    pub(super) async fn wait(&mut self) -> &'static str {
        let _ = tokio::signal::ctrl_c().await;
        "Ctrl-C"
    }
}

impl HangUps {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(HangUps {
            #[cfg(unix)]
            signal: listen(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        if self.signal.recv().await.is_some() {
            return;
        }
        std::future::pending().await
    }
}
