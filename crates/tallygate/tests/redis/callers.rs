//! Holds of processes that end or stop, settles that are repeated, late, lost or after a fail-over,
//! replies that are cut, holds across servers, many members and owners, and what is not coalesced or
//! cached.

use std::collections::BTreeSet;
use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tallygate::store::{CounterState, RefusalCacheSettings};
use tallygate::{
    Decision, Engine, Key, Limit, Member, MemoryStore, OnFailure, RedisStore, Request, Store, Verb,
};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{Cluster, Sentinel};

use crate::fixtures::{
    HEALTHY, LONG_DEADLINE, TIMEOUT, block_on, builder, connected, every_key_expires, keys,
    namespace, quota, runtime, store,
};

/// A supplied time.
const T0: u64 = 1_700_000_000_000_000;

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
    let own = members
        .iter()
        .find(|one| one.id == store.caller_id(&Key::from("a")));
    assert_eq!(own.unwrap().used_milli.div_ceil(1_000), 5);
    assert!(!own.unwrap().borrows());
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

/// A call whose reply is lost may have run: it is not sent again, and what it did is counted once.
#[test]
fn replies_that_are_cut_or_lost_lose_and_double_nothing() {
    for mode in [Mode::Cut, Mode::ResetAfter, Mode::ResetBefore] {
        let ran = mode != Mode::ResetBefore;
        let proxy = Proxy::to(HEALTHY.port());
        let namespace = namespace();
        let cut_off = connected(
            RedisStore::builder(&proxy.url())
                .namespace(&namespace)
                .response_timeout(LONG_DEADLINE),
        );
        let store = connected(RedisStore::builder(&HEALTHY.url()).namespace(&namespace));
        let (window, holds) = (limit("fixed-window 100/366d"), limit("concurrent 3 for 2s"));
        let lose = |request: &Request<'_>| {
            proxy.once("EVALSHA", mode.clone());
            assert!(block_on(cut_off.decide(request)).is_err(), "{mode:?}");
            assert!(!proxy.is_waiting());
            // The next call is decided again.
            let peek = Request::new("other", &window).verb(Verb::Peek);
            poll::until(TIMEOUT, "it reconnects", || {
                block_on(cut_off.decide(&peek)).is_ok()
            });
        };
        let used = || {
            let peek = Request::new("k", &window).verb(Verb::Peek);
            100 - decide(&store, &peek).remaining()
        };
        let reserve = |id: &'static str| {
            let request = Request::new("k", &window).id(id).verb(Verb::Reserve);
            request.cost(30)
        };
        // A reserve that is repeated under its id is charged once, whether it ran or not.
        lose(&reserve("r"));
        assert_eq!(used(), if ran { 30 } else { 0 }, "{mode:?}");
        assert_eq!(decide(&store, &reserve("r")).granted(), 30);
        assert_eq!(used(), 30, "{mode:?}");
        // So is a settle.
        let settle = reserve("r").verb(Verb::Settle).cost(12);
        lose(&settle);
        assert_eq!(used(), if ran { 12 } else { 30 }, "{mode:?}");
        decide(&store, &settle);
        decide(&store, &settle);
        assert_eq!(used(), 12, "{mode:?}");
        // What is held without the owner's knowledge is its own when it asks again, and otherwise ends.
        let hold = |owner: &'static str| Request::new("k", &holds).owner(owner).cost(2);
        lose(&hold("a"));
        assert_eq!(live_units(&store, &holds), if ran { 2 } else { 0 });
        assert!(decide(&store, &hold("a")).allowed(), "{mode:?}");
        assert_eq!(live_units(&store, &holds), 2);
        lose(&hold("a").verb(Verb::Release));
        assert_eq!(live_units(&store, &holds), if ran { 0 } else { 2 });
        lose(&hold("b").cost(1));
        poll::until(TIMEOUT, "the holds end", || live_units(&store, &holds) == 0);
    }
}

/// A settle of an id after its hour: on supplied time, as the server forgets ids by its own clock.
#[test]
fn a_late_settle_leaves_the_estimate() {
    const HOUR: u64 = 3_600_000_000;
    let store = store(&HEALTHY.url());
    let window = limit("fixed-window 100/366d");
    let at = |verb, cost, now_us| {
        let request = Request::new("k", &window).id("r").verb(verb).cost(cost);
        block_on(store.decide_at(&request, now_us)).unwrap()
    };
    assert_eq!(at(Verb::Reserve, 30, T0).remaining(), 70);
    assert_eq!(at(Verb::Settle, 10, T0 + HOUR).remaining(), 70);
    // The id is new again.
    assert_eq!(at(Verb::Reserve, 30, T0 + HOUR).remaining(), 40);
    assert_eq!(at(Verb::Settle, 10, T0 + 2 * HOUR - 1).remaining(), 60);
}

