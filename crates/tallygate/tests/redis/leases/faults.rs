//! Processes that are killed, servers that fail and parts of requests on other servers while leases
//! are out.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tallygate::{Engine, OnFailure};
use tallygate_testkit::redis::Sentinel;

use super::*;
use crate::fixtures::{builder, connected, namespace};

/// Never ends during a test.
const WINDOW: &str = "fixed-window 40000/366d";
const HOLD: Duration = Duration::from_secs(1);
/// A child reports after so many admissions.
const REPORT: u32 = 20;
const MAX_LEASE: u32 = 1_000;
/// The parameters of a child: URL and namespace.
const CHILD_VARIABLE: &str = "TALLYGATE_TEST_LEASE_CHILD";

fn window() -> Limit {
    let settings = LeaseSettings::default().hold(HOLD).max(MAX_LEASE);
    Limit::from(quota(WINDOW)).lease(settings).unwrap()
}

fn store_in(url: &str, namespace: &str) -> RedisStore {
    connected(builder(url).namespace(namespace))
}

/// Not a test by itself: run by the child processes of the test below.
#[test]
fn a_child_process_spends_leases() {
    let Ok(parameters) = env::var(CHILD_VARIABLE) else {
        return;
    };
    let (url, namespace) = parameters.split_once(';').unwrap();
    let store = store_in(url, namespace);
    let limit = window();
    let mut admitted = 0;
    loop {
        admitted += check(&store, &Request::new("shared", &limit)).granted();
        if admitted % REPORT == 0 {
            let leases = store.lease_stats().leases;
            println!("admitted={admitted} leases={leases}");
        }
        // Ten leases last for the test.
        thread::sleep(Duration::from_micros(500));
    }
}

/// A child process and the last that it reported.
struct Spender {
    child: Child,
    admitted: Arc<AtomicU32>,
    leases: Arc<AtomicU32>,
    reader: thread::JoinHandle<()>,
}

impl Spender {
    fn start(url: &str, namespace: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("leases::faults::a_child_process_spends_leases")
            .env(CHILD_VARIABLE, format!("{url};{namespace}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (admitted, leases) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let numbers = (Arc::clone(&admitted), Arc::clone(&leases));
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let number = |name| {
                    let word = line.split(' ').find_map(|word| word.strip_prefix(name))?;
                    word.parse().ok()
                };
                if let (Some(admitted), Some(leases)) = (number("admitted="), number("leases=")) {
                    numbers.0.store(admitted, Ordering::Relaxed);
                    numbers.1.store(leases, Ordering::Relaxed);
                }
            }
        });
        Spender {
            child,
            admitted,
            leases,
            reader,
        }
    }

    /// Ends it as `kill -9` does. Returns what it had reported.
    fn kill(mut self) -> u32 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.join().unwrap();
        self.admitted.load(Ordering::Relaxed)
    }
}

#[test]
fn killed_processes_strand_at_most_one_lease_each() {
    let (url, namespace) = (HEALTHY.url(), namespace() + "killed");
    let spenders: Vec<Spender> = (0..3).map(|_| Spender::start(&url, &namespace)).collect();
    poll::until(TIMEOUT, "all of them lease", || {
        let mut each = spenders.iter();
        each.all(|spender| spender.leases.load(Ordering::Relaxed) > 1)
    });
    let reported: u32 = spenders.into_iter().map(Spender::kill).sum();
    let store = store_in(&url, &namespace);
    let limit = window();
    let charged = counted(&store, "shared", &limit);
    // What was spent had been debited; what was debited was spent, or is part of one lease each.
    assert!(charged >= reported, "{charged} of {reported}");
    let lost = 3 * (MAX_LEASE + REPORT + 1);
    assert!(charged <= reported + lost, "{charged} of {reported}");
    // The others are admitted the rest, and no more.
    let rest = limit.quota().capacity() - charged;
    let all = Request::new("shared", &limit).cost(rest);
    assert!(block_on(store.decide(&all)).unwrap().allowed());
    assert!(!check(&store, &Request::new("shared", &limit)).allowed());
}

#[test]
fn a_failover_while_leases_are_out_admits_at_most_these_more() {
    let group = Sentinel::start();
    let store = store_in(&group.url(), &namespace());
    let settings = LeaseSettings::default().hold(Duration::from_secs(60));
    let limit = Limit::from(quota("fixed-window 3000/366d"));
    let limit = limit.on_failure(OnFailure::Closed).lease(settings).unwrap();
    let mut granted = spend_a_lease(&store, "failover", &limit);
    poll::until(TIMEOUT, "the replicas have it", || {
        let offset = group.master().info("master_repl_offset");
        let replicas = group.replicas();
        offset.is_some()
            && replicas
                .iter()
                .all(|one| one.info("slave_repl_offset") == offset)
    });
    let outstanding = store.lease_stats().outstanding;
    assert!(outstanding > 0);
    group.fail_over();
    let engine = Engine::new(store.clone()).deadline(TIMEOUT);
    poll::until(TIMEOUT, "everything is granted", || {
        let request = Request::new("failover", &limit);
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

#[test]
fn a_leased_limit_needs_no_call_to_its_own_shard() {
    let servers = [Server::start(), Server::start()];
    let hosts = servers
        .each_ref()
        .map(|server| format!("127.0.0.1:{}", server.port()));
    let store = store_in(&format!("redis+shards://{}", hosts.join(",")), &namespace());
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
