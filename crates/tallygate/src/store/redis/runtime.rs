//! The runtime that runs the connections of a store: the one it was opened on, or threads of its own.
//! On threads of its own, a process that is busy with requests still reads the replies.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing::dispatcher;

use super::error::RedisError;

const THREAD_NAME: &str = "tallygate-store";
/// One thread, and one connection to each server, for so many cores.
const CORES_PER_CONNECTION: usize = 4;
/// The most that are worth it: a server decides on one core.
const MAX_DEFAULT_CONNECTIONS: usize = 4;

pub(super) struct StoreRuntime {
    handle: Handle,
    /// Ends its own threads when dropped.
    _threads: Option<oneshot::Sender<Infallible>>,
}

impl StoreRuntime {
    /// The current runtime; threads of its own without one.
    pub(super) fn current() -> Result<Self, RedisError> {
        match Handle::try_current() {
            Ok(handle) => Ok(StoreRuntime {
                handle,
                _threads: None,
            }),
            Err(_) => Self::on_own_threads(),
        }
    }

    /// One thread, or more if there are many cores.
    pub(super) fn on_own_threads() -> Result<Self, RedisError> {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = default_connections(cores);
        let no_thread = |_| RedisError::no_thread();
        // Log lines go where those of the thread go that opens the store.
        let dispatch = dispatcher::get_default(Clone::clone);
        let mut builder = match threads {
            1 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        let of_worker = dispatch.clone();
        builder
            .worker_threads(threads)
            .thread_name(THREAD_NAME)
            .on_thread_start(move || {
                // For as long as the thread runs.
                std::mem::forget(dispatcher::set_default(&of_worker));
            });
        let runtime = builder.enable_all().build().map_err(no_thread)?;
        let handle = runtime.handle().clone();
        let (shutdown, dropped) = oneshot::channel();
        thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || {
                dispatcher::with_default(&dispatch, || {
                    let _ = runtime.block_on(dropped);
                });
            })
            .map_err(no_thread)?;
        Ok(StoreRuntime {
            handle,
            _threads: Some(shutdown),
        })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The number of connections to each server.
    pub(super) fn connections(&self) -> usize {
        match &self._threads {
            Some(_) => self.handle.metrics().num_workers(),
            None => default_connections(self.handle.metrics().num_workers()),
        }
    }
}

fn default_connections(cores: usize) -> usize {
    (cores / CORES_PER_CONNECTION).clamp(1, MAX_DEFAULT_CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_more_connections_on_many_cores() {
        let cores = [1, 2, 4, 7, 8, 12, 16, 128];
        assert_eq!(cores.map(default_connections), [1, 1, 1, 1, 2, 3, 4, 4]);
    }
}
