//! Copies bytes between the two sides of an upgraded connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::{Instant, sleep_until, timeout};

use super::client::Client;
use crate::listener::Phase;

/// Spawns a task that copies bytes until one side ends, the tunnel is idle for too long, or the
/// listener aborts. Until then the connection of `client` counts as open.
pub(super) fn spawn(
    downstream: OnUpgrade,
    upstream: OnUpgrade,
    idle_timeout: Duration,
    client: Arc<Client>,
) {
    tokio::spawn(async move {
        let upgrades = async { tokio::try_join!(downstream, upstream) };
        let Ok(Ok((downstream, upstream))) = timeout(idle_timeout, upgrades).await else {
            return;
        };
        let started = Instant::now();
        let last_read = Arc::new(AtomicU64::new(0));
        let track = |inner| TrackedIo {
            inner: TokioIo::new(inner),
            started,
            last_read: Arc::clone(&last_read),
        };
        let (mut downstream, mut upstream) = (track(downstream), track(upstream));
        let mut phase = client.phase.clone();
        let idle = async {
            loop {
                let last_read = Duration::from_millis(last_read.load(Relaxed));
                let deadline = started + last_read + idle_timeout;
                if deadline <= Instant::now() {
                    return;
                }
                sleep_until(deadline).await;
            }
        };
        tokio::select! {
            // Both sides are closed, with or without an error.
            _ = copy_bidirectional(&mut downstream, &mut upstream) => {}
            () = idle => {}
            _ = phase.wait_for(|phase| *phase == Phase::Aborting) => {}
        }
    });
}

struct TrackedIo<T> {
    inner: T,
    started: Instant,
    /// In milliseconds since the start.
    last_read: Arc<AtomicU64>,
}

impl<T: AsyncRead + Unpin> AsyncRead for TrackedIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let millis = this.started.elapsed().as_millis();
        this.last_read
            .store(u64::try_from(millis).unwrap_or(u64::MAX), Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TrackedIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}
