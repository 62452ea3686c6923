//! Reloads the gateway's certificate when its files change or on SIGHUP.

use super::reload::{POLL_INTERVAL, file_state};
use super::signals::HangUps;
use crate::gateway::Certificate;

/// Reloads a certificate until dropped. Files that cannot be used leave it as it is.
pub(super) async fn run(certificate: Certificate, mut hang_ups: HangUps) {
    let files = || {
        let tls = certificate.tls();
        (file_state(&tls.certificate), file_state(&tls.key))
    };
    let mut loaded = files();
    loop {
        let requested = tokio::select! {
            () = hang_ups.next() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
        };
        let current = files();
        if !requested && current == loaded {
            continue;
        }
        loaded = current;
        // Certificate and key are written one after the other; the second change completes the pair.
        match certificate.reload() {
            Ok(()) => tracing::info!("reloaded the gateway's certificate"),
            Err(error) => tracing::error!(%error, "the gateway keeps its certificate"),
        }
    }
}
