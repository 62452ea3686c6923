//! Limits of one request with costs of their own: each is charged its own, and none if any refuses.

use tallygate::{Decision, Limit, Request, RequestError, Verb};

use crate::behaviours::{each_minute, store};

fn remaining(decision: &Decision) -> Vec<u32> {
    let each = decision.verdicts().iter();
    each.map(|verdict| verdict.remaining).collect()
}

fn units(request: &Request<'_>) -> Vec<u32> {
    request.entries().iter().map(|asked| asked.cost()).collect()
}

#[test]
fn a_cost_of_its_own_stays_whatever_the_requests() {
    let limits = each_minute(9).map(Limit::from);
    let [a, b, c, d, ..] = &limits;
    let request = Request::new("k", a).cost(2).and("k", b).unwrap();
    assert_eq!(units(&request), [2, 2]);
    let request = request.and_cost("k", c, 5).unwrap().and("k", d).unwrap();
    assert_eq!(units(&request), [2, 2, 5, 2]);
    let request = request.cost(3);
    assert_eq!(
        (units(&request), request.requested_cost()),
        (vec![3, 3, 5, 3], 3)
    );
}

#[test]
fn a_limit_with_a_cost_of_its_own_cannot_be_asked_twice_either() {
    let limit = Limit::from(each_minute(9)[0]);
    let twice = Request::new("k", &limit).and_cost("k", &limit, 5);
    let error = twice.unwrap_err();
    assert!(matches!(error, RequestError::SameCounterTwice { .. }));
}

/// Over every two behaviours, in every order: what one limit cannot bear is charged to none.
#[test]
fn a_request_that_any_limit_refuses_is_charged_to_none() {
    for first in each_minute(9) {
        for second in each_minute(4) {
            for verb in [Verb::Check, Verb::Take] {
                let (_, store) = store(100);
                let (a, b) = (Limit::named("a", first), Limit::named("b", second));
                let ask = |verb, costs: [u32; 2]| {
                    let request = Request::new("k", &a).cost(costs[0]).verb(verb);
                    store.decide(&request.and_cost("k", &b, costs[1]).unwrap())
                };
                assert_eq!(
                    remaining(&ask(Verb::Check, [1, 4])),
                    [8, 0],
                    "{first} {second}"
                );
                let refused = ask(verb, [2, 1]);
                assert!(
                    !refused.allowed() && refused.granted() == 0,
                    "{first} {second}"
                );
                assert_eq!(refused.binding(), 1);
                assert_eq!(remaining(&refused), [8, 0]);
                // Of cost 0, the exhausted one has no say.
                let admitted = ask(verb, [2, 0]);
                assert!(
                    admitted.allowed() && admitted.granted() == 2,
                    "{first} {second}"
                );
                assert_eq!(remaining(&admitted), [6, 0]);
            }
        }
    }
}

#[test]
fn a_refund_gives_each_limit_its_own_cost_back() {
    for quota in each_minute(9) {
        let (_, store) = store(100);
        let (a, b) = (Limit::named("a", quota), Limit::named("b", quota));
        let ask = |verb, costs: [u32; 2]| {
            let request = Request::new("k", &a).cost(costs[0]).verb(verb);
            store.decide(&request.and_cost("k", &b, costs[1]).unwrap())
        };
        assert_eq!(remaining(&ask(Verb::Charge, [5, 12])), [4, 0], "{quota}");
        assert_eq!(remaining(&ask(Verb::Refund, [2, 4])), [6, 1], "{quota}");
        assert_eq!(remaining(&ask(Verb::Refund, [0, 3])), [6, 4], "{quota}");
    }
}

#[test]
fn a_batch_charges_each_limit_its_own_cost() {
    let (_, store) = store(100);
    let limits = each_minute(9).map(Limit::from);
    let [a, b, ..] = &limits;
    let request = Request::new("k", a).cost(2).and_cost("k", b, 4).unwrap();
    let decisions = store.decide_many(&[request.clone(), request.clone(), request]);
    let left: Vec<Vec<u32>> = decisions.iter().map(remaining).collect();
    assert_eq!(left, [[7, 5], [5, 1], [5, 1]]);
}
