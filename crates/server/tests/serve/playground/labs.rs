//! The labs: their measurements and their limit.

use serde_json::{Value, json};

use super::super::Server;
use super::Visitor;

fn lab(visitor: &Visitor<'_>, name: &str, settings: &Value) -> Value {
    let answer = visitor.post(&format!("/api/lab/{name}"), &settings.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn only_the_fixed_window_admits_twice_its_limit_at_a_boundary() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    for limit in [1, 10, 37, 100] {
        let measured = lab(&visitor, "boundary", &json!({"limit": limit}));
        let behaviours = measured["behaviours"].as_array().unwrap();
        let names: Vec<&str> = behaviours
            .iter()
            .map(|one| one["behaviour"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "fixed-window",
                "sliding-window-log",
                "sliding-window-counter",
                "token-bucket",
                "leaky-bucket-policing",
                "leaky-bucket-shaping",
            ]
        );
        for one in behaviours {
            let times = if one["behaviour"] == "fixed-window" {
                2
            } else {
                1
            };
            assert_eq!(one["admitted_in_period"], times * limit, "{one}");
            assert_eq!(one["sent"], 2 * limit);
            assert_eq!(one["limit"], limit);
        }
    }
}

#[test]
fn the_atomic_step_never_exceeds_the_limit() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let measured = lab(&visitor, "race", &json!({}));
    assert_eq!(measured["store"], "memory");
    assert_eq!(
        (&measured["clients"], &measured["limit"]),
        (&json!(32), &json!(10))
    );
    assert_eq!(measured["atomic"], json!({"admitted": 10, "over": 0}));
    let naive = &measured["naive"];
    let admitted = naive["admitted"].as_u64().unwrap();
    assert!((10..=32).contains(&admitted), "{naive}");
    assert_eq!(naive["over"], admitted - 10);
    let room = lab(&visitor, "race", &json!({"clients": 5, "limit": 8}));
    assert_eq!(room["atomic"], json!({"admitted": 5, "over": 0}));
    assert_eq!(room["naive"]["over"], 0);
}

#[test]
fn a_skew_of_a_period_admits_twice_the_limit_and_the_stores_clock_does_not() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    for (skew, admitted) in [(10, 20), (60, 20), (9, 10), (0, 10)] {
        let measured = lab(&visitor, "skew", &json!({"skew_s": skew}));
        assert_eq!(measured["application_time"]["admitted"], admitted, "{skew}");
        assert_eq!(measured["store_time"]["admitted"], 10);
        assert_eq!(measured["limit"], 10);
    }
}

#[test]
fn every_failure_policy_decides_as_documented_and_recovers() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let measured = lab(&visitor, "outage", &json!({"limit": 10, "replicas": 2}));
    let policies = measured["policies"].as_array().unwrap();
    let usual = json!({"sent": 20, "admitted": 10, "refused": 10, "unavailable": 0});
    for (shown, (policy, during)) in policies.iter().zip([
        (
            "open",
            json!({"sent": 20, "admitted": 20, "refused": 0, "unavailable": 0}),
        ),
        (
            "closed",
            json!({"sent": 20, "admitted": 0, "refused": 0, "unavailable": 20}),
        ),
        // Each of two replicas has half of the limit.
        ("local", usual.clone()),
    ]) {
        assert_eq!(shown["policy"], policy);
        assert_eq!(shown["before"], usual, "{policy}");
        assert_eq!(shown["during"], during, "{policy}");
        assert_eq!(shown["after"], usual, "{policy}");
        assert_eq!(shown["degraded"], 20, "{policy}");
    }
    assert_eq!(policies.len(), 3);
    let uneven = lab(&visitor, "outage", &json!({"limit": 10, "replicas": 3}));
    assert_eq!(uneven["policies"][2]["during"]["admitted"], 9);
    // The outage is intended: it is not logged.
    assert!(
        !server.stderr().contains("the store"),
        "{}",
        server.stderr()
    );
}

