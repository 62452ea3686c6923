//! The members of shared limits.

use tallygate::rules::{KeyText, Part, Share, Source};
use tallygate::{Key, Weight};

use super::{from, header, key_by, parse_request, plan, quotas, rule, rules, with};

fn shared(by: Part) -> tallygate::rules::Rule {
    let mut tenants = rule("tenants");
    let limits = quotas(&["token-bucket 100/s burst 100 shared", "1000/h"]);
    tenants.limits = tallygate::rules::RuleLimits::Same(limits);
    let share = Share::by([by]).weight("acme", Weight::new(4).unwrap());
    tenants.share(share)
}

#[test]
fn a_request_is_of_the_member_that_it_names() {
    let rules = rules(vec![shared(Part::new(header("x-tenant")))]);
    let member = |request: &http::Request<()>| {
        let plan = plan(&rules, request);
        plan.charges()[0].member.clone().unwrap()
    };
    let acme = member(&with("x-tenant", "acme", parse_request("GET /")));
    assert_eq!(*acme.name(), Key::from("acme"));
    assert_eq!((acme.own_weight().get(), acme.is_pinned()), (4, true));
    let other = member(&with("x-tenant", "other", parse_request("GET /")));
    assert_eq!(*other.name(), Key::from("other"));
    assert_eq!((other.own_weight().get(), other.is_pinned()), (1, false));
    // Those without the header are one member, which is nobody's namesake.
    let none = member(&parse_request("GET /"));
    let twice = with("x-tenant", "acme", parse_request("GET /"));
    let conflicting = member(&with("x-tenant", "zeta", twice));
    assert_eq!(none.name(), conflicting.name());
    let empty = member(&with("x-tenant", "", parse_request("GET /")));
    assert_eq!(none.name(), empty.name());
    assert_ne!(*none.name(), Key::from(""));
}

#[test]
fn a_weight_is_that_of_the_first_source_only() {
    let by = Part::new(Source::Header("x-tenant".parse().unwrap())).or(Source::Ip);
    let mut tenants = shared(by);
    let share = tenants.share.as_mut().unwrap();
    let listed = KeyText::new(["192.0.2.1"]);
    share.weights.push((listed, Weight::new(9).unwrap()));
    let rules = rules(vec![tenants]);
    let named = with("x-tenant", "192.0.2.1", parse_request("GET /"));
    let named = plan(&rules, &named).charges()[0].member.clone().unwrap();
    assert_eq!(named.own_weight().get(), 9);
    let addressed = plan(&rules, &from("192.0.2.1", parse_request("GET /")));
    let addressed = addressed.charges()[0].member.clone().unwrap();
    assert_eq!(
        (addressed.own_weight().get(), addressed.is_pinned()),
        (1, false)
    );
}

#[test]
fn only_shared_limits_have_members() {
    let mut plain = shared(Part::new(header("x-tenant")));
    plain.limits = tallygate::rules::RuleLimits::Same(quotas(&["1000/h"]));
    let plain = rules(vec![plain]);
    assert!(
        plan(&plain, &parse_request("GET /")).charges()[0]
            .member
            .is_none()
    );
    let mut alone = shared(Part::new(header("x-tenant")));
    alone.share = None;
    alone.key = key_by(header("x-user"));
    let alone = rules(vec![alone]);
    assert!(
        plan(&alone, &parse_request("GET /")).charges()[0]
            .member
            .is_none()
    );
}
