//! Odd topologies: nodes with stale slot maps, redirections without a host or to nowhere, and a
//! cluster of one node.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tallygate::store::CounterState;
use tallygate::{Engine, Limit, Limiter, OnFailure, RedisStore, Request, Store};
use tallygate_testkit::redis::{FakeNode, start_single_node};
use tallygate_testkit::resp::Connection;
use tallygate_testkit::{poll, ports};

use crate::fixtures::{
    LONG_DEADLINE, TIMEOUT, block_on, builder, connected, limiter, limits_are_exact, quota, runtime,
};
use crate::traffic::LARGE_QUOTA;

const LOOPBACK: &str = "$9\r\n127.0.0.1";

fn url(ports: &[u16]) -> String {
    let hosts: Vec<String> = ports.iter().map(|p| format!("127.0.0.1:{p}")).collect();
    format!("redis-cluster://{}", hosts.join(","))
}

fn closed(store: &RedisStore) -> Limiter<RedisStore> {
    let limiter = limiter(store, LARGE_QUOTA).on_failure(OnFailure::Closed);
    limiter.deadline(Duration::from_millis(500))
}

/// How many of a hundred decisions the store made, and how long the longest took.
fn decided(limiter: &Limiter<RedisStore>) -> (u32, Duration) {
    let (mut decided, mut longest) = (0, Duration::ZERO);
    for i in 0..100 {
        let started = Instant::now();
        let decision = block_on(limiter.decide(&limiter.request(format!("key {i}"))));
        longest = longest.max(started.elapsed());
        decided += u32::from(!decision.degraded());
    }
    (decided, longest)
}

fn is_call(command: &str) -> bool {
    command.starts_with("EVALSHA") || command.starts_with("EVAL ")
}

/// The slot of the first key of a script call.
fn slot(call: &str, server: u16) -> i64 {
    let key = call.split(' ').nth(3).unwrap();
    let mut connection = Connection::to_port(server).unwrap();
    let slot = connection.command(&["CLUSTER", "KEYSLOT", key]);
    slot.unwrap().integer()
}

/// A node that knows where the slots are, but takes some time to say so.
fn slow_node(server: u16) -> FakeNode {
    let node = FakeNode::to(server);
    node.reply(move |command| {
        (command == "CLUSTER SLOTS").then(|| {
            thread::sleep(Duration::from_millis(20));
            FakeNode::all_slots_on(LOOPBACK, server)
        })
    });
    node
}

/// A former master that claims all slots, and serves none.
fn stale_node(server: u16) -> FakeNode {
    let node = FakeNode::to(server);
    let port = node.port();
    node.reply(move |command| match command {
        "CLUSTER SLOTS" => Some(FakeNode::all_slots_on(LOOPBACK, port)),
        call if is_call(call) => Some("-CLUSTERDOWN Hash slot not served\r\n".to_owned()),
        _ => None,
    });
    node
}

#[test]
fn a_stale_slot_map_that_arrives_first_is_outvoted() {
    let server = start_single_node();
    let (stale, one, two) = (
        stale_node(server.port()),
        slow_node(server.port()),
        slow_node(server.port()),
    );
    let store = connected(builder(&url(&[stale.port(), one.port(), two.port()])));
    let (decided, _) = decided(&closed(&store));
    assert_eq!(decided, 100);
    limits_are_exact(&store);
}

#[test]
fn a_node_that_reported_clusterdown_does_not_vote() {
    let server = start_single_node();
    let (stale, one) = (stale_node(server.port()), slow_node(server.port()));
    // One against one: nothing but its errors tells which map is stale.
    let _in_runtime = runtime().enter();
    let urls = [[stale.port(), one.port()], [one.port(), stale.port()]];
    for ports in urls {
        let store = builder(&url(&ports)).open().unwrap();
        let limiter = closed(&store);
        poll::until(TIMEOUT, "the store decides", || decided(&limiter).0 == 100);
    }
}

