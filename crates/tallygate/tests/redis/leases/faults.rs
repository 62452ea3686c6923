//! Processes that are killed, servers that fail and parts of requests on other servers while leases
//! are out.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use tallygate::{Engine, OnFailure, Quota};
use tallygate_testkit::redis::{Cluster, Sentinel};

use super::*;
use crate::fixtures::{builder, connected, namespace};

const HOLD: Duration = Duration::from_secs(1);
const MAX_LEASE: u32 = 1_000;
/// What the child processes spend.
const KEYS: [&str; 3] = ["a", "b", "c"];
/// At the end of every period all children ask for far more than the limit.
const PERIOD_US: u64 = 2_000_000;
const CALM_US: u64 = 1_600_000;
/// The parameters of a child: URL, namespace, quota, and how many requests at once it sends then.
const CHILD_VARIABLE: &str = "TALLYGATE_TEST_LEASE_CHILD";

fn spent_limit(text: &str) -> Limit {
    let settings = LeaseSettings::default().hold(HOLD).max(MAX_LEASE);
    Limit::from(quota(text)).lease(settings).unwrap()
}

fn store_in(url: &str, namespace: &str) -> RedisStore {
    connected(builder(url).namespace(namespace))
}

fn clock_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// Not a test by itself: run by the child processes of the tests below.
#[test]
fn a_child_process_spends_leases() {
    let Ok(parameters) = env::var(CHILD_VARIABLE) else {
        return;
    };
    let parameters: Vec<&str> = parameters.split(';').collect();
    let [url, namespace, text, many] = &*parameters else {
        panic!("invalid parameters: {parameters:?}");
    };
    let store = store_in(url, namespace);
    let limit = spent_limit(text);
    let many: u32 = many.parse().unwrap();
    loop {
        let is_calm = clock_us() % PERIOD_US < CALM_US;
        let checks = if is_calm { 1 } else { many };
        for (at, key) in KEYS.into_iter().enumerate() {
            let since = clock_us();
            let request = Request::new(key, &limit);
            let granted: u32 = (0..checks).map(|_| check(&store, &request).granted()).sum();
            let until = clock_us();
            let leases = store.lease_stats().leases;
            if granted > 0 {
                println!("batch {at} {since} {until} {granted} {leases}");
            }
        }
        // Ten leases last for the test.
        thread::sleep(Duration::from_millis(if is_calm { 3 } else { 1 }));
    }
}

/// Admissions that a child reported.
#[derive(Clone, Copy, Debug)]
struct Batch {
    key: usize,
    since: u64,
    until: u64,
    granted: u32,
    leases: u32,
}

impl Batch {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("batch ")?.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Batch {
            key: number()?.try_into().ok()?,
            since: number()?,
            until: number()?,
            granted: number()?.try_into().ok()?,
            leases: number()?.try_into().ok()?,
        })
    }
}

fn granted_of(batches: &[Batch], key: usize) -> u32 {
    let of_key = batches.iter().filter(|batch| batch.key == key);
    of_key.map(|batch| batch.granted).sum()
}

/// A child process and what it reported.
struct Spender {
    child: Child,
    batches: Arc<Mutex<Vec<Batch>>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Spender {
    fn start(url: &str, namespace: &str, quota: &str, many: u32) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("leases::faults::a_child_process_spends_leases")
            .env(CHILD_VARIABLE, format!("{url};{namespace};{quota};{many}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let batches = Arc::<Mutex<Vec<Batch>>>::default();
        let reported = Arc::clone(&batches);
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                reported.lock().unwrap().extend(Batch::parse(&line));
            }
        });
        Spender {
            child,
            batches,
            reader: Some(reader),
        }
    }

    /// Waits until it has spent leases of all keys.
    #[track_caller]
    fn wait_until_it_leases(&self) {
        let leases = |batch: &Batch| batch.leases > 2 * u32::try_from(KEYS.len()).unwrap();
        poll::until(TIMEOUT, "it leases", || {
            self.batches.lock().unwrap().last().is_some_and(leases)
        });
    }

    /// Ends it as `kill -9` does. Returns what it had reported.
    fn kill(mut self) -> Vec<Batch> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        std::mem::take(&mut self.batches.lock().unwrap())
    }
}

