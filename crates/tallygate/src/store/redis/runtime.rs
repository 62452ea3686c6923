//! The runtime that runs the connections of a store: the one it was opened on, or a thread of its
//! own. On a thread of its own, a process that is busy with requests still reads the replies.

use std::convert::Infallible;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing::dispatcher;

use super::error::RedisError;

pub(super) struct StoreRuntime {
    handle: Handle,
    /// Ends the thread when dropped.
    _thread: Option<oneshot::Sender<Infallible>>,
}

impl StoreRuntime {
    /// The current runtime; a thread without one.
    pub(super) fn current() -> Result<Self, RedisError> {
        match Handle::try_current() {
            Ok(handle) => Ok(StoreRuntime {
                handle,
                _thread: None,
            }),
            Err(_) => Self::on_own_thread(),
        }
    }

    pub(super) fn on_own_thread() -> Result<Self, RedisError> {
        let no_thread = |_| RedisError::no_thread();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(no_thread)?;
        let handle = runtime.handle().clone();
        let (shutdown, dropped) = oneshot::channel();
        // Log lines go where those of the thread go that opens the store.
        let dispatch = dispatcher::get_default(Clone::clone);
        thread::Builder::new()
            .name("tallygate-store".to_owned())
            .spawn(move || {
                dispatcher::with_default(&dispatch, || {
                    let _ = runtime.block_on(dropped);
                });
            })
            .map_err(no_thread)?;
        Ok(StoreRuntime {
            handle,
            _thread: Some(shutdown),
        })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}
