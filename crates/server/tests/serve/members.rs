//! `/admin/keys/{key}`: who shares a limit and who borrows, and what is in flight, without names.

use serde_json::{Value, json};
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server as Redis;

use super::{Server, TIMEOUT, TempDir};

/// The deadlines are for busy machines.
const RULES: &str = "\
version: 1
rules:
  - name: tenants
    match: { path: /t/** }
    limits: token-bucket 10/h burst 100 shared 4
    share: { by: [{ header: x-tenant }], weights: { acme: 4 } }
    on_failure: { policy: local, deadline: 10s }
  - name: pairs
    match: { path: /p/** }
    key: [{ header: x-user }]
    limits: token-bucket 10/h burst 40 shared
    share: { by: [{ header: x-org }, { header: x-app }] }
    on_failure: { policy: local, deadline: 10s }
  - name: reports
    match: { path: /reports }
    key: [{ header: x-user }]
    limits: concurrent 5 for 1h
    on_failure: { policy: local, deadline: 10s }
";

fn start(args: &[&str]) -> (TempDir, Server) {
    let folder = TempDir::new();
    let rules = folder.write("rules.yaml", RULES);
    let server = Server::start(&[&["--config", &*rules][..], args].concat());
    poll::until(TIMEOUT, "ready", || {
        server.admin("GET", "/readyz", "").status == 200
    });
    (folder, server)
}

fn check(server: &Server, rule: &str, headers: &Value, owner: Option<&str>) -> u16 {
    let mut body = json!({"rule": rule, "attributes": {"ip": "192.0.2.1", "headers": headers}});
    if let Some(owner) = owner {
        body["owner"] = json!(owner);
    }
    server.check(&body.to_string()).status
}

/// The counter of a rule under a key.
fn counter(server: &Server, path: &str, rule: &str) -> Value {
    let shown = server.admin("GET", &format!("/admin/keys/{path}"), "");
    assert_eq!(shown.status, 200, "{shown:?}");
    let counters = shown.json()["counters"].as_array().unwrap().clone();
    let mut own = counters.into_iter().filter(|one| one["rule"] == rule);
    own.next().unwrap()
}

fn share(server: &Server, path: &str, rule: &str) -> Value {
    counter(server, path, rule)["share"].clone()
}

fn over_both_stores(test: impl Fn(&[&str])) {
    test(&[]);
    let redis = Redis::start();
    test(&["--store", &redis.url()]);
}

#[test]
fn the_members_of_a_share_are_listed_without_names_and_those_who_borrow_first() {
    over_both_stores(|store| {
        let (_folder, server) = start(store);
        let tenant = |name: &str| check(&server, "tenants", &json!({"x-tenant": name}), None);
        let new = share(&server, "", "tenants");
        assert_eq!((&new["members"], &new["listed"]), (&json!(0), &json!([])));
        for name in ["light", "acme", "acme"] {
            assert_eq!(tenant(name), 200);
        }
        while tenant("greedy") == 200 {}
        let shown = share(&server, "", "tenants");
        assert_eq!(shown["members"], 3);
        assert_eq!(shown["weight"], 6);
        assert_eq!(shown["borrowing"], 1);
        let listed = shown["listed"].as_array().unwrap();
        let weights: Vec<u64> = listed
            .iter()
            .map(|one| one["weight"].as_u64().unwrap())
            .collect();
        // By what they have used: the greedy one, acme, the light one.
        assert_eq!(weights, [1, 4, 1]);
        let borrows: Vec<&Value> = listed.iter().map(|one| &one["borrows"]).collect();
        assert_eq!(borrows, [true, false, false]);
        let milli = |one: &Value, field: &str| one[field].as_u64().unwrap();
        assert!(milli(&listed[0], "most_milli") - milli(&listed[0], "used_milli") < 1_000);
        // Its level drains a little until the answer.
        assert!((1_900..=2_000).contains(&milli(&listed[1], "used_milli")));
        // A share of 4/6 of the burst, and at least 4 units for each weight.
        assert_eq!(milli(&listed[1], "most_milli"), 66_667);
        let sum: u64 = listed.iter().map(|one| milli(one, "used_milli")).sum();
        assert!(milli(&shown, "used_milli") >= sum);
        for one in listed {
            let name = one["member"].as_str().unwrap();
            assert!(name.starts_with('#') && name.len() == 13, "{name}");
        }
        // The same hashes the next time, and one of them by its name.
        let names = |shown: &Value| -> Vec<Value> {
            let listed = shown["listed"].as_array().unwrap();
            listed.iter().map(|one| one["member"].clone()).collect()
        };
        let all = names(&shown);
        assert_eq!(names(&share(&server, "", "tenants")), all);
        let acme = share(&server, "?member=acme", "tenants");
        assert_eq!(names(&acme), [all[1].clone()]);
        assert_eq!(acme["members"], 3);
        let nobody = share(&server, "?member=nobody", "tenants");
        assert_eq!(nobody["listed"], json!([]));
        let text = server.admin("GET", "/admin/keys/", "").body;
        for name in ["acme", "greedy", "light"] {
            assert!(!text.contains(name), "{text}");
        }
        // A reset forgets the members.
        assert_eq!(server.admin("DELETE", "/admin/keys/", "").status, 200);
        assert_eq!(share(&server, "", "tenants")["members"], 0);
    });
}

#[test]
fn members_that_the_rules_name_are_shown_if_keys_are() {
    over_both_stores(|store| {
        let (_folder, server) = start(&[store, &["--show-keys"]].concat());
        for name in ["acme", "other"] {
            check(&server, "tenants", &json!({"x-tenant": name}), None);
        }
        let shown = share(&server, "", "tenants");
        let listed = shown["listed"].as_array().unwrap();
        let names: Vec<&str> = listed
            .iter()
            .filter_map(|one| one["member"].as_str())
            .collect();
        assert_eq!(names.len(), 2);
        assert!(names.contains(&"acme"), "{names:?}");
        assert!(!shown.to_string().contains("other"));
    });
}

#[test]
fn a_member_of_several_parts_and_one_of_the_check_api_are_found() {
    over_both_stores(|store| {
        let (_folder, server) = start(store);
        let headers = json!({"x-user": "ann", "x-org": "o", "x-app": "a"});
        check(&server, "pairs", &headers, None);
        let found = share(&server, "ann?member=o,a", "pairs");
        assert_eq!(found["listed"].as_array().unwrap().len(), 1);
        assert_eq!(
            share(&server, "ann?member=a,o", "pairs")["listed"],
            json!([])
        );
        let quota = "token-bucket 10/h burst 40 shared 4";
        for body in [
            json!({"key": "k", "quota": quota, "member": "m"}),
            json!({"key": "k", "quota": quota}),
        ] {
            assert_eq!(server.check(&body.to_string()).status, 200);
        }
        let path = "/admin/keys/k?quota=token-bucket%2010/h%20burst%2040%20shared%204";
        let shown = |path: &str| {
            let counters = server.admin("GET", path, "").json()["counters"].clone();
            counters.as_array().unwrap().last().unwrap()["share"].clone()
        };
        assert_eq!(shown(path)["members"], 2);
        let listed = shown(path)["listed"].clone();
        let nameless = listed.as_array().unwrap().iter();
        assert_eq!(nameless.filter(|one| one["member"].is_null()).count(), 1);
        let found = shown(&format!("{path}&member=m"));
        assert_eq!(found["listed"].as_array().unwrap().len(), 1);
        assert!(found["listed"][0]["member"].is_string());
    });
}

#[test]
fn what_is_in_flight_is_listed_without_owners() {
    over_both_stores(|store| {
        let (_folder, server) = start(store);
        let holds = || counter(&server, "ann", "reports")["holds"].clone();
        assert_eq!(holds(), json!({"units": 0, "owners": 0, "listed": []}));
        for owner in ["first", "second", "first"] {
            let user = json!({"x-user": "ann"});
            assert_eq!(check(&server, "reports", &user, Some(owner)), 200);
        }
        let shown = holds();
        assert_eq!((&shown["units"], &shown["owners"]), (&json!(2), &json!(2)));
        let listed = shown["listed"].as_array().unwrap();
        for one in listed {
            assert_eq!(one["units"], 1);
            let end = one["ends_after_us"].as_u64().unwrap();
            assert!((1..=3_600_000_000).contains(&end), "{end}");
            assert!(one["owner"].as_str().unwrap().starts_with('#'));
        }
        assert_ne!(listed[0]["owner"], listed[1]["owner"]);
        assert!(!shown.to_string().contains("first"), "{shown}");
    });
}

#[test]
fn at_most_a_hundred_members_are_listed_and_all_are_counted() {
    let (_folder, server) = start(&[]);
    let body: Vec<Value> = (0..120)
        .map(|at| {
            json!({"key": "k", "quota": "token-bucket 10/h burst 1000 shared 1",
                "member": at.to_string()})
        })
        .collect();
    let answer = server.post("/v1/check/batch", &Value::from(body).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let path = "/admin/keys/k?quota=token-bucket%2010/h%20burst%201000%20shared%201";
    let counters = server.admin("GET", path, "").json()["counters"].clone();
    let share = &counters.as_array().unwrap().last().unwrap()["share"];
    assert_eq!(share["members"], 120);
    assert_eq!(share["listed"].as_array().unwrap().len(), 100);
}
