//! The server fails, or refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tallygate::RedisStore;
use tallygate_testkit::poll;
use tallygate_testkit::redis::{Flavour, Server};

use crate::fixtures::{LONG, PATIENCE, builder, connected, every_key_expires, store};
use crate::traffic::{Data, Load, SHORT};

fn impatient(server: &Server) -> Arc<RedisStore> {
    connected(builder(&server.url()).response_timeout(Duration::from_secs(1)))
}

/// Breaks a server under load, and mends it once everybody has done without it.
fn survives(
    server: &Server,
    deadline: Duration,
    data: Data,
    breaks: impl FnOnce(),
    mends: impl FnOnce(),
) {
    let load = Load::start(&impatient(server), deadline);
    breaks();
    load.does_without(20);
    let down = || load.store_is_down();
    poll::until(PATIENCE, "the store is left alone", down);
    load.does_without(20);
    mends();
    load.end(data);
    every_key_expires(server);
}

#[test]
fn a_frozen_server_is_survived() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &[]);
        let (stop, resume) = (|| server.stop(), || server.resume());
        survives(&server, SHORT, Data::Kept, stop, resume);
    }
}

#[test]
fn a_server_killed_and_started_again_is_survived() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &[]);
        let (kill, restart) = (|| server.kill(), || server.restart());
        survives(&server, SHORT, Data::Lost, kill, restart);
    }
}

#[test]
fn a_server_that_loads_is_survived() {
    let server = Server::start_with(&[
        "--key-load-delay",
        "2000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    server.command(&["DEBUG", "POPULATE", "1000"]);
    let loaded = || {
        let loads = || server.info("loading").as_deref() == Some("0");
        poll::until(PATIENCE, "it has loaded", loads);
    };
    let reload = || server.restart_loading();
    survives(&server, SHORT, Data::Lost, reload, loaded);
}

#[test]
fn a_pause_of_clients_is_survived() {
    let server = Server::start();
    let pause = || {
        server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    };
    let unpause = || {
        server.command(&["CLIENT", "UNPAUSE"]);
    };
    survives(&server, SHORT, Data::Kept, pause, unpause);
}

/// These answer at once that they do not run the call: with time enough for every answer, what is
/// counted is known to the unit.
fn refuses(server: &Server, breaks: impl FnOnce(), mends: impl FnOnce()) {
    survives(server, LONG, Data::NothingElse, breaks, mends);
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
            // Nobody is there.
            || follow("127.0.0.1", "1"),
            || follow("NO", "ONE"),
        );
    }
}

#[test]
fn a_server_that_misses_its_replicas_is_survived() {
    let server = Server::start_with(&["--min-replicas-to-write", "0"]);
    let replicas = |least: &str| {
        let reply = server.command(&["CONFIG", "SET", "min-replicas-to-write", least]);
        assert_eq!(reply.text(), "OK");
    };
    refuses(&server, || replicas("1"), || replicas("0"));
}

#[test]
fn a_server_busy_with_a_script_that_does_not_end_is_survived() {
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
fn scripts_lost_all_the_time_go_unnoticed() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &[]);
        let load = Load::start(&store(&server.url()), LONG);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut connection = server.connect().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    connection.command(&["SCRIPT", "FLUSH"]).unwrap();
                }
            });
            for _ in 0..10 {
                load.flows();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(load.end(Data::NothingElse), 0, "calls failed");
        every_key_expires(&server);
    }
}
