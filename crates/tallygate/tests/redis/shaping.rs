//! Shaping over a link: requests are decided concurrently and start when the server scheduled them,
//! and processes share one schedule.

use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tallygate::{Decision, Limiter, RedisStore, Wait};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tokio::task::JoinHandle;

use crate::fixtures::{
    HEALTHY, LONG_DEADLINE, TIMEOUT, block_on, builder, connected, namespace, patient_limiter,
    runtime, used,
};

const CHILD_VARIABLE: &str = "TALLYGATE_TEST_SHAPING_CHILD";
const QUEUE_VARIABLE: &str = "TALLYGATE_TEST_SHAPING_QUEUE";
const QUOTA: &str = "leaky-bucket 1/ms queue 500";
/// Nothing starts during a test but the first.
const SLOW_QUOTA: &str = "leaky-bucket 1/5min queue 40";
const PERIOD_US: u64 = 1_000;

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_micros() as u64
}

/// The start that the server has scheduled, by its clock, which is also the clock of this machine.
fn scheduled_us(decision: &Decision) -> u64 {
    assert!(decision.allowed() && !decision.degraded(), "{decision:?}");
    decision.taken_us().unwrap() + decision.delay().as_micros() as u64
}

fn admit(limiter: &Limiter<RedisStore>, wait: Wait) -> JoinHandle<(Decision, u64)> {
    let limiter = limiter.clone();
    runtime().spawn(async move {
        let decision = limiter.admit(&limiter.request("shaped"), wait).await;
        (decision.unwrap(), now_us())
    })
}

/// Admits requests at once. Returns their scheduled starts, sorted.
fn scheduled_starts(limiter: &Limiter<RedisStore>, requests: usize) -> Vec<u64> {
    let tasks: Vec<_> = (0..requests)
        .map(|_| admit(limiter, Wait::forever()))
        .collect();
    let mut starts = Vec::new();
    for task in tasks {
        let (decision, at) = block_on(task).unwrap();
        let scheduled = scheduled_us(&decision);
        // The system clock may be adjusted meanwhile.
        assert!(at + 1_000 >= scheduled, "{} us early", scheduled - at);
        starts.push(scheduled);
    }
    starts.sort_unstable();
    starts
}

#[track_caller]
fn assert_spaced(starts: &[u64]) {
    for pair in starts.windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap >= PERIOD_US, "{gap} us between two starts");
    }
}

#[test]
fn requests_over_a_slow_link_are_all_admitted_and_spaced_by_the_rate() {
    for delay_ms in [2, 10] {
        let proxy = Proxy::to(HEALTHY.port());
        let store = connected(builder(&proxy.url()));
        let limiter = patient_limiter(&store, QUOTA);
        proxy.set(Mode::Delay(Duration::from_millis(delay_ms)));
        let starts = scheduled_starts(&limiter, 300);
        assert_eq!(starts.len(), 300);
        assert_spaced(&starts);
        // If they were decided one after the other, each would take a round trip.
        let span = Duration::from_micros(starts[299] - starts[0]);
        let one_by_one = Duration::from_millis(delay_ms) * 299;
        assert!(span < one_by_one, "{span:?} with {delay_ms} ms");
        assert_eq!(limiter.waiting(), 0);
    }
}

#[test]
fn requests_that_waited_are_delayed_by_the_server() {
    let proxy = Proxy::to(HEALTHY.port());
    let store = connected(builder(&proxy.url()));
    let limiter = patient_limiter(&store, "leaky-bucket 1/10ms queue 150");
    // The schedule is taken for a second: the connection may send the requests in several batches.
    assert!(block_on(limiter.decide(&limiter.request("shaped").cost(100))).allowed());
    proxy.set(Mode::Delay(Duration::from_millis(10)));
    let tasks: Vec<_> = (0..20).map(|_| admit(&limiter, Wait::forever())).collect();
    let decisions = tasks.into_iter().map(|task| block_on(task).unwrap().0);
    let delayed = decisions.filter(|decision| !decision.delay().is_zero());
    assert_eq!(delayed.count(), 20);
}