#[test]
fn tasks_that_are_cancelled_or_panic_release_in_redis() {
    let store = store(&HEALTHY.url());
    let holds = limit("concurrent 2 for 1h");
    let engine = Engine::new(store.clone()).deadline(LONG_DEADLINE);
    let hold = |panics: bool| {
        let (engine, holds) = (engine.clone(), holds.clone());
        runtime().spawn(async move {
            let _held = engine.hold(&Request::new("k", &holds)).await.unwrap();
            assert!(!panics, "of this test");
            std::future::pending::<()>().await;
        })
    };
    let until_held = |units| {
        poll::until(TIMEOUT, "so many units are held", || {
            live_units(&store, &holds) == units
        });
    };
    let tasks = [hold(false), hold(false)];
    until_held(2);
    for task in tasks {
        task.abort();
        assert!(block_on(task).unwrap_err().is_cancelled());
    }
    until_held(0);
    assert!(block_on(hold(true)).unwrap_err().is_panic());
    until_held(0);
    // Cancelled while the server has the call: it holds for nobody.
    let proxy = Proxy::to(HEALTHY.port());
    let namespace = namespace();
    let builder = |url: &str| RedisStore::builder(url).namespace(&namespace);
    let (slow, store) = (
        connected(builder(&proxy.url()).response_timeout(LONG_DEADLINE)),
        connected(builder(&HEALTHY.url())),
    );
    let slow = Engine::new(slow).deadline(LONG_DEADLINE);
    proxy.set(Mode::Delay(Duration::from_millis(300)));
    let task = runtime().spawn({
        let holds = holds.clone();
        async move { slow.hold(&Request::new("k", &holds)).await.map(drop) }
    });
    let held = || live_units(&store, &holds);
    poll::until(TIMEOUT, "the server has counted it", || held() == 1);
    task.abort();
    poll::until(TIMEOUT, "it is released", || held() == 0);
}

/// What a server does after a deadline is made undone: nobody holds for a request that was refused,
/// and a release that came too late is not lost.
#[test]
fn holds_and_releases_beyond_the_deadline_leave_nothing_behind() {
    let proxy = Proxy::to(HEALTHY.port());
    let namespace = namespace();
    let builder = |url: &str| RedisStore::builder(url).namespace(&namespace);
    let (slow, store) = (
        connected(builder(&proxy.url()).response_timeout(LONG_DEADLINE)),
        connected(builder(&HEALTHY.url())),
    );
    let holds = limit("concurrent 1 for 24h").on_failure(OnFailure::Closed);
    let held = || live_units(&store, &holds);
    let impatient = Engine::new(slow.clone()).deadline(Duration::from_millis(50));
    let patient = Engine::new(slow).deadline(LONG_DEADLINE);
    proxy.set(Mode::Delay(Duration::from_millis(150)));
    let hold = |engine: &Engine<RedisStore>| block_on(engine.hold(&Request::new("k", &holds)));
    assert!(hold(&impatient).unwrap_err().decision().degraded());
    poll::until(TIMEOUT, "it is released", || held() == 0);
    if let Err(refused) = hold(&patient) {
        panic!("{refused:?}");
    }
    poll::until(TIMEOUT, "it is released", || held() == 0);

    proxy.set(Mode::Pass);
    let kept = poll::first(TIMEOUT, || hold(&impatient).ok());
    poll::until(TIMEOUT, "one is held", || held() == 1);
    proxy.set(Mode::Delay(Duration::from_millis(150)));
    block_on(kept.expect("the server answers").release());
    poll::until(TIMEOUT, "it is released", || held() == 0);
}

