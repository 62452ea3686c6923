//! A timeout that sets no timer while there is progress.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

#[derive(Debug)]
pub(crate) struct IdleTimeout {
    timeout: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl IdleTimeout {
    pub(crate) fn new(timeout: Duration) -> Self {
        IdleTimeout {
            timeout,
            sleep: None,
        }
    }

    pub(crate) fn stop(&mut self) {
        self.sleep = None;
    }

    /// Starts the timer if it is stopped; ready once it has expired.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep(self.timeout)));
        sleep.as_mut().poll(context)
    }
}
