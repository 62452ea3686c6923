//! A hand-written loop: one script call per decision over one shared connection.

use redis::AsyncConnectionConfig;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use tokio::runtime::Runtime;

use super::{Client, RESPONSE_TIMEOUT};
use crate::keys::Key;
use crate::redis::concurrency::{DynClient, boxed};
use crate::redis::script::{Script, When};
use crate::redis::server::expect_reply;

struct ByHand {
    connection: MultiplexedConnection,
    script: Box<dyn Script>,
}

/// Connects and loads the script.
pub(super) fn connect(runtime: &Runtime, url: &str, script: Box<dyn Script>) -> Box<dyn DynClient> {
    boxed(runtime.block_on(async {
        let client = expect_reply(redis::Client::open(url));
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE_TIMEOUT));
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = expect_reply(connection.await);
        if let Some(text) = script.text() {
            let mut load = redis::cmd("SCRIPT");
            let load = load.arg("LOAD").arg(text);
            expect_reply(load.query_async::<String>(&mut connection).await);
        }
        ByHand { connection, script }
    }))
}

impl Client for ByHand {
    async fn check(&self, key: &Key) -> bool {
        let call = self.script.single(key, When::Now);
        let reply = self.connection.clone().req_packed_command(&call).await;
        self.script.admitted(&expect_reply(reply)) == 1
    }
}
