//! Members of shared limits: weights, bounds and places.

use tallygate::{Limit, Member, Quota, Request, Verb, Weight};

use crate::fixtures::{SECOND, T0, limiter, store};

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

#[test]
fn a_greedy_member_leaves_a_light_one_its_share() {
    let (_, limiter) = limiter(quota("token-bucket 10/s burst 16 shared 4"));
    let (greedy, light) = (limiter.member("greedy"), limiter.member("light"));
    assert!(light.check("k").allowed());
    let taken = (0..20).filter(|_| greedy.check("k").allowed()).count();
    // Of 15: up to its share, and beyond it what is above the reserve of 4.
    assert_eq!(taken, 11);
    assert!(light.check("k").allowed());
    // Other keys have other members.
    assert!(greedy.check("other").allowed());
}

#[test]
fn weights_divide_the_rate() {
    let (clock, limiter) = limiter(quota("token-bucket 100/s burst 100 shared"));
    let one = limiter.member("one");
    let four = limiter.member("four").weight(Weight::new(4).unwrap());
    let (mut of_one, mut of_four) = (0, 0);
    for tick in 1..=6_000 {
        clock.set(T0 + tick * 10_000);
        for _ in 0..2 {
            let (a, b) = (one.check("k").granted(), four.check("k").granted());
            if tick > 2_000 {
                (of_one, of_four) = (of_one + a, of_four + b);
            }
        }
    }
    let total = f64::from(of_one + of_four);
    assert!(
        (3_960.0..4_110.0).contains(&total),
        "{of_one} and {of_four}"
    );
    let ratio = f64::from(of_four) / f64::from(of_one);
    assert!((3.5..4.5).contains(&ratio), "{of_one} and {of_four}");
}

#[test]
fn an_epoch_keeps_ten_thousand_members_and_those_that_are_named() {
    let (_, store) = store(50_000);
    let limit = Limit::from(quota("token-bucket 100000/s burst 100000 shared 1"));
    let check = |member: Member<'_>| {
        let request = Request::new("k", &limit).member(member);
        store.decide(&request)
    };
    for n in 0..10_000 {
        assert!(check(format!("m{n}").into()).allowed());
    }
    // Without a share of its own: all but the reserve of a fourth.
    let remaining = check("late".into()).remaining();
    assert_eq!(remaining, 90_000 - 1 - 25_000);
    let keys = store.live_keys();
    assert_eq!(keys, 10_001);
    // Takes a place, and has a share.
    let named = check(Member::new("named").pinned());
    assert!(named.allowed());
    assert_eq!(store.live_keys(), 10_002);
    // A member that is kept already still has its place.
    assert!(check("m0".into()).allowed());
    assert_eq!(store.live_keys(), 10_002);
}

#[test]
fn invented_members_fill_no_more_than_the_store() {
    let (clock, store) = store(100);
    let limit = Limit::from(quota("token-bucket 1000/s burst 1000 shared 1"));
    for key in 0..50 {
        for n in 0..200 {
            let request = Request::new(format!("k{key}"), &limit).verb(Verb::Take);
            let _ = store.decide(&request.member(format!("m{n}")));
        }
    }
    // Slots for 100 keys, a few spare ones, and as many members.
    let full = store.live_keys();
    assert!((400..1_200).contains(&full), "{full}");
    // All have expired, and their places are free again for members of other keys.
    clock.set(T0 + 600 * SECOND);
    assert_eq!(store.live_keys(), 0);
    // Some buckets are searched with every decision: who comes first may have to come again.
    for n in (0..200).chain(0..200) {
        let request = Request::new("later", &limit);
        assert!(store.decide(&request.member(format!("m{n}"))).allowed());
    }
    assert_eq!(store.live_keys(), 201);
}

#[test]
fn a_full_store_admits_no_more_holds_than_the_limit() {
    let (_, store) = store(1);
    let limit = Limit::from(quota("concurrent 3 for 1h"));
    let (mut shared, mut admitted) = (0, 0);
    for n in 0..2_000 {
        let key = format!("k{n}");
        let request = |owner: u32| Request::new(&key, &limit).owner(owner.to_string());
        let held: Vec<u32> = (0..5)
            .filter(|owner| store.decide(&request(*owner)).allowed())
            .collect();
        assert!(held.len() <= 3, "{key}: {held:?}");
        let peek = store.decide(&request(9).verb(Verb::Peek).cost(0));
        shared += u32::from(peek.shared());
        admitted += held.len();
        if n % 10 == 0
            && let Some(owner) = held.first()
        {
            // Also in a budget of several keys, an owner releases its own.
            let released = store.decide(&request(*owner).verb(Verb::Release));
            assert!(released.remaining() >= 1, "{key}");
        }
    }
    assert!(shared > 100, "{shared}");
    // Others share budgets instead of being refused.
    assert!(admitted > 300, "{admitted}");
}

#[test]
fn a_counter_without_a_place_for_one_more_owner_refuses_it_and_says_so() {
    let (clock, store) = store(1);
    let limit = Limit::from(quota("concurrent 10000 for 1min"));
    let decide = |key, owner: u32| {
        let request = Request::new(key, &limit).owner(owner.to_string());
        store.decide(&request)
    };
    let held = (0..1_000).take_while(|&owner| decide("k", owner).allowed());
    let held = u32::try_from(held.count()).unwrap();
    assert!((256..300).contains(&held), "{held}");
    let refused = decide("k", held);
    assert!(refused.shared());
    assert!(refused.retry_after().is_some_and(|retry| !retry.is_exact()));
    // Those that have a place keep it.
    assert!(decide("k", 0).allowed());
    clock.set(T0 + 61 * SECOND);
    assert!(decide("other", 0).allowed());
    assert!(!decide("other", 1).shared());
}

#[test]
fn shared_and_concurrent_limits_cannot_be_leased() {
    for text in [
        "token-bucket 10/s burst 16 shared 4",
        "concurrent 3 for 30s",
    ] {
        let leased = Limit::from(quota(text)).lease(tallygate::LeaseSettings::default());
        let error = leased.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}