/// Waits until the server has scheduled so many units.
fn until_used(limiter: &Limiter<RedisStore>, units: u64) {
    poll::until(TIMEOUT, "requests are scheduled", || {
        used(limiter, "shaped") == units
    });
}

/// Adds requests one after the other.
fn enqueue(limiter: &Limiter<RedisStore>, requests: u64) -> Vec<JoinHandle<(Decision, u64)>> {
    let before = used(limiter, "shaped");
    let add = |i| {
        let task = admit(limiter, Wait::forever());
        until_used(limiter, before + i);
        task
    };
    (1..=requests).map(add).collect()
}

fn cancel(task: JoinHandle<(Decision, u64)>) {
    task.abort();
    assert!(block_on(task).unwrap_err().is_cancelled());
}

#[test]
fn cancelled_slots_at_the_end_are_returned_to_the_server() {
    let builder = builder(&HEALTHY.url());
    let ours = patient_limiter(&connected(builder), SLOW_QUOTA);
    let mut tasks = enqueue(&ours, 12);
    poll::until(TIMEOUT, "all but the first wait", || ours.waiting() == 11);
    // One after the other, and several at once.
    cancel(tasks.pop().unwrap());
    until_used(&ours, 11);
    cancel(tasks.remove(5));
    until_used(&ours, 10);
    tasks.drain(1..).for_each(cancel);
    until_used(&ours, 1);
    assert_eq!(ours.waiting(), 0);
}

/// Not a test by itself: run by the child process of the test below. Queues two requests, and cancels
/// them when it is told to.
#[test]
fn a_child_process_queues_and_cancels() {
    let Ok(parameters) = env::var(QUEUE_VARIABLE) else {
        return;
    };
    let (url, namespace) = parameters.split_once(';').unwrap();
    let builder = RedisStore::builder(url).namespace(namespace);
    let store = connected(builder.response_timeout(LONG_DEADLINE));
    let limiter = patient_limiter(&store, SLOW_QUOTA);
    let tasks = enqueue(&limiter, 2);
    poll::until(TIMEOUT, "both wait", || limiter.waiting() == 2);
    println!("\nqueued");
    stdin().read_line(&mut String::new()).unwrap();
    let before = used(&limiter, "shaped");
    tasks.into_iter().for_each(cancel);
    until_used(&limiter, before - 2);
    println!("\ncancelled");
}

