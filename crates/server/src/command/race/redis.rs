//! The race on real servers: every client has a connection of its own. Cleans up behind it.

use std::future::Future;
use std::sync::Arc;

use tallygate::{
    Limit, RedisError, RedisReply, RedisServer, RedisStore, RedisStoreBuilder, Request, Store, Verb,
};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Field, Round};
use crate::error::Failure;
use crate::temp_store::Scratch;

/// How long a count lives at most, should nobody delete it.
const LIVES_MS: &str = "60000";

pub(super) fn race(field: &Field, builder: RedisStoreBuilder) -> Result<Vec<Round>, Failure> {
    let scratch = Scratch::connect(builder.clone(), "race")?;
    let naive = format!("tallygate:{}", scratch.namespace());
    let raced = scratch.run(async {
        let mut clients = Vec::new();
        for _ in 0..field.clients {
            let builder = builder.clone().namespace(scratch.namespace());
            let store = Arc::new(builder.open()?);
            clients.push(Client::over(store, &naive).await?);
        }
        let clients: Arc<[Client]> = clients.into();
        let mut rounds = Vec::new();
        for round in 0..field.rounds {
            rounds.push(one_round(field, &clients, &naive, round).await?);
        }
        Ok(rounds)
    });
    let cleared = scratch.clear();
    raced.and_then(|rounds| cleared.map(|()| rounds))
}

/// The race on a store that is open already: its clients share what connections it has. Leaves
/// nothing behind that does not expire within the hour.
pub(super) async fn among(field: &Field, store: &Arc<RedisStore>) -> Result<Vec<Round>, Failure> {
    let naive = format!("tallygate:race-{:016x}", fastrand::u64(..));
    let mut clients = Vec::new();
    for _ in 0..field.clients {
        clients.push(Client::over(Arc::clone(store), &naive).await?);
    }
    let clients: Arc<[Client]> = clients.into();
    let mut rounds = Vec::new();
    for round in 0..field.rounds {
        rounds.push(one_round(field, &clients, &naive, round).await?);
        let limit = Limit::from(field.quota());
        let key = counter(&naive, round);
        let forget = Request::new(key.as_str(), &limit).verb(Verb::Reset);
        store.decide(&forget).await?;
    }
    Ok(rounds)
}

/// What the atomic step counts under.
fn counter(naive: &str, round: u32) -> String {
    format!("{naive} round {round}")
}

async fn one_round(
    field: &Field,
    clients: &Arc<[Client]>,
    naive: &str,
    round: u32,
) -> Result<Round, Failure> {
    let limit = field.limit;
    let name = naive.to_owned();
    let read_check_write = all_at_once(clients, move |clients, i| {
        let name = name.clone();
        async move { Ok(read_check_write(&clients[i].server, &name, limit).await?) }
    });
    let read_check_write = read_check_write.await;
    if let Some(client) = clients.first() {
        client.server.command(&["UNLINK", naive]).await?;
    }
    let read_check_write = read_check_write?;
    let limit = Limit::from(field.quota());
    let key = counter(naive, round);
    let atomic = all_at_once(clients, move |clients, i| {
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

/// One who asks.
struct Client {
    store: Arc<RedisStore>,
    /// Where the count by read, check and write is.
    server: RedisServer,
}

impl Client {
    async fn over(store: Arc<RedisStore>, naive: &str) -> Result<Self, RedisError> {
        let mut trouble = None;
        for server in store.servers().await? {
            match server.command(&["GET", naive]).await {
                Ok(_) => return Ok(Client { store, server }),
                // Another server of the cluster has it.
                Err(error) => trouble = Some(error),
            }
        }
        Err(trouble.expect("there is at least one server"))
    }
}

/// Lets every client ask at the same moment and counts those that got in.
async fn all_at_once<F>(
    clients: &Arc<[Client]>,
    ask: impl Fn(Arc<[Client]>, usize) -> F,
) -> Result<u32, Failure>
where
    F: Future<Output = Result<bool, Failure>> + Send + 'static,
{
    let start = Arc::new(Barrier::new(clients.len()));
    let mut asking = JoinSet::new();
    for i in 0..clients.len() {
        let start = Arc::clone(&start);
        let ask = ask(Arc::clone(clients), i);
        asking.spawn(async move {
            start.wait().await;
            ask.await
        });
    }
    let mut got_in = 0;
    for asked in asking.join_all().await {
        got_in += u32::from(asked?);
    }
    Ok(got_in)
}

/// What most limiters in articles do.
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
    server.command(&["PEXPIRE", name, LIVES_MS]).await?;
    Ok(true)
}