#[test]
fn a_hanging_node_does_not_delay_the_slot_map() {
    let server = start_single_node();
    // It accepts connections and never replies.
    let hanging = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let hanging = hanging
        .local_addr()
        .map(|address| (address.port(), hanging));
    let (port, _listener) = hanging.unwrap();
    let (one, two) = (slow_node(server.port()), slow_node(server.port()));
    let _in_runtime = runtime().enter();
    for ports in [vec![port, one.port(), two.port()], vec![port, one.port()]] {
        let store = builder(&url(&ports)).open().unwrap();
        let (decided, longest) = decided(&closed(&store));
        assert_eq!(decided, 100, "longest {longest:?}");
        limits_are_exact(&store);
    }
}

#[test]
fn a_missing_host_is_the_one_that_was_asked() {
    let server = start_single_node();
    let target = server.port();
    let node = FakeNode::to(target);
    for host in ["$-1", "$0\r\n", LOOPBACK] {
        for error in ["MOVED", "ASK"] {
            let port = node.port();
            node.reply(move |command| match command {
                "CLUSTER SLOTS" => Some(FakeNode::all_slots_on(host, port)),
                call if call.starts_with("EVALSHA") => {
                    Some(format!("-{error} {} :{target}\r\n", slot(call, target)))
                }
                _ => None,
            });
            let store = connected(builder(&url(&[port])));
            let (decided, _) = decided(&closed(&store));
            assert_eq!(decided, 100, "{error} {host:?}");
            limits_are_exact(&store);
        }
    }
}

#[test]
fn a_redirection_to_nowhere_is_a_failure_until_it_ends() {
    let server = start_single_node();
    let hanging = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let real = server.port();
    let nowhere = [ports::free(), hanging.local_addr().unwrap().port()];
    for target in nowhere {
        for error in ["MOVED", "ASK"] {
            let node = FakeNode::to(server.port());
            let port = node.port();
            let slots = move |command: &str| {
                (command == "CLUSTER SLOTS").then(|| FakeNode::all_slots_on(LOOPBACK, port))
            };
            node.reply(slots);
            let store = connected(builder(&url(&[port])));
            let limiter = closed(&store).deadline(Duration::from_millis(50));
            assert_eq!(decided(&limiter).0, 100);
            let redirections = Arc::new(AtomicU32::new(0));
            let count = Arc::clone(&redirections);
            node.reply(move |command| {
                if command.starts_with("EVALSHA") {
                    count.fetch_add(1, Ordering::Relaxed);
                    let slot = slot(command, real);
                    return Some(format!("-{error} {slot} 127.0.0.1:{target}\r\n"));
                }
                slots(command)
            });
            let (answered, longest) = decided(&limiter);
            assert_eq!(answered, 0);
            assert!(longest < 20 * Duration::from_millis(50), "{longest:?}");
            assert!(redirections.load(Ordering::Relaxed) > 0);
            // Once the breaker of the target is open, nobody waits for it.
            let is_open = |(_, open): &(String, bool)| *open;
            poll::until(TIMEOUT, "its breaker opens", || {
                decided(&limiter);
                store.breakers().iter().any(is_open)
            });
            let timeouts = limiter.engine().timeouts();
            assert_eq!(decided(&limiter.clone().deadline(LONG_DEADLINE)).0, 0);
            assert_eq!(limiter.engine().timeouts(), timeouts, "{error} {target}");
            node.reply(slots);
            poll::until(TIMEOUT, "the store decides", || decided(&limiter).0 == 100);
            limits_are_exact(&store);
        }
    }
}