#[test]
fn what_is_returned_is_exact_when_another_process_queues_behind() {
    let namespace = namespace();
    let builder = RedisStore::builder(&HEALTHY.url()).namespace(&namespace);
    let store = connected(builder.response_timeout(LONG_DEADLINE));
    let ours = patient_limiter(&store, SLOW_QUOTA);
    let mut our_tasks = enqueue(&ours, 4);
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg("shaping::a_child_process_queues_and_cancels")
        .env(QUEUE_VARIABLE, format!("{};{namespace}", HEALTHY.url()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = |word: &str| assert!(lines.any(|line| line.unwrap() == word), "{word}");
    said("queued");
    poll::until(TIMEOUT, "ours wait", || ours.waiting() == 3);
    assert_eq!(used(&ours, "shaped"), 6);
    // Theirs are behind: nothing is returned.
    cancel(our_tasks.pop().unwrap());
    // Theirs are the last: both are returned, ours is not.
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    said("cancelled");
    assert!(child.wait().unwrap().success());
    assert_eq!(used(&ours, "shaped"), 4);
    // The slot that stayed with this process passes to the next request, which gives up its own.
    let next = admit(&ours, Wait::forever());
    poll::until(TIMEOUT, "it waits", || ours.waiting() == 3);
    until_used(&ours, 4);
    // A newcomer of another process is scheduled behind all of them.
    let store = connected(RedisStore::builder(&HEALTHY.url()).namespace(&namespace));
    let theirs = patient_limiter(&store, SLOW_QUOTA);
    let behind = admit(&theirs, Wait::forever());
    until_used(&ours, 5);
    for task in [next, behind] {
        task.abort();
    }
}

/// Two stores, as in two processes: the last slot of one has a slot of the other behind it.
#[test]
fn a_cancelled_slot_stays_with_its_process_when_others_are_behind_it() {
    let namespace = namespace();
    let [ours, theirs] = [0, 1].map(|_| {
        let builder = RedisStore::builder(&HEALTHY.url()).namespace(&namespace);
        let store = connected(builder.response_timeout(LONG_DEADLINE));
        patient_limiter(&store, "leaky-bucket 1/2s queue 20")
    });
    let order = Arc::new(Mutex::new(Vec::new()));
    let enqueue = |limiter: &Limiter<RedisStore>, name: &'static str| {
        let (limiter, order) = (limiter.clone(), Arc::clone(&order));
        runtime().spawn(async move {
            let request = limiter.request("shaped");
            let decision = limiter.admit(&request, Wait::forever()).await.unwrap();
            order.lock().unwrap().push(name);
            decision
        })
    };
    let first = enqueue(&ours, "first");
    until_used(&ours, 1);
    let kept = enqueue(&ours, "kept");
    until_used(&ours, 2);
    let cancelled = enqueue(&ours, "cancelled");
    until_used(&ours, 3);
    let behind = enqueue(&theirs, "behind");
    until_used(&ours, 4);
    poll::until(TIMEOUT, "all wait", || {
        (ours.waiting(), theirs.waiting()) == (2, 1)
    });
    cancelled.abort();
    assert!(block_on(cancelled).unwrap_err().is_cancelled());
    // The schedule of the server does not change: no newcomer gets the slot of `behind`.
    let next = enqueue(&theirs, "next");
    let last = enqueue(&ours, "last");
    let ends = [first, kept, behind, next, last].map(|task| scheduled_us(&block_on(task).unwrap()));
    let [_, kept, behind, next, last] = ends;
    assert_eq!(behind - kept, 4_000_000);
    assert!(next >= behind + 2_000_000 && last >= behind + 2_000_000);
    // `last` was scheduled behind the others and took over the free slot.
    let order = order.lock().unwrap();
    assert_eq!(*order, ["first", "kept", "last", "behind", "next"]);
}

/// Not a test by itself: run by the child processes of the test below.
#[test]
fn a_child_process_waits_for_its_slots() {
    let Ok(parameters) = env::var(CHILD_VARIABLE) else {
        return;
    };
    let (url, namespace) = parameters.split_once(';').unwrap();
    let builder = RedisStore::builder(url).namespace(namespace);
    let store = connected(builder.response_timeout(LONG_DEADLINE));
    for start in scheduled_starts(&patient_limiter(&store, QUOTA), 100) {
        println!("\nstart={start}");
    }
}

#[test]
fn processes_share_one_schedule() {
    let proxy = Proxy::to(HEALTHY.port());
    proxy.set(Mode::Delay(Duration::from_millis(2)));
    let parameters = format!("{};{}", proxy.url(), namespace() + "shared");
    let children: Vec<_> = (0..2)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args(["--exact", "--nocapture", "--test-threads=1"])
                .arg("shaping::a_child_process_waits_for_its_slots")
                .env(CHILD_VARIABLE, &parameters)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut starts: Vec<u64> = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let stdout = String::from_utf8(output.stdout).unwrap();
        let lines = stdout
            .lines()
            .filter_map(|line| line.strip_prefix("start="));
        starts.extend(lines.map(|start| start.parse::<u64>().unwrap()));
    }
    assert_eq!(starts.len(), 200);
    starts.sort_unstable();
    assert_spaced(&starts);
}
