//! A hand-written loop: one call of a script for each decision, over one shared connection.

use redis::AsyncConnectionConfig;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use tokio::runtime::Runtime;

use super::{Client, PATIENCE};
use crate::keys::Key;
use crate::redis::concurrency::{Lane, lane};
use crate::redis::script::{Script, When};
use crate::redis::server::must;

struct ByHand {
    connection: MultiplexedConnection,
    script: Box<dyn Script>,
}

/// Connects and gives the server the script.
pub(super) fn connect(runtime: &Runtime, url: &str, script: Box<dyn Script>) -> Box<dyn Lane> {
    lane(runtime.block_on(async {
        let client = must(redis::Client::open(url));
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = must(connection.await);
        if let Some(text) = script.text() {
            let mut load = redis::cmd("SCRIPT");
            let load = load.arg("LOAD").arg(text);
            must(load.query_async::<String>(&mut connection).await);
        }
        ByHand { connection, script }
    }))
}

impl Client for ByHand {
    async fn check(&self, key: &Key) -> bool {
        let call = self.script.one(key, When::Now);
        let answer = self.connection.clone().req_packed_command(&call).await;
        self.script.admitted(&must(answer)) == 1
    }
}
