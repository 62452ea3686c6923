//! The race on Redis: every client has its own connection.

use std::future::Future;
use std::sync::Arc;

use tallygate::{
    Limit, RedisError, RedisReply, RedisServer, RedisStore, RedisStoreBuilder, Request, Store, Verb,
};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Race, Round};
use crate::error::Failure;
use crate::temp_store::TempStore;

/// The expiry of the read-check-write counter, should it not be deleted.
const EXPIRY_MS: &str = "60000";

pub(super) fn race(race: &Race, builder: RedisStoreBuilder) -> Result<Vec<Round>, Failure> {
    let temp = TempStore::connect(builder.clone(), "race")?;
    let naive = format!("tallygate:{}", temp.namespace());
    let raced = temp.run(async {
        let mut clients = Vec::new();
        for _ in 0..race.clients {
            let builder = builder.clone().namespace(temp.namespace());
            let store = builder.open()?;
            clients.push(Client::new(store, &naive).await?);
        }
        let clients: Arc<[Client]> = clients.into();
        let mut rounds = Vec::new();
        for round in 0..race.rounds {
            rounds.push(run_round(race, &clients, &naive, round).await?);
        }
        Ok(rounds)
    });
    let cleared = temp.clear();
    raced.and_then(|rounds| cleared.map(|()| rounds))
}

/// Runs the race on an open store, over its connections. Counters that are left expire within an
/// hour.
pub(super) async fn race_on(race: &Race, store: &RedisStore) -> Result<Vec<Round>, Failure> {
    let naive = format!("tallygate:race-{:016x}", fastrand::u64(..));
    let mut clients = Vec::new();
    for _ in 0..race.clients {
        clients.push(Client::new(store.clone(), &naive).await?);
    }
    let clients: Arc<[Client]> = clients.into();
    let mut rounds = Vec::new();
    for round in 0..race.rounds {
        rounds.push(run_round(race, &clients, &naive, round).await?);
        let limit = Limit::from(race.quota());
        let key = atomic_key(&naive, round);
        let reset = Request::new(key.as_str(), &limit).verb(Verb::Reset);
        store.decide(&reset).await?;
    }
    Ok(rounds)
}

fn atomic_key(naive: &str, round: u32) -> String {
    format!("{naive} round {round}")
}

async fn run_round(
    race: &Race,
    clients: &Arc<[Client]>,
    naive: &str,
    round: u32,
) -> Result<Round, Failure> {
    let limit = race.limit;
    let name = naive.to_owned();
    let read_check_write = run_clients(clients, move |clients, i| {
        let name = name.clone();
        async move { Ok(read_check_write(&clients[i].server, &name, limit).await?) }
    });
    let read_check_write = read_check_write.await;
    if let Some(client) = clients.first() {
        client.server.command(&["UNLINK", naive]).await?;
    }
    let read_check_write = read_check_write?;
    let limit = Limit::from(race.quota());
    let key = atomic_key(naive, round);
    let atomic = run_clients(clients, move |clients, i| {
        let (key, limit) = (key.clone(), limit.clone());
        async move {
            let request = Request::new(key.as_str(), &limit);
            Ok(clients[i].store.decide(&request).await?.allowed())
        }
    });
    Ok(Round {
        read_check_write,
        atomic: atomic.await?,
    })
}

struct Client {
    store: RedisStore,
    /// The server with the read-check-write counter.
    server: RedisServer,
}

impl Client {
    async fn new(store: RedisStore, naive: &str) -> Result<Self, RedisError> {
        let mut last_error = None;
        for server in store.servers().await? {
            match server.command(&["GET", naive]).await {
                Ok(_) => return Ok(Client { store, server }),
                // Another server of the cluster owns the key.
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.expect("there is at least one server"))
    }
}

/// Starts all clients at the same time and counts those admitted.
async fn run_clients<F>(
    clients: &Arc<[Client]>,
    request: impl Fn(Arc<[Client]>, usize) -> F,
) -> Result<u32, Failure>
where
    F: Future<Output = Result<bool, Failure>> + Send + 'static,
{
    let start = Arc::new(Barrier::new(clients.len()));
    let mut tasks = JoinSet::new();
    for i in 0..clients.len() {
        let start = Arc::clone(&start);
        let request = request(Arc::clone(clients), i);
        tasks.spawn(async move {
            start.wait().await;
            request.await
        });
    }
    let mut admitted = 0;
    for result in tasks.join_all().await {
        admitted += u32::from(result?);
    }
    Ok(admitted)
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
