//! Tests of leases against the arithmetic of a store.

use fastrand::Rng;
use tallygate_core::{State, Verb, evaluate, evaluate_lease, undo};

use super::*;

mod fleet;

const SECOND: u64 = 1_000_000;
/// The store's clock at local time 0.
const STORE_START: u64 = 1_700_000_000_000_000;

fn settings(max: u32) -> LeaseSettings {
    LeaseSettings::default().max(max)
}

fn counter(quota: &Quota, cost: u32) -> LeasedCounter<'_> {
    LeasedCounter {
        id: 7,
        quota,
        settings: settings(100),
        cost,
    }
}

fn timing(local_us: u64, store_us: u64) -> Timing {
    Timing {
        sent_us: local_us,
        received_us: local_us,
        found_us: store_us,
    }
}

const MIN_CHECKS: u32 = LeaseSettings::MIN_CHECKS;

/// Checks until a lease is due. The last two take a unit.
fn check_until_due(leases: &Leases<()>, quota: &Quota, state: &mut State, now_us: u64) {
    for number in 1..=MIN_CHECKS {
        let takes = number > MIN_CHECKS - 2;
        let verb = if takes { Verb::Check } else { Verb::Peek };
        let verdict = evaluate(quota, state, verb, 1, STORE_START + now_us);
        let due = leases.on_check(&counter(quota, 1), || (), &verdict, 1, now_us);
        assert_eq!(due, number == MIN_CHECKS);
    }
}

fn grant(leases: &Leases<()>, request: &LeaseRequest<()>, state: &mut State, now_us: u64) {
    let store_us = STORE_START + now_us;
    let LeaseRequest {
        quota,
        max,
        divisor,
        ..
    } = request;
    let verdict = evaluate_lease(quota, state, *max, *divisor, store_us);
    leases.on_granted(request, &verdict, store_us, timing(now_us, store_us));
}

/// Checks and takes a lease from a new counter.
fn leased(quota: &Quota, now_us: u64) -> (Leases<()>, State) {
    let (leases, mut state) = (Leases::new(), State::New);
    check_until_due(&leases, quota, &mut state, now_us);
    let request = leases.request(7, 1).unwrap();
    grant(&leases, &request, &mut state, now_us);
    (leases, state)
}

fn spend(leases: &Leases<()>, quota: &Quota, cost: u32, now_us: u64) -> bool {
    let spent = leases.spend(&counter(quota, cost), Spending::Final, 1, now_us);
    spent.is_some()
}

#[test]
fn a_fourth_of_what_is_available_is_leased_and_spent() {
    let quota: Quota = "fixed-window 102/min".parse().unwrap();
    let (leases, _) = leased(&quota, 0);
    assert_eq!(leases.stats().outstanding, 25);
    let spent = leases.spend(&counter(&quota, 5), Spending::Final, 1, 10);
    let spent = spent.unwrap();
    assert_eq!((spent.verdict.granted(), spent.verdict.remaining), (5, 95));
    assert_eq!(spent.taken_us, STORE_START);
    assert!(!spend(&leases, &quota, 21, 10));
    assert!((0..20).all(|_| spend(&leases, &quota, 1, 10)));
    assert!(!spend(&leases, &quota, 1, 10));
}

#[test]
fn a_process_of_many_leases_its_part() {
    let quota: Quota = "fixed-window 1000/min".parse().unwrap();
    let leases: Leases<()> = Leases::new();
    let verdict = evaluate(&quota, &mut State::New, Verb::Check, 1, STORE_START);
    for _ in 0..MIN_CHECKS {
        leases.on_check(&counter(&quota, 1), || (), &verdict, 10, 0);
    }
    let request = leases.request(7, 10).unwrap();
    assert_eq!((request.max, request.divisor), (25, 40));
    // One at a time.
    assert_eq!(leases.request(7, 10), None);
}