impl Drop for Spender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn killed_processes_strand_at_most_one_lease_each(url: &str) {
    // Never ends during a test.
    const WINDOW: &str = "fixed-window 40000/366d";
    let namespace = namespace() + "killed";
    let start = |_| Spender::start(url, &namespace, WINDOW, 1);
    let spenders: Vec<Spender> = (0..3).map(start).collect();
    spenders.iter().for_each(Spender::wait_until_it_leases);
    let reported: Vec<Batch> = spenders.into_iter().flat_map(Spender::kill).collect();
    let store = store_in(url, &namespace);
    let limit = spent_limit(WINDOW);
    for (at, key) in KEYS.into_iter().enumerate() {
        let charged = counted(&store, key, &limit);
        let reported = granted_of(&reported, at);
        // What was spent had been debited; what was debited was spent, or is part of one lease each.
        assert!(charged >= reported, "{charged} of {reported}");
        let lost = 3 * (MAX_LEASE + 1);
        assert!(charged <= reported + lost, "{charged} of {reported}");
        // The others are admitted the rest, and no more.
        let rest = limit.quota().capacity() - charged;
        let all = Request::new(key, &limit).cost(rest);
        assert!(block_on(store.decide(&all)).unwrap().allowed());
        assert!(!check(&store, &Request::new(key, &limit)).allowed());
    }
}

#[test]
fn killed_processes_strand_at_most_one_lease_each_on_one_server() {
    killed_processes_strand_at_most_one_lease_each(&HEALTHY.url());
}

#[test]
fn killed_processes_strand_at_most_one_lease_each_on_shards() {
    let servers = [(); 3].map(|()| Server::start());
    killed_processes_strand_at_most_one_lease_each(&shards_url(&servers));
}

#[test]
fn killed_processes_strand_at_most_one_lease_each_in_a_cluster() {
    let cluster = Cluster::start();
    killed_processes_strand_at_most_one_lease_each(&cluster.url());
}

fn shards_url(servers: &[Server]) -> String {
    let host = |server: &Server| format!("127.0.0.1:{}", server.port());
    let hosts: Vec<String> = servers.iter().map(host).collect();
    format!("redis+shards://{}", hosts.join(","))
}

/// The most that was admitted of a key, in each of some spans, above the bound of its quota.
#[track_caller]
fn check_spans(quota: &Quota, mut batches: Vec<Batch>, outstanding: u64) {
    batches.sort_unstable_by_key(|batch| batch.since);
    let all_us = batches.iter().map(|batch| batch.until).max().unwrap() - batches[0].since;
    for span_us in [5_000, 50_000, 500_000, 2_000_000, all_us] {
        // As many starts as take a moment.
        for first in (0..batches.len()).step_by(batches.len() / 200 + 1) {
            let end = batches[first].since + span_us;
            // Those that were certainly admitted in the span.
            let within = batches[first..].iter().take_while(|one| one.since <= end);
            let within = within.filter(|one| one.until <= end);
            let admitted: u64 = within.map(|one| u64::from(one.granted)).sum();
            let bound = quota.worst_case(span_us) + outstanding;
            assert!(admitted <= bound, "{admitted} of {bound} in {span_us} us");
        }
    }
}

/// Processes ask for far more than the limits, and are killed and replaced.
fn killed_processes_stay_within_the_bound(url: &str) {
    for (text, is_window) in [
        ("token-bucket 3000/s burst 4000", false),
        ("fixed-window 3000/2s", true),
    ] {
        let namespace = namespace() + "bound";
        let start = || Spender::start(url, &namespace, text, 50);
        let mut spenders: Vec<Spender> = (0..3).map(|_| start()).collect();
        let mut batches = Vec::new();
        spenders.iter().for_each(Spender::wait_until_it_leases);
        batches.extend(spenders.remove(0).kill());
        spenders.push(start());
        spenders[2].wait_until_it_leases();
        batches.extend(spenders.into_iter().flat_map(Spender::kill));
        let quota = quota(text);
        let outstanding = match is_window {
            true => 0,
            false => u64::from(quota.capacity() / 4),
        };
        for key in 0..KEYS.len() {
            let of_key: Vec<Batch> = batches
                .iter()
                .filter(|one| one.key == key)
                .copied()
                .collect();
            check_spans(&quota, of_key, outstanding);
        }
    }
}

#[test]
fn killed_processes_admit_at_most_what_was_leased_above_their_limits_on_shards() {
    let servers = [(); 3].map(|()| Server::start());
    killed_processes_stay_within_the_bound(&shards_url(&servers));
}

#[test]
fn killed_processes_admit_at_most_what_was_leased_above_their_limits_in_a_cluster() {
    let cluster = Cluster::start();
    killed_processes_stay_within_the_bound(&cluster.url());
}

