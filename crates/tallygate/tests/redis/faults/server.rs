//! Server faults and refusals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tallygate::{Limit, RedisStore, Request, Store as _};
use tallygate_testkit::poll;
use tallygate_testkit::redis::{Flavour, Server};

use crate::fixtures::{
    LONG_DEADLINE, TIMEOUT, block_on, builder, connected, every_key_expires, quota, runtime, store,
};
use crate::traffic::{DEFAULT_DEADLINE, Data, Traffic};

fn connect(server: &Server) -> RedisStore {
    connected(builder(&server.url()).response_timeout(Duration::from_secs(1)))
}

/// Breaks a server under traffic, and repairs it after degraded decisions of every policy.
fn survives(
    server: &Server,
    deadline: Duration,
    data: Data,
    breaks: impl FnOnce(),
    repairs: impl FnOnce(),
) {
    let traffic = Traffic::start(&connect(server), deadline);
    breaks();
    traffic.wait_degraded(20);
    let down = || traffic.store_is_down();
    poll::until(TIMEOUT, "the breaker opens", down);
    traffic.wait_degraded(20);
    repairs();
    traffic.finish(data);
    every_key_expires(server);
}

#[test]
fn a_frozen_server_is_survived() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &[]);
        let (stop, resume) = (|| server.stop(), || server.resume());
        survives(&server, DEFAULT_DEADLINE, Data::Kept, stop, resume);
    }
}

/// As those of a replay, which has no deadline and no policy.
#[test]
fn requests_at_supplied_times_wait_for_a_frozen_server() {
    let server = Server::start();
    let store = store(&server.url());
    let limit = Limit::from(quota("fixed-window 5/min"));
    let decide = |store: RedisStore, limit: Limit| async move {
        let decision = store.decide_at(&Request::new("a", &limit), 1).await;
        decision.map(|decision| decision.remaining())
    };
    assert_eq!(block_on(decide(store.clone(), limit.clone())).unwrap(), 4);
    server.stop();
    let before = runtime().spawn(decide(store.clone(), limit.clone()));
    poll::until(TIMEOUT, "the breaker opens", || store.is_down());
    let after = runtime().spawn(decide(store.clone(), limit.clone()));
    server.resume();
    let mut left = [before, after].map(|task| block_on(task).unwrap().unwrap());
    left.sort_unstable();
    assert_eq!(left, [2, 3]);
}

#[test]
fn a_restart_is_survived() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &[]);
        let (kill, restart) = (|| server.kill(), || server.restart());
        survives(&server, DEFAULT_DEADLINE, Data::Lost, kill, restart);
    }
}

#[test]
fn a_loading_server_is_survived() {
    let server = Server::start_with(&[
        "--key-load-delay",
        "2000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    server.command(&["DEBUG", "POPULATE", "1000"]);
    let wait_loaded = || {
        let loaded = || server.info("loading").as_deref() == Some("0");
        poll::until(TIMEOUT, "it has loaded", loaded);
    };
    let reload = || server.restart_loading();
    survives(&server, DEFAULT_DEADLINE, Data::Lost, reload, wait_loaded);
}

#[test]
fn client_pause_is_survived() {
    let server = Server::start();
    let pause = || {
        server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    };
    let unpause = || {
        server.command(&["CLIENT", "UNPAUSE"]);
    };
    survives(&server, DEFAULT_DEADLINE, Data::Kept, pause, unpause);
}

/// The server rejects calls without running them: with a long deadline, the count is exact.
fn refuses(server: &Server, breaks: impl FnOnce(), repairs: impl FnOnce()) {
    survives(server, LONG_DEADLINE, Data::KeptExact, breaks, repairs);
}

#[test]
fn a_server_out_of_memory_is_survived() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &["--maxmemory-policy", "noeviction"]);
        let memory = |bytes: &str| {
            let reply = server.command(&["CONFIG", "SET", "maxmemory", bytes]);
            assert_eq!(reply.text(), "OK");
        };
        refuses(&server, || memory("1"), || memory("0"));
    }
}

#[test]
fn a_master_made_a_replica_is_survived() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &[]);
        let follow = |host: &str, port: &str| {
            assert_eq!(server.command(&["REPLICAOF", host, port]).text(), "OK");
        };
        refuses(
            &server,
            // No server listens there.
            || follow("127.0.0.1", "1"),
            || follow("NO", "ONE"),
        );
    }
}

#[test]
fn missing_replicas_are_survived() {
    let server = Server::start_with(&["--min-replicas-to-write", "0"]);
    let replicas = |min: &str| {
        let reply = server.command(&["CONFIG", "SET", "min-replicas-to-write", min]);
        assert_eq!(reply.text(), "OK");
    };
    refuses(&server, || replicas("1"), || replicas("0"));
}

#[test]
fn an_endless_script_is_survived() {
    let server = Server::start_with(&["--busy-reply-threshold", "1"]);
    let mut busy = server.connect().unwrap();
    let script = "while true do end";
    let make_busy = || busy.send(&["EVAL", script, "0"]).unwrap();
    let free = || {
        assert_eq!(server.command(&["SCRIPT", "KILL"]).text(), "OK");
    };
    refuses(&server, make_busy, free);
}

#[test]
fn repeated_script_flushes_are_survived() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &[]);
        let traffic = Traffic::start(&store(&server.url()), LONG_DEADLINE);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut connection = server.connect().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    connection.command(&["SCRIPT", "FLUSH"]).unwrap();
                }
            });
            for _ in 0..10 {
                traffic.wait_healthy();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(traffic.finish(Data::KeptExact), 0, "calls failed");
        every_key_expires(&server);
    }
}
