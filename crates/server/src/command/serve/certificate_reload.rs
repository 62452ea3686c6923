//! Keeps the gateway's certificate up to date: whoever renews it only has to write the files. Knows
//! when to read them; leaves what is in them to the door.

use super::reload::{LOOKED_AT, look};
use super::signals::HangUps;
use crate::gateway::Certificate;

/// Reads a certificate and its key again when their files change or somebody says so, for as long
/// as it is polled. Files that cannot be used leave the certificate as it was.
pub(super) async fn run(certificate: Certificate, mut hang_ups: HangUps) {
    let files = || {
        let tls = certificate.tls();
        (look(&tls.certificate), look(&tls.key))
    };
    let mut seen = files();
    loop {
        let asked = tokio::select! {
            () = hang_ups.next() => true,
            () = tokio::time::sleep(LOOKED_AT) => false,
        };
        let now = files();
        if !asked && now == seen {
            continue;
        }
        seen = now;
        // A pair is written in two steps; whichever file comes last makes it whole.
        match certificate.renew() {
            Ok(()) => tracing::info!("the gateway's certificate was read again"),
            Err(error) => tracing::error!(%error, "the gateway keeps its certificate"),
        }
    }
}
