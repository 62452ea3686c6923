//! Copies bytes between the two sides of an upgraded connection.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tallygate::http::Holds;
use tokio::io::copy_bidirectional;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::io::InspectReader;

use super::connection_state::ConnectionState;
use crate::listener::Phase;

/// Spawns a task that copies bytes until one side ends, the tunnel is idle for too long, or the
/// listener aborts. Until then the connection of `client` counts as open, and the request holds what it
/// held of concurrency limits.
pub(super) fn spawn(
    downstream: OnUpgrade,
    upstream: OnUpgrade,
    idle_timeout: Duration,
    client: Arc<ConnectionState>,
    holds: Option<Holds>,
) {
    client.start_tunnel();
    tokio::spawn(async move {
        let _holds = holds;
        let upgrades = async { tokio::try_join!(downstream, upstream) };
        let Ok(Ok((downstream, upstream))) = timeout(idle_timeout, upgrades).await else {
            return;
        };
        let read = Notify::new();
        let track = |inner| InspectReader::new(TokioIo::new(inner), |_: &[u8]| read.notify_one());
        let (mut downstream, mut upstream) = (track(downstream), track(upstream));
        let idle = async { while timeout(idle_timeout, read.notified()).await.is_ok() {} };
        let mut phase = client.phase.clone();
        tokio::select! {
            // Both sides are closed, with or without an error.
            _ = copy_bidirectional(&mut downstream, &mut upstream) => {}
            () = idle => {}
            _ = phase.wait_for(|phase| *phase == Phase::Aborting) => {}
        }
    });
}
