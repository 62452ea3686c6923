//! Many processes with many tasks each: together they get what one would, to the unit.

use std::env;
use std::num::NonZeroU32;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tallygate::{Limiter, OnFailure, RedisStore, Replicas, Store};
use tallygate_testkit::poll;
use tallygate_testkit::redis::User;

use crate::fixtures::{
    LONG, PATIENCE, UNHARMED, connected, every_key_expires, namespace, patient, quota, runtime,
    used, wait,
};

const PROCESSES: u32 = 4;
const TASKS: u32 = 64;
const CALLS: u32 = 10;
const ALL: u32 = PROCESSES * TASKS * CALLS;

/// What a child is told: URL, namespace, whether to batch, quotas.
const TOLD: &str = "TALLYGATE_TEST_CHILD";

fn connect(url: &str, namespace: &str, batching: &str) -> Arc<RedisStore> {
    let builder = RedisStore::builder(url).namespace(namespace);
    connected(builder.batching(batching == "true").response_timeout(LONG))
}

/// Not a test by itself: what the child processes of the tests below run.
#[test]
fn a_child_process_takes_what_it_can_get() {
    let Ok(told) = env::var(TOLD) else {
        return;
    };
    let told: Vec<&str> = told.split(';').collect();
    let [url, namespace, batching, quotas @ ..] = &*told else {
        panic!("told {told:?}");
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
                    assert!(!decision.degraded(), "the store does not answer");
                    admitted += u32::from(decision.allowed());
                }
                admitted
            })
        })
        .collect();
    let admitted: u32 = tasks.into_iter().map(|task| wait(task).unwrap()).sum();
    println!("\nadmitted={admitted}");
}

fn limiter(store: &Arc<RedisStore>, quotas: &[&str]) -> Limiter<RedisStore> {
    let limiter = patient(store, quotas[0]);
    let more = quotas[1..].iter();
    more.fold(limiter, |limiter, text| limiter.and(quota(text)).unwrap())
}

/// How many are admitted of all that the processes ask for at once.
fn admitted(batching: bool, quotas: &[&str]) -> u32 {
    let (url, namespace) = (UNHARMED.url(), namespace() + "shared");
    let told = format!("{url};{namespace};{batching};{}", quotas.join(";"));
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args(["--exact", "--nocapture", "--test-threads=1"])
                .arg("processes::a_child_process_takes_what_it_can_get")
                .env(TOLD, &told)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut sum = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let number = said
            .lines()
            .find_map(|line| line.strip_prefix("admitted="))
            .unwrap_or_else(|| panic!("a child says {said}"));
        sum += number.parse::<u32>().unwrap();
    }
    // What was counted is what was admitted.
    let store = connect(&url, &namespace, "true");
    for text in quotas {
        let counted = used(&patient(&store, text), "shared");
        assert_eq!(counted, u64::from(sum));
    }
    every_key_expires(&UNHARMED);
    sum
}

#[test]
fn together_they_are_admitted_exactly_the_limit() {
    for batching in [true, false] {
        assert_eq!(admitted(batching, &["sliding-window-log 1500/30d"]), 1_500);
    }
    let bucket = "token-bucket 1/d burst 1700";
    assert_eq!(admitted(true, &[bucket]), 1_700);
}

#[test]
fn together_they_are_admitted_exactly_the_least_of_several_limits() {
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
fn nobody_is_refused_what_fits() {
    for batching in [true, false] {
        let roomy = [format!("sliding-window-log {ALL}/30d")];
        let roomy: Vec<&str> = roomy.iter().map(String::as_str).collect();
        assert_eq!(admitted(batching, &roomy), ALL);
    }
}

#[test]
fn stores_that_share_counters_count_one_another() {
    UNHARMED.add_user(User::Limited);
    let account = format!("//{}:{}@", User::Limited.name(), User::Limited.password());
    let url = UNHARMED.url().replace("//", &account);
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
        poll::until(PATIENCE, "three are counted", || {
            store.replicas() == Some(3)
        });
    }
    every_key_expires(&UNHARMED);
}