#[test]
fn a_lease_is_not_spent_beyond_its_hold_or_window() {
    let bucket: Quota = "token-bucket 100/min".parse().unwrap();
    let (leases, _) = leased(&bucket, 0);
    assert!(spend(&leases, &bucket, 1, SECOND - 1));
    assert!(!spend(&leases, &bucket, 1, SECOND));

    // The window ends 0.5 s later; the store's clock may be fast.
    let window: Quota = "fixed-window 100/min".parse().unwrap();
    let end = window.window_end_us(STORE_START).unwrap() - STORE_START;
    let (leases, _) = leased(&window, end - SECOND / 2);
    assert!(spend(&leases, &window, 1, end - 1_000));
    assert!(!spend(&leases, &window, 1, end - 400));
}

#[test]
fn what_is_not_used_goes_back_as_of_when_it_was_taken() {
    let quota: Quota = "token-bucket 100/min".parse().unwrap();
    let (leases, mut state) = leased(&quota, 0);
    assert!(spend(&leases, &quota, 4, 300_000));
    assert_eq!(leases.tick(500_000), []);
    assert!(leases.is_active());
    // Half a hold after the last use.
    let returns = leases.tick(800_000);
    let [one] = &returns[..] else {
        panic!("{returns:?}");
    };
    assert_eq!((one.units, one.taken_us), (20, STORE_START));
    assert!(!spend(&leases, &quota, 1, 800_000));
    assert_eq!(leases.stats().outstanding, 0);
    let after = STORE_START + 800_000;
    undo(&quota, &mut state, one.taken_us, one.units, after);
    let mut alone = State::New;
    evaluate(&quota, &mut alone, Verb::Check, 6, STORE_START);
    let left = |state: &mut State| evaluate(&quota, state, Verb::Peek, 1, after).remaining;
    // What drained meanwhile drained from the leased units, too: one unit less.
    assert_eq!((left(&mut state), left(&mut alone)), (94, 95));
}

#[test]
fn units_on_their_way_back_count_until_the_store_has_them() {
    let quota: Quota = "token-bucket 400/min".parse().unwrap();
    let (leases, mut state) = leased(&quota, 0);
    let returns = leases.tick(600_000);
    assert_eq!(returns[0].units, 99);
    let verdict = evaluate(&quota, &mut state, Verb::Check, 1, STORE_START + 600_000);
    let due = || leases.on_check(&counter(&quota, 1), || (), &verdict, 1, 600_000);
    assert!(!due());
    leases.on_returned(&returns[0], true);
    assert!(due());
    assert_eq!(leases.request(7, 1).unwrap().max, 100);
}

#[test]
fn an_unused_counter_is_forgotten() {
    let quota: Quota = "token-bucket 100/min".parse().unwrap();
    let (leases, _) = leased(&quota, 0);
    for now_us in (0..).step_by(100_000).take(60) {
        for one in leases.tick(now_us) {
            leases.on_returned(&one, true);
        }
    }
    assert!(!leases.is_active());
    let mut shards = leases.shards.iter();
    assert!(shards.all(|shard| shard.lock().counters.is_empty() && shard.lock().due.is_empty()));
}

#[test]
fn units_of_a_reset_counter_are_not_returned() {
    let quota: Quota = "token-bucket 100/min".parse().unwrap();
    let (leases, _) = leased(&quota, 0);
    leases.forget(7);
    assert!(!spend(&leases, &quota, 1, 1));
    assert_eq!(leases.tick(10 * SECOND), []);
    assert_eq!(leases.stats().outstanding, 0);
}

#[test]
fn a_lease_that_a_reset_overtakes_is_neither_spent_nor_returned() {
    let quota: Quota = "token-bucket 100/min".parse().unwrap();
    let (leases, mut state) = (Leases::new(), State::New);
    check_until_due(&leases, &quota, &mut state, 0);
    let early = leases.request(7, 1).unwrap();
    leases.forget(7);
    // The next lease is not taken for it.
    let verdict = evaluate(&quota, &mut state, Verb::Check, 1, STORE_START);
    while !leases.on_check(&counter(&quota, 1), || (), &verdict, 1, 0) {}
    let late = leases.request(7, 1).unwrap();
    grant(&leases, &early, &mut state, 0);
    assert!(!spend(&leases, &quota, 1, 1));
    assert_eq!(leases.stats().stranded, leases.stats().taken);
    grant(&leases, &late, &mut state, 0);
    assert!(spend(&leases, &quota, 1, 1));
    assert!(leases.tick(10 * SECOND).iter().all(|one| one.units < 24));
}

