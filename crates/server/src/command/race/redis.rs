//! The race on Redis: every client has its own connection.

use futures_util::future::join_all;
use tallygate::store::{RedisReply, RedisServer, RedisStoreBuilder};
use tallygate::{Limit, RedisError, RedisStore, Request, Store, StoreError, Verb};

use super::{Race, Round};
use crate::error::Failure;
use crate::temp_store::TempStore;

/// The expiry of the read-check-write counter, should it not be deleted.
const EXPIRY_MS: &str = "60000";

pub(super) fn race(race: &Race, builder: RedisStoreBuilder) -> Result<Vec<Round>, Failure> {
    let temp = TempStore::connect(builder.clone(), "race")?;
    let raced = temp.run(async {
        let builder = builder.namespace(temp.namespace());
        let stores = (0..race.clients).map(|_| builder.clone().open());
        let stores = stores.collect::<Result<Vec<RedisStore>, RedisError>>()?;
        run_rounds(race, stores, &format!("tallygate:{}", temp.namespace())).await
    });
    let cleared = temp.clear();
    raced.and_then(|rounds| cleared.map(|()| rounds))
}

/// Runs the race on an open store, over its connections. Counters that are left expire within an
/// hour.
pub(super) async fn race_on(race: &Race, store: &RedisStore) -> Result<Vec<Round>, Failure> {
    let stores = vec![store.clone(); race.clients as usize];
    let key = format!("tallygate:race-{:016x}", fastrand::u64(..));
    run_rounds(race, stores, &key).await
}

/// Races for one key, a plain counter first and then a limit.
async fn run_rounds(
    race: &Race,
    stores: Vec<RedisStore>,
    key: &str,
) -> Result<Vec<Round>, Failure> {
    let mut clients = Vec::new();
    for store in stores {
        clients.push(Client::new(store, key).await?);
    }
    let mut rounds = Vec::new();
    for _ in 0..race.rounds {
        rounds.push(run_round(race, &clients, key).await?);
    }
    Ok(rounds)
}

/// Starts all clients at the same time and counts those admitted.
async fn run_round(race: &Race, clients: &[Client], key: &str) -> Result<Round, Failure> {
    let each = clients.iter();
    let admitted = join_all(each.map(|client| read_check_write(&client.server, key, race.limit)));
    let admitted = admitted.await.into_iter();
    let admitted = admitted.map(|allowed| Ok(u32::from(allowed?)));
    let read_check_write = admitted.sum::<Result<u32, RedisError>>();
    clients[0].server.command(&["UNLINK", key]).await?;
    let limit = Limit::from(race.quota());
    let request = Request::new(key, &limit);
    let decisions = join_all(clients.iter().map(|client| client.store.decide(&request)));
    let decisions = decisions.await.into_iter();
    let atomic = decisions.map(|decision| Ok(u32::from(decision?.allowed())));
    let atomic = atomic.sum::<Result<u32, StoreError>>();
    let reset = request.verb(Verb::Reset);
    clients[0].store.decide(&reset).await?;
    Ok(Round {
        read_check_write: read_check_write?,
        atomic: atomic?,
    })
}

struct Client {
    store: RedisStore,
    /// The server with the read-check-write counter.
    server: RedisServer,
}

impl Client {
    async fn new(store: RedisStore, key: &str) -> Result<Self, RedisError> {
        let mut last_error = None;
        for server in store.servers().await? {
            match server.command(&["GET", key]).await {
                Ok(_) => return Ok(Client { store, server }),
                // Another server of the cluster owns the key.
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.expect("there is at least one server"))
    }
}

/// A common but racy rate limiter.
async fn read_check_write(
    server: &RedisServer,
    name: &str,
    limit: u32,
) -> Result<bool, RedisError> {
    let count: u32 = match server.command(&["GET", name]).await? {
        RedisReply::Text(count) => count.parse().unwrap_or_default(),
        _ => 0,
    };
    if count >= limit {
        return Ok(false);
    }
    server.command(&["INCR", name]).await?;
    server.command(&["PEXPIRE", name, EXPIRY_MS]).await?;
    Ok(true)
}
