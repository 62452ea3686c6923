//! The signals of the system. Knows which mean to stop and which to read the rules again.

use crate::error::Failure;

/// Signals as they come, from when it is made on.
#[cfg(unix)]
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: Option<tokio::signal::unix::Signal>,
}

/// Requests to read the rules again.
pub(super) struct HangUps {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::Outside(format!("cannot listen to signals: {error}")))
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: Some(listen(SignalKind::hangup())?),
        })
    }

    /// Waits until told to stop, and says by which signal.
    pub(super) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// The same requests, for whoever else has something to read again.
    pub(super) fn more_hang_ups(&self) -> Result<HangUps, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let signal = signal(SignalKind::hangup())
            .map_err(|error| Failure::Outside(format!("cannot listen to signals: {error}")))?;
        Ok(HangUps {
            signal: Some(signal),
        })
    }

    /// The requests to read the rules again, for whoever asks first.
    pub(super) fn hang_ups(&mut self) -> HangUps {
        HangUps {
            signal: self.hang_up.take(),
        }
    }
}

impl HangUps {
    /// Waits for the next.
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

/// Elsewhere there is only one that means to stop.
#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Signals)
    }

    pub(super) async fn stop(&mut self) -> &'static str {
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