#[test]
fn a_lease_that_arrives_after_the_end_goes_back() {
    let quota: Quota = "token-bucket 100/min".parse().unwrap();
    let (leases, mut state) = (Leases::new(), State::New);
    check_until_due(&leases, &quota, &mut state, 0);
    let request = leases.request(7, 1).unwrap();
    assert_eq!(leases.close(), []);
    grant(&leases, &request, &mut state, 0);
    assert!(leases.is_active());
    assert_eq!(leases.tick(1)[0].units, 24);
    assert!(!leases.is_active());
    // Nor is another one taken.
    let verdict = evaluate(&quota, &mut state, Verb::Check, 1, STORE_START);
    assert!((0..9).all(|_| !leases.on_check(&counter(&quota, 1), || (), &verdict, 1, 0)));
}

#[test]
fn a_lease_under_another_quota_goes_back_under_its_own() {
    let old: Quota = "token-bucket 100/min".parse().unwrap();
    let new: Quota = "token-bucket 200/min".parse().unwrap();
    let (leases, mut state) = leased(&old, 0);
    assert!(!spend(&leases, &new, 1, 1));
    let verdict = evaluate(&new, &mut state, Verb::Check, 1, STORE_START);
    leases.on_check(&counter(&new, 1), || (), &verdict, 1, 1);
    let returns = leases.tick(2);
    assert_eq!(
        (returns.len(), returns[0].units, returns[0].quota),
        (1, 24, old)
    );
}

#[test]
fn a_lot_gets_back_at_most_what_it_had() {
    let quota: Quota = "token-bucket 100/min".parse().unwrap();
    let (leases, _) = leased(&quota, 0);
    assert!(spend(&leases, &quota, 5, 1));
    assert!(!leases.undo(7, 6, STORE_START));
    assert!(!leases.undo(7, 5, STORE_START + 1));
    assert!(leases.undo(7, 5, STORE_START));
    assert!(!leases.undo(7, 1, STORE_START));
    assert_eq!(leases.stats().outstanding, 24);
}

fn spend_pending(leases: &Leases<()>, quota: &Quota) -> Spent {
    let spent = leases.spend(&counter(quota, 1), Spending::Pending, 1, 1);
    spent.unwrap()
}

#[test]
fn units_of_requests_that_are_refused_elsewhere_count_while_the_next_lease_is_taken() {
    let quota: Quota = "token-bucket 100/min".parse().unwrap();
    let one = counter(&quota, 1);
    let (leases, mut state) = leased(&quota, 0);
    let spent: Vec<Spent> = (0..23).map(|_| spend_pending(&leases, &quota)).collect();
    // With 24 units, 23 of them pending, there is no room for another lease.
    assert!(leases.request(7, 1).is_none());
    for spent in &spent[..12] {
        leases.keep(7, 1, spent);
    }
    let request = leases.request(7, 1).unwrap();
    assert_eq!(request.max, 25 - 11 - 1);
    grant(&leases, &request, &mut state, 2);
    for spent in &spent[12..] {
        assert_eq!(leases.put_back(&one, spent, || ()), None);
    }
    assert_eq!(leases.stats().outstanding, 25);
}

#[test]
fn undone_units_go_to_the_store_once_others_were_leased_for_them() {
    let quota: Quota = "token-bucket 100/min".parse().unwrap();
    let (leases, mut state) = leased(&quota, 0);
    assert!((0..23).all(|_| spend(&leases, &quota, 1, 1)));
    let request = leases.request(7, 1).unwrap();
    assert_eq!(request.max, 24);
    assert!(!leases.undo(7, 1, STORE_START));
    grant(&leases, &request, &mut state, 2);
    let room = 25 - u32::try_from(leases.stats().outstanding).unwrap();
    assert!((0..room).all(|_| leases.undo(7, 1, STORE_START)));
    assert!(!leases.undo(7, 1, STORE_START));
    assert_eq!(leases.stats().outstanding, 25);
}