#[test]
fn a_greedy_tenant_starves_others_only_with_a_shared_limit() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let measured = lab(&visitor, "greedy", &json!({"greedy": 10}));
    let admitted = |way: &str| {
        let tenants = measured[way].as_array().unwrap();
        assert_eq!(tenants[0]["tenant"], "greedy");
        assert_eq!(
            (&tenants[0]["sent"], &tenants[1]["sent"]),
            (&json!(100), &json!(10))
        );
        let admitted = |tenant: &Value| tenant["admitted"].as_u64().unwrap();
        (admitted(&tenants[0]), admitted(&tenants[1]))
    };
    assert_eq!(admitted("shared"), (19, 1));
    assert_eq!(admitted("own"), (10, 10));
    assert_eq!(admitted("tiers"), (5, 10));
}

#[test]
fn a_stampede_is_one_call_with_coalescing_and_many_without() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    for requests in [1000, 3] {
        let measured = lab(&visitor, "stampede", &json!({"requests": requests}));
        assert_eq!(
            measured["without"],
            json!({"upstream_calls": requests, "answered": requests})
        );
        assert_eq!(
            measured["with"],
            json!({"upstream_calls": 1, "answered": requests})
        );
    }
}

#[test]
fn with_fair_shares_light_members_get_what_they_ask_and_the_greedy_ones_borrow() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    for greedy in [1, 5, 20] {
        let measured = lab(&visitor, "shares", &json!({"greedy": greedy}));
        let side = |side: &str| {
            let members = measured[side]["members"].as_array().unwrap().clone();
            assert_eq!(members.len(), greedy + 95);
            let sum = |of: &str, is_greedy: bool| -> u64 {
                let some = members.iter().filter(|one| one["greedy"] == is_greedy);
                some.map(|one| one[of].as_u64().unwrap()).sum()
            };
            let percent = 100 * sum("admitted", false) / sum("sent", false);
            let admitted = sum("admitted", true) + sum("admitted", false);
            // The bound of the bucket, and little of it unused.
            assert!((3_000..=3_100).contains(&admitted), "{side} {admitted}");
            (percent, members)
        };
        let (without, members) = side("without");
        assert!(without < 50, "{without} %");
        assert!(members.iter().all(|one| one["borrows"].is_null()));
        let (with, members) = side("with");
        assert!(with >= 99, "{with} %");
        let borrows = members.iter().filter(|one| one["borrows"] == true);
        let greedy_ones = borrows.filter(|one| one["greedy"] == true).count();
        assert!(greedy_ones > 0, "of {greedy}");
    }
    let twice = [(); 2].map(|()| lab(&visitor, "shares", &json!({})));
    assert_eq!(twice[0], twice[1]);
}

#[test]
fn bad_settings_are_rejected() {
    let invalid = [
        ("boundary", r#"{"limit":0}"#),
        ("boundary", r#"{"limit":101}"#),
        ("race", r#"{"clients":1}"#),
        ("race", r#"{"clients":65}"#),
        ("race", r#"{"limit":0}"#),
        ("skew", r#"{"skew_s":-1}"#),
        ("skew", r#"{"period_s":0}"#),
        ("outage", r#"{"replicas":9}"#),
        ("greedy", r#"{"greedy":101}"#),
        ("stampede", r#"{"requests":1001}"#),
        ("stampede", r#"{"request":1}"#),
        ("shares", r#"{"greedy":0}"#),
        ("shares", r#"{"greedy":21}"#),
        ("boundary", "[10]"),
    ];
    for some in invalid.chunks(6) {
        // A client has 12 labs at once.
        let server = Server::start(&[]);
        for (name, settings) in some {
            let path = format!("/api/lab/{name}");
            let answer = Visitor::new(&server).post(&path, settings);
            let code = answer.code();
            assert_eq!((answer.status, &*code), (400, "bad-field"), "{settings}");
        }
    }
    let server = Server::start(&[]);
    let unknown = Visitor::new(&server).post("/api/lab/alchemy", "{}");
    assert_eq!((unknown.status, &*unknown.code()), (404, "not-found"));
}

#[test]
fn labs_are_rate_limited() {
    let server = Server::start(&[]);
    let eager = Visitor::new(&server);
    let run = |visitor: &Visitor<'_>| visitor.post("/api/lab/skew", "{}");
    let refused = (0..1_000)
        .map(|_| run(&eager))
        .find(|answer| answer.status != 200)
        .unwrap();
    assert_eq!((refused.status, &*refused.code()), (429, "too-many-labs"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("x-ratelimit-limit"), Some("12"));
}