/// Decides requests at supplied times in Redis and in memory, which must agree.
fn decide_in_both<'a>(
    store: &RedisStore,
    memory: &MemoryStore,
    requests: &[(Request<'a>, u64)],
) -> Vec<Decision> {
    let mut all = Vec::with_capacity(requests.len());
    for chunk in requests.chunks(1_000) {
        let decisions = block_on(store.decide_many_at(chunk)).unwrap();
        for ((request, now_us), decision) in chunk.iter().zip(&decisions) {
            assert_eq!(memory.decide_at(request, *now_us), *decision);
        }
        all.extend(decisions);
    }
    all
}

/// Those beyond ten thousand have no share of their own: they borrow what is above the reserve.
#[test]
fn a_share_keeps_ten_thousand_members_and_those_that_are_named() {
    let store = store(&HEALTHY.url());
    let memory = MemoryStore::builder().capacity(50_000).build();
    let share = limit("token-bucket 100000/s burst 100000 shared 1");
    let names: Vec<String> = (0..10_000).map(|n| format!("m{n}")).collect();
    let check = |member| (Request::new("k", &share).member(member), T0);
    let first: Vec<_> = names
        .iter()
        .map(|name| check(Member::new(&**name)))
        .collect();
    let decisions = decide_in_both(&store, &memory, &first);
    assert!(decisions.iter().all(Decision::allowed));
    let more = [
        check(Member::new("late")),
        check(Member::new("later")),
        // Takes a place, as one that is named in a rule.
        check(Member::new("named").pinned()),
        check(Member::new("m0")),
        check(Member::new("m9999")),
        check(Member::new("late")),
    ];
    let decisions = decide_in_both(&store, &memory, &more);
    let reserve = 100_000 / 4;
    assert_eq!(decisions[0].remaining(), 90_000 - 1 - reserve);
    assert_eq!(decisions[5].remaining(), 90_000 - 6 - reserve);
    every_key_expires(&HEALTHY);
}

#[test]
fn ten_thousand_owners_hold_and_lapse() {
    const HOUR: u64 = 3_600_000_000;
    let store = store(&HEALTHY.url());
    let memory = MemoryStore::builder().capacity(50_000).build();
    let holds = limit("concurrent 10000 for 1h");
    let names: Vec<String> = (0..10_001).map(|n| format!("o{n}")).collect();
    let ask = |owner: usize, verb, now_us| {
        let request = Request::new("k", &holds).owner(&*names[owner]);
        (request.verb(verb), now_us)
    };
    let all: Vec<_> = (0..10_001)
        .map(|n| ask(n, Verb::Check, T0 + n as u64))
        .collect();
    let decisions = decide_in_both(&store, &memory, &all);
    let (last, others) = decisions.split_last().unwrap();
    assert!(others.iter().all(Decision::allowed) && !last.allowed());
    let then = T0 + 20_000;
    let later = [
        ask(5_000, Verb::Check, then),
        ask(10_000, Verb::Check, then),
        ask(7_000, Verb::Release, then),
        ask(10_000, Verb::Check, then),
        ask(7_000, Verb::Renew, then),
        ask(9_999, Verb::Renew, then),
        // All but the three that were renewed or came later have ended.
        ask(7_000, Verb::Check, T0 + HOUR + 15_000),
        ask(1, Verb::Peek, T0 + HOUR + 15_000),
        ask(1, Verb::Check, then + 2 * HOUR),
    ];
    let decisions = decide_in_both(&store, &memory, &later);
    let allowed: Vec<bool> = decisions.iter().map(Decision::allowed).collect();
    assert_eq!(
        allowed,
        [true, false, true, true, false, true, true, true, true]
    );
    assert_eq!(decisions[7].remaining(), 10_000 - 4);
    assert_eq!(decisions[8].remaining(), 10_000 - 1);
    every_key_expires(&HEALTHY);
}

/// A counter with its further keys and reservations is one script call, on one server.
#[test]
fn all_keys_of_a_counter_are_in_one_slot_of_a_cluster() {
    let cluster = Cluster::start();
    let limits = [
        "token-bucket 100/s burst 100 shared 4",
        "concurrent 10 for 1h",
        "fixed-window 100/h",
        "sliding-window-log 100/h",
    ]
    .map(limit);
    for hash_tags in [None, Some(16)] {
        let namespace = namespace();
        let builder = builder(&cluster.url()).namespace(&namespace);
        let store = connected(match hash_tags {
            Some(count) => builder.hash_tags(count),
            None => builder,
        });
        let mut slots = BTreeSet::new();
        for key in ["k", "a longer key {with} braces", "", "}{"] {
            // Members of two epochs.
            for (member, now_us) in [("a", T0), ("z", T0), ("b", T0 + 1_500_000)] {
                let request = Request::with_limits(key, &limits).unwrap();
                let request = request.member(member).owner(member).id(member);
                let reserve = request.verb(Verb::Reserve);
                let decision = block_on(store.decide_at(&reserve, now_us)).unwrap();
                assert!(decision.allowed() && decision.verdicts().len() == 4);
            }
            let stored: Vec<String> = (0..3)
                .flat_map(|node| keys(&mut cluster.node(node).connect().unwrap()))
                .map(|key| String::from_utf8(key).unwrap())
                .filter(|key| key.contains(&namespace) && key.contains('{'))
                .collect();
            // Two windows, a bucket with two epochs, holds in two, and nine reservations.
            assert_eq!(stored.len(), 2 + 3 + 2 + 9, "{stored:?}");
            let of_key: BTreeSet<u16> = stored.iter().map(|key| cluster.key_slot(key)).collect();
            assert_eq!(of_key.len(), 1, "{stored:?}");
            slots.extend(of_key);
            block_on(store.clear()).unwrap();
        }
        assert!(slots.len() > 1, "{slots:?}");
    }
}