/// A slot is migrated between two servers: one limit refuses, and the counter of the other is not
/// reached.
#[test]
fn a_known_refusal_stands_while_a_slot_is_migrated() {
    let server = start_single_node();
    let node = FakeNode::to(server.port());
    let port = node.port();
    let spent = Limit::named("spent", quota("fixed-window 5/366d")).on_failure(OnFailure::Open);
    let lost = Limit::named("lost", quota("fixed-window 5/366d")).on_failure(OnFailure::Open);
    node.reply(move |command| match command {
        "CLUSTER SLOTS" => Some(FakeNode::all_slots_on(LOOPBACK, port)),
        call if call.starts_with("EVALSHA") && call.contains(":lost") => {
            Some("-TRYAGAIN Multiple keys request during rehashing of slot\r\n".to_owned())
        }
        _ => None,
    });
    let store = connected(builder(&url(&[port])));
    let engine = Engine::new(store).deadline(Duration::from_millis(200));
    let decide = |request: &Request<'_>| block_on(engine.decide(request));
    let patient = spent.clone().deadline(LONG_DEADLINE);
    while decide(&Request::new("a", &patient)).allowed() {}
    for _ in 0..5 {
        let both = Request::with_limits("a", [&lost, &spent]).unwrap();
        let decision = decide(&both);
        assert!(!decision.allowed() && !decision.degraded(), "{decision:?}");
        assert_eq!(decision.binding(), 1);
    }
}

#[test]
fn the_connection_to_an_importing_node_is_kept() {
    let server = start_single_node();
    let real = server.port();
    let (source, importing) = (FakeNode::to(real), FakeNode::to(real));
    let (port, target) = (source.port(), importing.port());
    let slots = move |command: &str| {
        (command == "CLUSTER SLOTS").then(|| FakeNode::all_slots_on(LOOPBACK, port))
    };
    source.reply(move |command| match command {
        call if call.starts_with("EVALSHA") => {
            let slot = slot(call, real);
            Some(format!("-ASK {slot} 127.0.0.1:{target}\r\n"))
        }
        command => slots(command),
    });
    let connections = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&connections);
    importing.reply(move |command| {
        count.fetch_add(command.starts_with("HELLO").into(), Ordering::Relaxed);
        slots(command)
    });
    let store = connected(builder(&url(&[port])));
    let limiter = closed(&store);
    for _ in 0..5 {
        assert_eq!(decided(&limiter).0, 100);
        // Refreshes the slot map, at most every 50 ms.
        block_on(store.probe()).unwrap();
        thread::sleep(Duration::from_millis(60));
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[test]
fn inspection_and_the_count_of_replicas_follow_redirections() {
    let server = start_single_node();
    let real = server.port();
    for error in ["MOVED", "ASK"] {
        let node = FakeNode::to(real);
        let port = node.port();
        node.reply(move |command| {
            // The key is the second word of GETRANGE, and the last but two of the heartbeat.
            let key = match command.split(' ').next()? {
                "CLUSTER" => return Some(FakeNode::all_slots_on(LOOPBACK, port)),
                "GETRANGE" => command.split(' ').nth(1)?,
                "EVAL" if command.contains("ZADD") => command.rsplit(' ').nth(2)?,
                _ => return None,
            };
            let slot = slot(&format!("- - - {key}"), real);
            Some(format!("-{error} {slot} :{real}\r\n"))
        });
        let store = connected(builder(&url(&[port])));
        let log = limiter(&store, "sliding-window-log 5/d");
        assert!(!block_on(log.decide(&log.request("a"))).degraded());
        let snapshot = block_on(store.inspect(&"a".into(), &log.limits()[0])).unwrap();
        let CounterState::Log { entries } = snapshot.state else {
            panic!("{:?}", snapshot.state);
        };
        assert_eq!(entries.len(), 1, "{error}");
        store.count_replicas();
        poll::until(TIMEOUT, "it counts itself", || store.replicas() == Some(1));
    }
}

#[test]
fn a_cluster_of_one_node_is_used_and_survives_a_restart() {
    let server = start_single_node();
    let store = connected(builder(&url(&[server.port()])).response_timeout(Duration::from_secs(1)));
    let limiter = closed(&store);
    assert_eq!(decided(&limiter).0, 100);
    limits_are_exact(&store);
    server.kill();
    assert_eq!(
        decided(&limiter.clone().deadline(Duration::from_millis(50))).0,
        0
    );
    server.restart();
    poll::until(TIMEOUT, "the store decides", || decided(&limiter).0 == 100);
    limits_are_exact(&store);
}