/// A store fails over while units are leased. `in_sync`: the replica has all writes.
fn a_failover_admits_at_most_what_was_leased(
    url: &str,
    in_sync: impl Fn() -> bool,
    fail_over: impl FnOnce(),
) {
    let store = store_in(url, &namespace());
    let settings = LeaseSettings::default().hold(Duration::from_secs(60));
    let limit = Limit::from(quota("fixed-window 3000/366d"));
    let limit = limit.on_failure(OnFailure::Closed).lease(settings).unwrap();
    let mut granted = spend_a_lease(&store, FAILOVER_KEY, &limit);
    poll::until(TIMEOUT, "the replica has it", in_sync);
    let outstanding = store.lease_stats().outstanding;
    assert!(outstanding > 0);
    fail_over();
    let engine = Engine::new(store.clone()).deadline(TIMEOUT);
    poll::until(TIMEOUT, "everything is granted", || {
        let request = Request::new(FAILOVER_KEY, &limit);
        let mut decision = block_on(engine.decide(&request));
        while decision.allowed() {
            granted += decision.granted();
            decision = block_on(engine.decide(&request));
        }
        !decision.degraded()
    });
    let limit_units = u64::from(limit.quota().capacity());
    let granted = u64::from(granted);
    assert!(granted <= limit_units + outstanding, "{granted}");
    // What was leased when the master failed may be lost.
    let lost = store.lease_stats().stranded + store.lease_stats().outstanding;
    assert!(
        granted + lost + outstanding >= limit_units,
        "{granted} {lost}"
    );
}

const FAILOVER_KEY: &str = "failover";

fn has_offset_of(replica: &Server, master: &Server) -> bool {
    let offset = master.info("master_repl_offset");
    offset.is_some() && replica.info("slave_repl_offset") == offset
}

#[test]
fn a_failover_of_sentinel_while_leases_are_out_admits_at_most_these_more() {
    let group = Sentinel::start();
    let in_sync = || {
        let replicas = group.replicas();
        let mut replicas = replicas.iter();
        replicas.all(|replica| has_offset_of(replica, group.master()))
    };
    a_failover_admits_at_most_what_was_leased(&group.url(), in_sync, || {
        group.fail_over();
    });
}

#[test]
fn a_killed_master_of_a_cluster_while_leases_are_out_admits_at_most_these_more() {
    let cluster = Cluster::start();
    let slot = cluster.key_slot(FAILOVER_KEY);
    let master = cluster.node_for_slot(slot);
    let in_sync = || has_offset_of(cluster.node((master + 3) % 6), cluster.node(master));
    a_failover_admits_at_most_what_was_leased(&cluster.url(), in_sync, || {
        cluster.kill_master(slot);
        cluster.settle();
    });
}

#[test]
fn a_leased_limit_needs_no_call_to_its_own_shard() {
    let servers = [Server::start(), Server::start()];
    let store = store_in(&shards_url(&servers), &namespace());
    let tenant = leased(LARGE, Duration::from_secs(60)).on_failure(OnFailure::Closed);
    let user = Limit::named("user", quota("fixed-window 10/366d")).on_failure(OnFailure::Closed);
    spend_a_lease(&store, "tenant", &tenant);
    let on_first = |server: &Server| server.command(&["DBSIZE"]).integer();
    // The tenant's counter and the list of processes are somewhere; a user on each server.
    let users: Vec<String> = (0..20).map(|i| format!("user{i}")).collect();
    let (mut here, mut there) = (None, None);
    for name in &users {
        let before = on_first(&servers[0]);
        let peek = Request::new(name, &user);
        assert!(check(&store, &peek).allowed());
        match on_first(&servers[0]) > before {
            true => here = Some(name),
            false => there = Some(name),
        }
    }
    let engine = Engine::new(store.clone()).deadline(TIMEOUT);
    for name in [here.unwrap(), there.unwrap()] {
        let request = Request::new("tenant", &tenant).and(&**name, &user).unwrap();
        let saved = store.lease_stats().outstanding;
        let decisions: Vec<Decision> = (0..12).map(|_| block_on(engine.decide(&request))).collect();
        let allowed = decisions.iter().filter(|decision| decision.allowed());
        assert_eq!(allowed.count(), 9, "{name}");
        assert!(decisions.iter().all(Decision::leased));
        assert_eq!(saved - store.lease_stats().outstanding, 9);
    }
    // A user whose server fails: the policy of that limit decides, and the lease gets its unit back.
    servers[0].kill();
    let lost = Request::new("tenant", &tenant)
        .and(&**here.unwrap(), &user)
        .unwrap();
    let before = store.lease_stats().outstanding;
    let decision = block_on(engine.decide(&lost));
    assert!(decision.degraded() && !decision.allowed());
    assert_eq!(store.lease_stats().outstanding, before);
}
