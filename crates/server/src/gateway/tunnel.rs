//! A connection that goes on with another protocol: bytes both ways until one side ends, nothing
//! passes for too long, or the gateway has stopped. Knows nothing of what the bytes mean.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::Stage;
use super::connection_state::ConnectionState;

/// What a tunnel needs to know of its connection, whose place it keeps.
#[derive(Clone, Debug)]
pub(super) struct Tunnels {
    pub(super) watch: Arc<ConnectionState>,
    pub(super) stage: watch::Receiver<Stage>,
}

/// Lets bytes through from now on, in a task of its own.
pub(super) fn open(client: OnUpgrade, upstream: OnUpgrade, idle: Duration, tunnels: Tunnels) {
    tokio::spawn(async move {
        let Tunnels { watch, mut stage } = tunnels;
        let both = async { tokio::try_join!(client, upstream) };
        let Ok(Ok((client, upstream))) = timeout(idle, both).await else {
            return;
        };
        let started = Instant::now();
        let last = Arc::new(AtomicU64::new(0));
        let noted = |inner| Noted {
            inner: TokioIo::new(inner),
            started,
            last: Arc::clone(&last),
        };
        let (mut client, mut upstream) = (noted(client), noted(upstream));
        let quiet = async {
            loop {
                let until = started + Duration::from_millis(last.load(Relaxed)) + idle;
                if until <= Instant::now() {
                    return;
                }
                sleep_until(until).await;
            }
        };
        tokio::select! {
            // However it ends, both sides are closed: nothing is left to do.
            _ = copy_bidirectional(&mut client, &mut upstream) => {}
            () = quiet => {}
            _ = stage.wait_for(|stage| *stage == Stage::Cut) => {}
        }
        drop(watch);
    });
}

/// Notes when bytes pass.
struct Noted<T> {
    inner: T,
    started: Instant,
    last: Arc<AtomicU64>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Noted<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let millis = this.started.elapsed().as_millis();
        this.last
            .store(u64::try_from(millis).unwrap_or(u64::MAX), Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Noted<T> {
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
