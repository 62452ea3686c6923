//! The verbs have the same names and results in memory and in Redis.

use std::sync::atomic::{AtomicU32, Ordering};

use tallygate::{Decision, Limit, Limiter, Quota, RedisStore, Request, Retry, Verb};
use tallygate_testkit::poll;

use crate::fixtures::{HEALTHY, LONG_DEADLINE, TIMEOUT, block_on, quota, store};

/// Calls every verb, with `.await` for Redis, and returns the decisions.
macro_rules! every_verb {
    ($limiter:expr $(, $wait:ident)?) => {{
        let limiter = $limiter;
        let mut decisions = vec![
            limiter.check("ann")$(.$wait)?,
            limiter.check_cost(String::from("ann"), 3)$(.$wait)?,
            limiter.peek(b"ann", 1)$(.$wait)?,
            limiter.take("ann", 4)$(.$wait)?,
            limiter.charge("ann", 5)$(.$wait)?,
            limiter.check("ann")$(.$wait)?,
            limiter.refund("ann", 9)$(.$wait)?,
        ];
        let mut many = limiter.check_many(["ann", "bob", "ann"])$(.$wait)?;
        // Over Redis equal keys are decided in any order.
        many.sort_by_key(Decision::remaining);
        decisions.extend(many);
        decisions.push(limiter.reset("ann")$(.$wait)?);
        let limits = limiter.limits();
        let requests = ["ann", "bob"].map(|key| Request::new(key, &limits[0]).cost(2));
        decisions.extend(limiter.decide_many(&requests)$(.$wait)?);
        let taken = limiter.take("ann", 3)$(.$wait)?;
        limiter.undo("ann", &taken);
        decisions.push(taken);
        decisions
    }};
}

fn limiters(texts: &[&str]) -> (Limiter, Limiter<RedisStore>) {
    let limits: Vec<Limit> = texts.iter().map(|text| quota(text).into()).collect();
    let (first, more) = limits.split_first().expect("a limit");
    let mut memory = Limiter::new(first.clone());
    let store = store(&HEALTHY.url());
    let mut redis = Limiter::with_store(store, first.clone()).deadline(LONG_DEADLINE);
    for limit in more {
        memory = memory.and(limit.clone()).unwrap();
        redis = redis.and(limit.clone()).unwrap();
    }
    (memory, redis)
}

fn figures(decisions: &[Decision]) -> Vec<(bool, u32, u32, usize)> {
    let figures = |decision: &Decision| {
        assert!(!decision.degraded(), "the store fails");
        let remaining = decision.remaining();
        (
            decision.allowed(),
            decision.granted(),
            remaining,
            decision.binding(),
        )
    };
    decisions.iter().map(figures).collect()
}

#[test]
fn every_verb_decides_in_redis_as_in_memory() {
    // Nothing is forgotten during the test.
    let sets: [&[&str]; 3] = [
        &["fixed-window 10/366d"],
        &["sliding-window-log 10/366d"],
        &["fixed-window 10/366d", "token-bucket 1/366d burst 8"],
    ];
    for texts in sets {
        let (memory, redis) = limiters(texts);
        let expected = figures(&every_verb!(&memory));
        let actual = figures(&block_on(async { every_verb!(&redis, await) }));
        assert_eq!(actual, expected, "{texts:?}");
        let left = memory.peek("ann", 1).remaining();
        // An undo waits for no reply.
        let undone = poll::within(TIMEOUT, || {
            block_on(redis.peek("ann", 1)).remaining() == left
        });
        assert!(undone, "{texts:?}");
        let refused = expected.iter().filter(|(allowed, ..)| !allowed);
        assert_eq!(refused.count(), 1, "{texts:?}");
    }
}

#[test]
fn a_batch_larger_than_a_connection_queues_is_decided_in_full() {
    let (_, redis) = limiters(&["fixed-window 3000/366d"]);
    let redis = redis.deadline(TIMEOUT);
    let decisions = block_on(redis.check_many(std::iter::repeat_n("ann", 20_000)));
    assert_eq!(decisions.len(), 20_000);
    assert!(decisions.iter().all(|decision| !decision.degraded()));
    // Script calls in flight at the same time may overtake each other.
    let admitted = decisions.iter().filter(|decision| decision.allowed());
    let mut left: Vec<u32> = admitted.map(Decision::remaining).collect();
    left.sort_unstable();
    assert!(left.into_iter().eq(0..3_000));
}

#[test]
fn the_futures_of_all_verbs_can_be_spawned() {
    let (_, redis) = limiters(&["fixed-window 10/366d"]);
    let done = AtomicU32::new(0);
    let task = async move {
        let key = String::from("ann");
        let decisions = every_verb!(&redis, await);
        let request = redis.request(&key).verb(Verb::Peek);
        let peeked = redis.decide_many(&[request]).await;
        assert_eq!(redis.check_many(vec![key]).await.len(), peeked.len());
        done.fetch_add(1, Ordering::Relaxed);
        decisions.len()
    };
    let decided = block_on(async { tokio::spawn(task).await.unwrap() });
    assert_eq!(decided, 14);
}

#[test]
fn a_retry_says_when_in_words() {
    let limiter = Limiter::new(Quota::per_second(1));
    assert_eq!(limiter.check("ann").retry_after(), None);
    let never = limiter.check_cost("ann", 2).retry_after().unwrap();
    assert_eq!(
        (never.to_string(), never.duration()),
        ("never".to_owned(), None)
    );
    let later = Retry::after_us(2_500_000);
    assert_eq!(later.to_string(), "2.5s");
    assert_eq!(later.duration().unwrap().as_millis(), 2_500);
}
