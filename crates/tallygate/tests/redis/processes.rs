//! Many processes with many tasks each: together they are admitted exactly the limit.

use std::env;
use std::num::NonZeroU32;
use std::process::{Command, Stdio};

use tallygate::{Limiter, OnFailure, RedisStore, Replicas, Store};
use tallygate_testkit::poll;
use tallygate_testkit::redis::User;

use crate::fixtures::{
    HEALTHY, LONG_DEADLINE, TIMEOUT, block_on, connected, every_key_expires, namespace,
    patient_limiter, quota, runtime, used,
};

const PROCESSES: u32 = 4;
const TASKS: u32 = 64;
const CALLS: u32 = 10;
const ALL: u32 = PROCESSES * TASKS * CALLS;

/// The parameters of a child: URL, namespace, batching, quotas.
const CHILD_VARIABLE: &str = "TALLYGATE_TEST_CHILD";

fn connect(url: &str, namespace: &str, batching: &str) -> RedisStore {
    let builder = RedisStore::builder(url).namespace(namespace);
    connected(
        builder
            .batching(batching == "true")
            .response_timeout(LONG_DEADLINE),
    )
}

/// Not a test by itself: run by the child processes of the tests below.
#[test]
fn a_child_process_sends_its_requests() {
    let Ok(parameters) = env::var(CHILD_VARIABLE) else {
        return;
    };
    let parameters: Vec<&str> = parameters.split(';').collect();
    let [url, namespace, batching, quotas @ ..] = &*parameters else {
        panic!("invalid parameters: {parameters:?}");
    };
    let store = connect(url, namespace, batching);
    let limiter = limiter(&store, quotas);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let limiter = limiter.clone();
            runtime().spawn(async move {
                let mut admitted = 0;
                for _ in 0..CALLS {
                    let decision = limiter.decide(&limiter.request("shared")).await;
                    assert!(!decision.degraded(), "the store fails");
                    admitted += u32::from(decision.allowed());
                }
                admitted
            })
        })
        .collect();
    let admitted: u32 = tasks.into_iter().map(|task| block_on(task).unwrap()).sum();
    println!("\nadmitted={admitted}");
}

fn limiter(store: &RedisStore, quotas: &[&str]) -> Limiter<RedisStore> {
    let limiter = patient_limiter(store, quotas[0]);
    let more = quotas[1..].iter();
    more.fold(limiter, |limiter, text| limiter.and(quota(text)).unwrap())
}

/// How many of all concurrent requests are admitted.
fn admitted(batching: bool, quotas: &[&str]) -> u32 {
    let (url, namespace) = (HEALTHY.url(), namespace() + "shared");
    let parameters = format!("{url};{namespace};{batching};{}", quotas.join(";"));
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args(["--exact", "--nocapture", "--test-threads=1"])
                .arg("processes::a_child_process_sends_its_requests")
                .env(CHILD_VARIABLE, &parameters)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut sum = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let number = stdout
            .lines()
            .find_map(|line| line.strip_prefix("admitted="))
            .unwrap_or_else(|| panic!("no count in {stdout}"));
        sum += number.parse::<u32>().unwrap();
    }
    // Counted equals admitted.
    let store = connect(&url, &namespace, "true");
    for text in quotas {
        let counted = used(&patient_limiter(&store, text), "shared");
        assert_eq!(counted, u64::from(sum));
    }
    every_key_expires(&HEALTHY);
    sum
}

#[test]
fn processes_together_are_admitted_exactly_the_limit() {
    for batching in [true, false] {
        assert_eq!(admitted(batching, &["sliding-window-log 1500/30d"]), 1_500);
    }
    let bucket = "token-bucket 1/d burst 1700";
    assert_eq!(admitted(true, &[bucket]), 1_700);
}

#[test]
fn processes_together_are_admitted_exactly_the_smallest_limit() {
    let several = [
        "sliding-window-log 2000/30d",
        "leaky-bucket 1/d burst 1234",
        "token-bucket 1/d burst 1700",
    ];
    for batching in [true, false] {
        assert_eq!(admitted(batching, &several), 1_234);
    }
}

#[test]
fn requests_that_fit_are_all_admitted() {
    for batching in [true, false] {
        let large = [format!("sliding-window-log {ALL}/30d")];
        let large: Vec<&str> = large.iter().map(String::as_str).collect();
        assert_eq!(admitted(batching, &large), ALL);
    }
}

#[test]
fn stores_count_their_replicas() {
    HEALTHY.add_user(User::Limited);
    let account = format!("//{}:{}@", User::Limited.name(), User::Limited.password());
    let url = HEALTHY.url().replace("//", &account);
    let namespace = namespace() + "shared";
    let counted = OnFailure::Local(Replicas::Counted {
        at_least: NonZeroU32::MIN,
    });
    let stores = [(); 3].map(|()| connect(&url, &namespace, "true"));
    let _in_runtime = runtime().enter();
    for store in &stores {
        let _counting = limiter(store, &["10/min"]).on_failure(counted);
    }
    for store in &stores {
        poll::until(TIMEOUT, "three are counted", || store.replicas() == Some(3));
    }
    every_key_expires(&HEALTHY);
}
