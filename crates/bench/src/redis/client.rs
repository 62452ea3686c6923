//! Contenders that run in this process and call the server: hand-written loops and whole limiters.
//!
//! A contender is one file here and one entry in [`all`].

use std::time::Duration;

use tokio::runtime::Runtime;

use super::concurrency::DynClient;
use super::script::{self, TALLYGATE};
use crate::keys::Key;
use crate::quota_spec::{Algorithm, QuotaSpec};

mod by_hand;
mod limitador;
pub(crate) mod tallygate;

/// Long, so that a busy machine is slow and does not fail.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Decides requests of cost 1, many concurrently.
pub trait Client: Send + Sync + 'static {
    /// Decides one request and returns whether it is admitted.
    fn check(&self, key: &Key) -> impl Future<Output = bool> + Send;
}

/// An entry in the list of contenders.
pub struct Entry {
    /// Its column in the table.
    pub name: &'static str,
    /// The algorithms it is measured with.
    pub algorithms: &'static [Algorithm],
    /// Connects it to the server at a URL.
    pub build: Box<Build>,
}

type Build = dyn Fn(&Runtime, &str, &QuotaSpec) -> Box<dyn DynClient>;

/// The store with one call per decision.
pub const UNBATCHED: &str = "tallygate, batching off";

/// The store with hash tags, in a cluster.
pub const HASH_TAGS: &str = "tallygate, hash tags";

/// The store with leases.
pub const LEASED: &str = "tallygate, leased";

/// The store with checks of changing costs, which are not coalesced.
pub const UNEQUAL: &str = "tallygate, unequal costs";

/// A hand-written loop over Tallygate's script.
pub const BY_HAND: &str = "its script by hand";

/// The peer of the targets.
pub const LIMITADOR: &str = "limitador";

/// The contenders in a cluster.
pub fn in_cluster() -> Vec<Entry> {
    vec![
        Entry {
            name: TALLYGATE,
            algorithms: &Algorithm::BASIC,
            build: Box::new(tallygate::connect),
        },
        Entry {
            name: HASH_TAGS,
            algorithms: &Algorithm::BASIC,
            build: Box::new(tallygate::connect_with_hash_tags),
        },
    ]
}

/// The contenders on skewed keys.
pub fn on_skewed_keys() -> Vec<Entry> {
    let entry = |name, build: fn(&Runtime, &str, &QuotaSpec) -> Box<dyn DynClient>| Entry {
        name,
        algorithms: &Algorithm::BASIC,
        build: Box::new(build),
    };
    vec![
        entry(TALLYGATE, tallygate::connect),
        entry(UNBATCHED, tallygate::connect_unbatched),
        entry(LEASED, tallygate::connect_leased),
        entry(UNEQUAL, tallygate::connect_unequal),
    ]
}

/// Every contender over one server, in the order of the table's columns.
pub fn all() -> Vec<Entry> {
    let mut entries = vec![
        Entry {
            name: TALLYGATE,
            algorithms: &Algorithm::BASIC,
            build: Box::new(tallygate::connect),
        },
        Entry {
            name: UNBATCHED,
            algorithms: &Algorithm::BASIC,
            build: Box::new(tallygate::connect_unbatched),
        },
    ];
    for entry in script::all() {
        if entry.name == script::floor::INCR {
            entries.push(Entry {
                name: LIMITADOR,
                algorithms: &[Algorithm::FixedWindow],
                build: Box::new(limitador::connect),
            });
        }
        entries.push(Entry {
            name: match entry.name {
                TALLYGATE => BY_HAND,
                name => name,
            },
            // The floor enforces no limit and applies to every algorithm.
            algorithms: match entry.enforces_limit {
                true => entry.algorithms,
                false => &Algorithm::BASIC,
            },
            build: Box::new(move |runtime, url, spec| {
                by_hand::connect(runtime, url, (entry.build)(spec))
            }),
        });
    }
    entries
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::keys;
    use crate::redis::concurrency::Load;
    use crate::redis::server::Server;

    #[test]
    fn every_client_admits_all_requests_below_a_large_limit() {
        let mut server = Server::start().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let requests: Arc<[Key]> = (0..256).map(keys::key).collect();
        let load = Load {
            in_flight: 64,
            time: Duration::from_millis(1),
        };
        for entry in all().into_iter().chain(on_skewed_keys()) {
            for &algorithm in entry.algorithms {
                if entry.name == LEASED && algorithm == Algorithm::LeakyShaping {
                    continue;
                }
                server.flush();
                let spec = QuotaSpec::unreached(algorithm, 256);
                let client = (entry.build)(&runtime, &server.url(), &spec);
                let result = client.run(&runtime, &requests, load);
                let (name, decided) = (entry.name, result.decided);
                assert!(decided >= 64, "{name} {algorithm:?}: {decided}");
                assert_eq!(result.admitted, decided, "{name} {algorithm:?}");
            }
        }
    }
}
