//! Real Redis and Valkey servers, started on free ports and broken at will. Knows nothing of the
//! client or the store under test.
//!
//! | value | what runs |
//! |---|---|
//! | [`Server`] | one server |
//! | [`Secured`] | one server that speaks TLS only and knows [`User`]s |
//! | [`Sentinel`] | a master, two replicas, three sentinels |
//! | [`Cluster`] | three masters, three replicas |
//!
//! Every one ends with its value. A server lives in a temporary folder of its own; commands sent
//! with [`Server::command`] go through the Unix socket there, so that they reach this server and no
//! other, whatever its port speaks. A wait that fails panics with the tail of the server's log.

mod cluster;
mod config;
mod flavour;
mod sentinel;
mod server;
mod tls_server;
mod user;

pub use cluster::{Cluster, Move};
pub use flavour::{Flavour, Version};
pub use sentinel::Sentinel;
pub use server::Server;
pub use tls_server::{ClientCertificate, Secured};
pub use user::User;

use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use self::config::Plan;

/// How long anything may take before a test is given up: for a busy machine, not for this code.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts several servers at once, in order.
fn start_all<const N: usize>(plans: [&Plan; N]) -> Vec<Server> {
    thread::scope(|scope| {
        let started = plans.map(|plan| scope.spawn(|| Server::start_plan(plan)));
        let join = |started: ScopedJoinHandle<'_, _>| started.join().expect("the server starts");
        started.into_iter().map(join).collect()
    })
}
