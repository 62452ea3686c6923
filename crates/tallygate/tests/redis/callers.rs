//! Holds of processes that end or stop, settles that are repeated, late, lost or after a fail-over,
//! holds across servers, and what is not coalesced or cached.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tallygate::store::{CounterState, RefusalCacheSettings};
use tallygate::{Decision, Key, Limit, Member, RedisStore, Request, Store, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{Cluster, Sentinel};

use crate::fixtures::{
    HEALTHY, LONG_DEADLINE, TIMEOUT, block_on, builder, connected, every_key_expires, namespace,
    quota, runtime, store,
};

/// A limit of `text`, named after it.
fn limit(text: &str) -> Limit {
    Limit::from(quota(text))
}

fn decide(store: &RedisStore, request: &Request<'_>) -> Decision {
    block_on(store.decide(request)).unwrap()
}

fn ask(store: &RedisStore, limit: &Limit, owner: &str, verb: Verb) -> Decision {
    decide(store, &Request::new("k", limit).owner(owner).verb(verb))
}

fn live_units(store: &RedisStore, limit: &Limit) -> u32 {
    let snapshot = block_on(store.inspect(&Key::from("k"), limit)).unwrap();
    match snapshot.state {
        CounterState::Holds { holds } => holds.iter().map(|hold| hold.units).sum(),
        other => panic!("{other:?}"),
    }
}

const CHILD_VARIABLE: &str = "TALLYGATE_TEST_HOLDER";

/// Not a test by itself: a process that holds a unit and renews it until it is killed or stopped.
#[test]
fn a_child_process_holds_a_unit() {
    let Ok(parameters) = env::var(CHILD_VARIABLE) else {
        return;
    };
    let (url, namespace) = parameters.split_once(';').unwrap();
    let store = connected(RedisStore::builder(url).namespace(namespace));
    let limit = limit("concurrent 1 for 2s");
    let mut verb = Verb::Check;
    loop {
        if !ask(&store, &limit, "child", verb).allowed() {
            println!("\nlost");
            return;
        }
        verb = Verb::Renew;
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn holder(namespace: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg("callers::a_child_process_holds_a_unit")
        .env(CHILD_VARIABLE, format!("{};{namespace}", HEALTHY.url()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn what_a_killed_or_stopped_process_holds_ends_by_itself() {
    for name in ["-KILL", "-STOP"] {
        let namespace = namespace();
        let store = connected(RedisStore::builder(&HEALTHY.url()).namespace(&namespace));
        let limit = limit("concurrent 1 for 2s");
        let mut child = holder(&namespace);
        let held = || !ask(&store, &limit, "other", Verb::Peek).allowed();
        poll::until(TIMEOUT, "the process holds the unit", held);
        // It renews: the hold lasts longer than its time.
        let first = live_units(&store, &limit);
        assert_eq!(first, 1);
        signal(&child, name);
        let free = || ask(&store, &limit, "other", Verb::Check).allowed();
        poll::until(TIMEOUT, "the hold ends", free);
        if name == "-STOP" {
            // Gone on, it learns that its hold was lost.
            signal(&child, "-CONT");
            let output = child.wait_with_output().unwrap();
            assert!(String::from_utf8_lossy(&output.stdout).contains("lost"));
            assert_eq!(live_units(&store, &limit), 1);
        } else {
            child.wait().unwrap();
        }
    }
    every_key_expires(&HEALTHY);
}

#[test]
fn what_a_partitioned_process_holds_ends_by_itself() {
    let namespace = namespace();
    let proxy = Proxy::to(HEALTHY.port());
    let cut_off = connected(
        RedisStore::builder(&proxy.url())
            .namespace(&namespace)
            .response_timeout(Duration::from_millis(200)),
    );
    let store = connected(RedisStore::builder(&HEALTHY.url()).namespace(&namespace));
    let limit = limit("concurrent 1 for 2s");
    assert!(ask(&cut_off, &limit, "cut off", Verb::Check).allowed());
    proxy.set(Mode::BlackHole);
    let renew = Request::new("k", &limit).owner("cut off").verb(Verb::Renew);
    assert!(block_on(cut_off.decide(&renew)).is_err());
    let free = || ask(&store, &limit, "other", Verb::Check).allowed();
    poll::until(TIMEOUT, "the hold ends", free);
    proxy.set(Mode::Pass);
    // Connected again, it learns that its hold was lost, and takes nothing from the new owner.
    let renewed = poll::first(TIMEOUT, || block_on(cut_off.decide(&renew)).ok()).unwrap();
    assert!(!renewed.allowed());
    assert!(live_units(&store, &limit) <= 1);
}

#[test]
fn a_hold_across_servers_is_taken_back_to_what_it_was() {
    let cluster = Cluster::start();
    let store = store(&cluster.url());
    let holds = limit("concurrent 5 for 1h");
    let full = limit("fixed-window 1/d");
    decide(&store, &Request::new("full", &full));
    for (owner, before) in [("new", 0), ("old", 2)] {
        let first = Request::new("k", &holds).owner(owner).verb(Verb::Check);
        if before > 0 {
            assert!(decide(&store, &first.cost(before)).allowed());
        }
        let units = live_units(&store, &holds);
        // A window on another server refuses.
        let both = Request::new("k", &holds)
            .owner(owner)
            .and("full", &full)
            .unwrap();
        let refused = both.and("other", &full).unwrap();
        assert!(!decide(&store, &refused).allowed());
        let is_restored = || live_units(&store, &holds) == units;
        poll::until(TIMEOUT, "the hold is restored", is_restored);
        assert_eq!(units, before);
    }
    // So is an id: it is unknown again.
    let reserve = Request::new("window", &full).and("full", &full).unwrap();
    let reserve = reserve.id("r").verb(Verb::Reserve);
    assert!(!decide(&store, &reserve).allowed());
    let is_free = || decide(&store, &Request::new("window", &full).verb(Verb::Peek)).allowed();
    poll::until(TIMEOUT, "the units are returned", is_free);
    let again = Request::new("window", &full).id("r").verb(Verb::Reserve);
    assert_eq!(decide(&store, &again).remaining(), 0);
}

#[test]
fn a_settle_works_once_and_one_of_an_unknown_id_changes_nothing() {
    let store = store(&HEALTHY.url());
    for text in [
        "fixed-window 100/d",
        "sliding-window-log 100/d",
        "100/d",
        "token-bucket 100/30d burst 100",
        "leaky-bucket 100/30d burst 100",
        "leaky-bucket 100/30d queue 100",
        "token-bucket 100/30d burst 100 shared",
    ] {
        let limit = limit(text);
        let request = |id: &'static str, cost, verb| {
            let request = Request::new("k", &limit).member("m").id(id);
            decide(&store, &request.cost(cost).verb(verb))
        };
        assert_eq!(request("a", 60, Verb::Reserve).remaining(), 40, "{text}");
        // Repeated, also with another cost: nothing is charged.
        assert_eq!(request("a", 60, Verb::Reserve).granted(), 60, "{text}");
        assert_eq!(request("a", 10, Verb::Reserve).granted(), 60, "{text}");
        assert_eq!(request("b", 70, Verb::Reserve).granted(), 0, "{text}");
        assert_eq!(request("lost", 5, Verb::Reserve).remaining(), 35, "{text}");
        assert_eq!(request("a", 20, Verb::Settle).remaining(), 75, "{text}");
        for id in ["a", "b", "never"] {
            let settled = request(id, 90, Verb::Settle);
            assert!(settled.allowed());
            assert_eq!((settled.granted(), settled.remaining()), (0, 75), "{text}");
        }
        assert_eq!(request("c", 10, Verb::Reserve).remaining(), 65, "{text}");
        let more = request("c", 40, Verb::Settle);
        assert_eq!((more.granted(), more.remaining()), (30, 35), "{text}");
    }
    every_key_expires(&HEALTHY);
}

#[test]
fn after_a_failover_a_settle_finds_the_reservation_or_changes_nothing() {
    let group = Sentinel::start();
    let store = connected(builder(&group.url()).response_timeout(LONG_DEADLINE));
    let (window, holds) = (limit("fixed-window 100/d"), limit("concurrent 3 for 1h"));
    let both = || {
        let request = Request::with_limits("k", [&window, &holds]).unwrap();
        request.owner("o").id("r")
    };
    assert!(decide(&store, &both().verb(Verb::Reserve).cost(3)).allowed());
    group.fail_over();
    let settled = || block_on(store.decide(&both().verb(Verb::Settle).cost(1))).ok();
    let settled = poll::first(TIMEOUT, settled).unwrap();
    // Replication is asynchronous: the reservation may be lost with its units.
    assert!(
        [100, 99, 97].contains(&settled.verdicts()[0].remaining),
        "{settled:?}"
    );
    let again = decide(&store, &both().verb(Verb::Settle).cost(1));
    assert_eq!(
        again.verdicts()[0].remaining,
        settled.verdicts()[0].remaining
    );
    assert!(decide(&store, &both().verb(Verb::Release)).allowed());
}

#[test]
fn nothing_of_callers_is_coalesced_or_refused_from_the_cache() {
    let settings = RefusalCacheSettings::default();
    let store = connected(builder(&HEALTHY.url()).refusal_cache(settings));
    let (holds, shared) = (
        limit("concurrent 1 for 1h"),
        limit("token-bucket 4/h burst 4 shared 1"),
    );
    assert!(ask(&store, &holds, "a", Verb::Check).allowed());
    let refused = || ask(&store, &holds, "b", Verb::Check);
    assert!(!refused().allowed() && !refused().allowed());
    // Another owner's release is seen at once, and the same owner may ask again.
    assert!(ask(&store, &holds, "a", Verb::Check).allowed());
    ask(&store, &holds, "a", Verb::Release);
    assert!(refused().allowed());
    let checks = (0..64).map(|_| {
        let (store, shared) = (store.clone(), shared.clone());
        runtime().spawn(async move {
            let request = Request::new("k", &shared).member(Member::new("m"));
            store.decide(&request).await.unwrap().allowed()
        })
    });
    let checks: Vec<_> = checks.collect();
    let checks = checks.into_iter().map(|check| block_on(check).unwrap());
    assert_eq!(checks.filter(|admitted| *admitted).count(), 4);
    assert_eq!(store.refusal_cache_stats().hits, 0);
}

#[test]
fn a_snapshot_shows_members_and_holds() {
    let store = store(&HEALTHY.url());
    let shared = limit("token-bucket 100/30d burst 100 shared");
    for (member, cost) in [("a", 5), ("b", 2)] {
        decide(
            &store,
            &Request::new("k", &shared).member(member).cost(cost),
        );
    }
    let snapshot = block_on(store.inspect(&Key::from("k"), &shared)).unwrap();
    let CounterState::Shared {
        used_milli,
        members,
    } = snapshot.state
    else {
        panic!("{snapshot:?}");
    };
    assert_eq!((used_milli.div_ceil(1_000), members.len()), (7, 2));
    let holds = limit("concurrent 9 for 1h");
    for owner in ["a", "b", "b"] {
        ask(&store, &holds, owner, Verb::Check);
    }
    assert_eq!(live_units(&store, &holds), 2);
    ask(&store, &holds, "a", Verb::Release);
    ask(&store, &holds, "b", Verb::Release);
    let snapshot = block_on(store.inspect(&Key::from("k"), &holds)).unwrap();
    assert_eq!(snapshot.state, CounterState::Holds { holds: Vec::new() });
}