#[test]
fn pending_units_whose_lot_is_gone_count_until_the_store_has_them() {
    let quota: Quota = "token-bucket 100/min".parse().unwrap();
    let (leases, mut state) = leased(&quota, 0);
    let spent: Vec<Spent> = (0..2).map(|_| spend_pending(&leases, &quota)).collect();
    let lot = leases.tick(2 * SECOND).remove(0);
    let one = counter(&quota, 1);
    let back = |spent| leases.put_back(&one, spent, || ()).unwrap();
    let first = back(&spent[0]);
    assert_eq!((first.units, first.taken_us), (1, STORE_START));
    leases.on_returned(&lot, true);
    let mut max = || {
        let verdict = evaluate(&quota, &mut state, Verb::Peek, 1, STORE_START + 2 * SECOND);
        while !leases.on_check(&one, || (), &verdict, 1, 2 * SECOND) {}
        let request = leases.request(7, 1).unwrap();
        leases.on_failed(&request, false);
        request.max
    };
    assert_eq!(max(), 23);
    leases.on_returned(&first, true);
    // Not those of a counter that was reset.
    leases.forget(7);
    let old = back(&spent[1]);
    assert_eq!(max(), 25);
    leases.on_returned(&old, true);
    assert_eq!(max(), 25);
}

#[test]
fn invented_keys_take_no_places_of_leased_ones() {
    let quota: Quota = "token-bucket 100000/min".parse().unwrap();
    let leases: Leases<()> = Leases::new();
    let verdict = evaluate(&quota, &mut State::New, Verb::Check, 1, STORE_START);
    let mut rng = Rng::with_seed(1);
    let known = |leases: &Leases<()>| -> usize {
        let shards = leases.shards.iter();
        shards.map(|shard| shard.lock().counters.len()).sum()
    };
    for _ in 0..3 * MAX_COUNTERS {
        let invented = LeasedCounter {
            id: rng.u64(..),
            ..counter(&quota, 1)
        };
        leases.on_check(&invented, || (), &verdict, 1, 0);
    }
    assert_eq!(known(&leases), 0);
    let hot = counter(&quota, 1);
    assert!((0..MIN_CHECKS).any(|_| leases.on_check(&hot, || (), &verdict, 1, 0)));
    // Those that are asked for often are bounded.
    for _ in 0..2 * MAX_COUNTERS {
        let id = rng.u64(..);
        for _ in 0..MIN_CHECKS {
            let warm = LeasedCounter { id, ..hot };
            leases.on_check(&warm, || (), &verdict, 1, 0);
        }
    }
    assert!(known(&leases) <= MAX_COUNTERS);
    assert!(leases.on_check(&hot, || (), &verdict, 1, 0));
}

#[test]
fn only_hot_keys_are_leased_if_so_set() {
    let quota: Quota = "token-bucket 100000/min".parse().unwrap();
    let (leases, mut state) = (Leases::<()>::new(), State::New);
    let hot_only = LeasedCounter {
        settings: settings(10).hot_only(),
        ..counter(&quota, 1)
    };
    let check = |now_us: u64| {
        let verdict = evaluate(
            &quota,
            &mut State::New,
            Verb::Check,
            1,
            STORE_START + now_us,
        );
        leases.on_check(&hot_only, || (), &verdict, 1, now_us)
    };
    // 63 in every second: warm.
    let warm = (0..3 * 63).map(|i| i * (SECOND + 1) / 63);
    assert!(warm.into_iter().all(|now_us| !check(now_us)));
    let start = 10 * SECOND;
    assert!((0..63).all(|i| !check(start + i)));
    assert!(check(start + 63));
    let request = leases.request(7, 1).unwrap();
    grant(&leases, &request, &mut state, start + 64);
    let spend = |now_us| leases.spend(&hot_only, Spending::Final, 1, now_us);
    // It stays hot as long as it is used as much.
    assert!((0..5).all(|i| spend(start + 100 + i).is_some()));
    assert!(spend(start + 200).unwrap().renew);
    let later = start + 3 * SECOND;
    leases.tick(later);
    assert!(!check(later));
}
