//! A cost per limit: each limit is charged its own cost, or none if any refuses.

use tallygate::{Limit, Request, RequestError, Verb};

use crate::fixtures::{quotas_per_minute, remaining_by_limit, store};

fn costs(request: &Request<'_>) -> Vec<u32> {
    request.entries().iter().map(|entry| entry.cost()).collect()
}

#[test]
fn the_cost_of_a_limit_overrides_that_of_the_request() {
    let limits = quotas_per_minute(9).map(Limit::from);
    let [a, b, c, d, ..] = &limits;
    let request = Request::new("k", a).cost(2).and("k", b).unwrap();
    assert_eq!(costs(&request), [2, 2]);
    let request = request.and_cost("k", c, 5).unwrap().and("k", d).unwrap();
    assert_eq!(costs(&request), [2, 2, 5, 2]);
    let request = request.cost(3);
    assert_eq!(
        (costs(&request), request.requested_cost()),
        (vec![3, 3, 5, 3], 3)
    );
}

#[test]
fn a_counter_with_its_own_cost_cannot_occur_twice() {
    let limit = Limit::from(quotas_per_minute(9)[0]);
    let twice = Request::new("k", &limit).and_cost("k", &limit, 5);
    let error = twice.unwrap_err();
    assert!(matches!(error, RequestError::SameCounterTwice { .. }));
}

/// For every pair of algorithms, in both orders.
#[test]
fn a_request_that_one_limit_refuses_is_charged_to_none() {
    for first in quotas_per_minute(9) {
        for second in quotas_per_minute(4) {
            for verb in [Verb::Check, Verb::Take] {
                let (_, store) = store(100);
                let (a, b) = (Limit::named("a", first), Limit::named("b", second));
                let decide = |verb, costs: [u32; 2]| {
                    let request = Request::new("k", &a).cost(costs[0]).verb(verb);
                    store.decide(&request.and_cost("k", &b, costs[1]).unwrap())
                };
                assert_eq!(
                    remaining_by_limit(&decide(Verb::Check, [1, 4])),
                    [8, 0],
                    "{first} {second}"
                );
                let refused = decide(verb, [2, 1]);
                assert!(
                    !refused.allowed() && refused.granted() == 0,
                    "{first} {second}"
                );
                assert_eq!(refused.binding(), 1);
                assert_eq!(remaining_by_limit(&refused), [8, 0]);
                // At cost 0 the exhausted limit does not refuse.
                let admitted = decide(verb, [2, 0]);
                assert!(
                    admitted.allowed() && admitted.granted() == 2,
                    "{first} {second}"
                );
                assert_eq!(remaining_by_limit(&admitted), [6, 0]);
            }
        }
    }
}

#[test]
fn a_refund_returns_to_each_limit_its_own_cost() {
    for quota in quotas_per_minute(9) {
        let (_, store) = store(100);
        let (a, b) = (Limit::named("a", quota), Limit::named("b", quota));
        let decide = |verb, costs: [u32; 2]| {
            let request = Request::new("k", &a).cost(costs[0]).verb(verb);
            store.decide(&request.and_cost("k", &b, costs[1]).unwrap())
        };
        assert_eq!(
            remaining_by_limit(&decide(Verb::Charge, [5, 12])),
            [4, 0],
            "{quota}"
        );
        assert_eq!(
            remaining_by_limit(&decide(Verb::Refund, [2, 4])),
            [6, 1],
            "{quota}"
        );
        assert_eq!(
            remaining_by_limit(&decide(Verb::Refund, [0, 3])),
            [6, 4],
            "{quota}"
        );
    }
}

#[test]
fn a_batch_charges_each_limit_its_own_cost() {
    let (_, store) = store(100);
    let limits = quotas_per_minute(9).map(Limit::from);
    let [a, b, ..] = &limits;
    let request = Request::new("k", a).cost(2).and_cost("k", b, 4).unwrap();
    let decisions = store.decide_many(&[request.clone(), request.clone(), request]);
    let remaining: Vec<Vec<u32>> = decisions.iter().map(remaining_by_limit).collect();
    assert_eq!(remaining, [[7, 5], [5, 1], [5, 1]]);
}
