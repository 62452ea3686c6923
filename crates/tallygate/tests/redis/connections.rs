//! How calls reach a server: several connections, batches in flight, and groups of calls.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use tallygate::store::StoreErrorKind;
use tallygate::{Limit, RedisStore, Request, Store};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use crate::fixtures::{
    TIMEOUT, block_on, builder, calls, connected, limits_are_exact, quota, runtime,
};
use crate::traffic::{DEFAULT_DEADLINE, Data, LARGE_QUOTA, Traffic};

/// Nothing is sent before all callers have asked.
fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn clients(server: &Server) -> u32 {
    let clients = server.info("connected_clients").unwrap();
    clients.parse().unwrap()
}

#[test]
fn keys_are_distributed_over_the_connections() {
    let server = Server::start();
    let before = clients(&server);
    let store = connected(builder(&server.url()).connections(4));
    assert_eq!(clients(&server), before + 4);
    let limit = Limit::from(quota("fixed-window 2/d"));
    let other = Limit::named("other", *limit.quota());
    for key in 0..40 {
        let request = || Request::with_limits(key.to_string(), [&limit, &other]).unwrap();
        let allowed = [0; 3].map(|_| block_on(store.decide(&request())).unwrap().allowed());
        assert_eq!(allowed, [true, true, false]);
    }
    // The commands that each connection has sent.
    let list = server.command(&["CLIENT", "LIST"]);
    let sent = list
        .text()
        .lines()
        .filter(|line| line.contains("cmd=evalsha"));
    assert_eq!(sent.count(), 4);
    limits_are_exact(&store);
    drop(store);
    poll::until(TIMEOUT, "they end", || clients(&server) == before);
}

#[test]
fn a_lost_connection_costs_no_decision_beyond_those_in_flight() {
    let server = Server::start();
    let store = connected(builder(&server.url()).connections(3));
    let traffic = Traffic::start(&store, DEFAULT_DEADLINE);
    for _ in 0..5 {
        let list = server.command(&["CLIENT", "LIST"]);
        let ours = list
            .text()
            .lines()
            .find(|line| line.contains("cmd=evalsha"));
        let id = ours.unwrap().split(['=', ' ']).nth(1).unwrap();
        server.command(&["CLIENT", "KILL", "ID", id]);
        traffic.wait_healthy();
    }
    traffic.finish(Data::Kept);
}

#[test]
fn a_server_that_fails_and_returns_is_used_over_all_connections() {
    let server = Server::start();
    let store = connected(
        builder(&server.url())
            .connections(3)
            .response_timeout(Duration::from_secs(1)),
    );
    let limiter = crate::fixtures::limiter(&store, LARGE_QUOTA).deadline(DEFAULT_DEADLINE);
    let keys: Vec<&'static str> = vec!["a", "b", "c", "d", "e", "f"];
    let kinds = keys.iter().map(|key| vec![*key]).collect();
    let traffic = Traffic::with_keys(limiter, kinds, DEFAULT_DEADLINE);
    traffic.wait_healthy();
    server.stop();
    traffic.wait_degraded(20);
    poll::until(TIMEOUT, "the breaker opens", || traffic.store_is_down());
    server.resume();
    traffic.wait_healthy();
    server.kill();
    traffic.wait_degraded(20);
    server.restart();
    traffic.finish(Data::Lost);
    assert_eq!(store.breakers().len(), 1, "one for the server");
}

#[test]
fn a_number_of_connections_beyond_its_bounds_is_an_error() {
    for connections in [0, 17] {
        let error = RedisStore::builder("redis://localhost").connections(connections);
        let _in_runtime = runtime().enter();
        let error = error.open().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        let text = error.to_string();
        assert!(
            text.contains(&connections.to_string()) && text.contains("16"),
            "{text}"
        );
    }
}

async fn decide_all(store: &RedisStore, requests: &[Request<'_>]) {
    let decisions = requests.iter().map(|request| store.decide(request));
    for decision in join_all(decisions).await {
        assert!(decision.unwrap().allowed());
    }
}

/// Over a long link two batches would leave the server idle most of the time.
#[test]
fn more_batches_are_in_flight_over_a_long_link() {
    const REQUESTS: usize = 4_096;
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let limit = Limit::from(quota(LARGE_QUOTA));
    let requests: Vec<Request<'_>> = (0..REQUESTS)
        .map(|key| Request::new(key.to_string(), &limit))
        .collect();
    one_thread().block_on(async {
        proxy.set(Mode::Delay(Duration::from_millis(120)));
        let store = builder(&proxy.url()).connect_timeout(TIMEOUT);
        let store = store.connect().await.unwrap();
        for _ in 0..3 {
            decide_all(&store, &requests).await;
        }
        // No reply comes.
        proxy.set(Mode::Delay(TIMEOUT));
        let mut all = pin!(decide_all(&store, &requests));
        let mut sent = 0;
        for _ in 0..200 {
            tokio::select! {
                biased;
                () = &mut all => panic!("a reply has come"),
                () = yield_now() => {}
            }
            sent = REQUESTS - store.queued_calls()[0].1;
        }
        assert!(sent > 3 * 128, "{sent} requests are in flight");
        assert!(sent <= 16 * 128, "{sent} requests are in flight");
    });
}

#[test]
fn a_log_among_others_does_not_keep_their_counters_from_being_read_together() {
    let server = Server::start();
    let bucket = Limit::from(quota(LARGE_QUOTA));
    let log = Limit::from(quota("sliding-window-log 1000/d"));
    let requests: Vec<Request<'_>> = (0..256)
        .map(|key| match key % 16 {
            0 => Request::new(key.to_string(), &log),
            1 => Request::with_limits(key.to_string(), [&bucket, &log]).unwrap(),
            _ => Request::new(key.to_string(), &bucket),
        })
        .collect();
    let before = calls(&server, "mget");
    one_thread().block_on(async {
        let store = builder(&server.url()).connect().await.unwrap();
        decide_all(&store, &requests).await;
        for request in &requests {
            let peek = request.clone().verb(tallygate::Verb::Peek);
            let decision = store.decide(&peek).await.unwrap();
            assert!(
                decision
                    .verdicts()
                    .iter()
                    .all(|verdict| verdict.limit - verdict.remaining == 1)
            );
        }
    });
    assert!(calls(&server, "mget") > before, "none of the batches");
}
