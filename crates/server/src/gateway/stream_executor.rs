//! Runs the streams of HTTP/2 connections, and resets those whose client does not take their
//! response.
//!
//! A client that leaves the flow-control window of a stream closed blocks its response, and so the
//! upstream's connection, while the client's own connection works. hyper does not poll a body in that
//! state, so the body cannot time out by itself.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep};

/// How a response's body was left when it was polled last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyPoll {
    /// It returned data, which the client has to take before the body is polled again.
    Data,
    /// It waits for the upstream, or has ended.
    Other,
}

thread_local! {
    /// Set by the body of a stream while the stream is polled.
    static LAST_BODY_POLL: Cell<Option<BodyPoll>> = const { Cell::new(None) };
}

/// Records that the body of the stream that is being polled returned data, or something else.
pub(super) fn record_body_poll(is_data: bool) {
    LAST_BODY_POLL.set(Some(match is_data {
        true => BodyPoll::Data,
        false => BodyPoll::Other,
    }));
}

/// Spawns streams with a write timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor {
    write_timeout: Duration,
}

impl StreamExecutor {
    pub(super) fn new(write_timeout: Duration) -> Self {
        StreamExecutor { write_timeout }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let mut stall = Stall::new(self.write_timeout);
        tokio::spawn(async move {
            let mut stream = pin!(stream);
            poll_fn(|context| {
                LAST_BODY_POLL.set(None);
                let polled = stream.as_mut().poll(context);
                let body_poll = LAST_BODY_POLL.take();
                match polled {
                    Poll::Ready(()) => Poll::Ready(()),
                    // Dropping the stream resets it, and drops the upstream's response.
                    Poll::Pending => stall.poll(body_poll, context),
                }
            })
            .await;
        });
    }
}

/// Detects that a client takes none of a response.
#[derive(Debug)]
struct Stall {
    timeout: Duration,
    /// Whether the stream waits for its client.
    is_waiting: bool,
    /// Whether the client took something since the timer was set.
    moved: bool,
    /// Kept while there is progress: setting one for every frame would cost more.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    fn new(timeout: Duration) -> Self {
        Stall {
            timeout,
            is_waiting: false,
            moved: false,
            timer: None,
        }
    }

    /// Ready once the client has taken nothing for the timeout, or for up to twice as long.
    fn poll(&mut self, body_poll: Option<BodyPoll>, context: &mut Context<'_>) -> Poll<()> {
        match body_poll {
            Some(BodyPoll::Data) => (self.is_waiting, self.moved) = (true, true),
            Some(BodyPoll::Other) => self.is_waiting = false,
            None => {}
        }
        if !self.is_waiting {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| {
            self.moved = false;
            Box::pin(sleep(self.timeout))
        });
        loop {
            ready!(timer.as_mut().poll(context));
            if !std::mem::take(&mut self.moved) {
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + self.timeout);
        }
    }
}
