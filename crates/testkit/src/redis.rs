//! Real Redis and Valkey servers on free ports, with fault injection.
//!
//! | value | what runs |
//! |---|---|
//! | [`Server`] | one server |
//! | [`TlsServer`] | one server with TLS and [`User`]s only |
//! | [`Sentinel`] | a master, two replicas, three sentinels |
//! | [`Cluster`] | three masters, three replicas |
//! | [`FakeNode`] | a port that forwards to a server, except for scripted replies |
//!
//! Each is killed on drop and has its own temporary folder. [`Server::command`] uses the Unix
//! socket there, so that it reaches this server whatever its port serves. A timeout panics with the
//! end of the server's log.

mod cluster;
mod config;
mod fake_node;
mod flavour;
mod sentinel;
mod server;
mod tls_server;
mod user;

pub use cluster::{Cluster, Migration, start_single_node};
pub use fake_node::FakeNode;
pub use flavour::{Flavour, Version};
pub use sentinel::Sentinel;
pub use server::Server;
pub use tls_server::{ClientCertificate, TlsServer};
pub use user::User;

use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use self::config::ServerConfig;

/// Generous, for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Starts several servers in parallel.
fn start_all<const N: usize>(configs: [&ServerConfig; N]) -> Vec<Server> {
    thread::scope(|scope| {
        let started = configs.map(|config| scope.spawn(|| Server::start_config(config)));
        let join = |started: ScopedJoinHandle<'_, _>| started.join().expect("the server starts");
        started.into_iter().map(join).collect()
    })
}
