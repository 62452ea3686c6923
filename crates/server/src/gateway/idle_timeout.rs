//! A time limit on something that may have to wait: nothing is set up until it does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// How long something may go without progress.
#[derive(Debug)]
pub(super) struct Timer {
    longest: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    pub(super) fn new(longest: Duration) -> Self {
        Timer {
            longest,
            sleep: None,
        }
    }

    /// There was progress.
    pub(super) fn stop(&mut self) {
        self.sleep = None;
    }

    /// There was none: ready once that has lasted too long.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep(self.longest)));
        sleep.as_mut().poll(context)
    }
}
