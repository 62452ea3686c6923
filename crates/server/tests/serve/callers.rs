//! Members, owners and ids in the check API: shares, concurrency limits and reservations.

use serde_json::{Value, json};

use super::client::{Response, send};
use super::{JSON, Server, TempDir};

const SHARED: &str = "token-bucket 1/h burst 100 shared 4";
const CONCURRENT: &str = "concurrent 2 for 1h";
const TOKENS: &str = "fixed-window 100000/366d";

fn check(server: &Server, body: &Value) -> Response {
    server.check(&body.to_string())
}

fn fields(response: &Response) -> (u16, Value, Value) {
    let json = response.json();
    let status = response.status;
    (status, json["granted"].clone(), json["remaining"].clone())
}

#[test]
fn a_greedy_member_leaves_the_others_their_part() {
    let server = Server::start(&[]);
    let ask = |member: &str, weight: u32, cost: u32| {
        let body = json!({"key":"api","quota":SHARED,"member":member,"weight":weight,"cost":cost});
        check(&server, &body)
    };
    assert_eq!(ask("light", 1, 1).status, 200);
    let mut greedy = 0;
    while ask("greedy", 1, 1).status == 200 {
        greedy += 1;
    }
    assert!((40..99).contains(&greedy), "{greedy} of 100");
    assert_eq!(ask("light", 1, 1).status, 200);
    for weight in [0, 1_001] {
        let response = ask("light", weight, 1);
        let problem = response.json();
        assert_eq!(
            (response.status, &problem["code"]),
            (400, &"bad-field".into())
        );
        let detail = format!("weight {weight} is out of range: 1 to 1000");
        assert_eq!(problem["detail"], detail);
    }
}

#[test]
fn an_owner_holds_renews_and_releases() {
    let server = Server::start(&[]);
    let ask = |verb: &str, owner: &str| {
        check(
            &server,
            &json!({"key":"k","quota":CONCURRENT,"verb":verb,"owner":owner}),
        )
    };
    assert_eq!(fields(&ask("check", "a")), (200, 1.into(), 1.into()));
    assert_eq!(fields(&ask("check", "b")), (200, 1.into(), 0.into()));
    // Asking again is the same hold.
    assert_eq!(fields(&ask("check", "a")), (200, 1.into(), 0.into()));
    let refused = ask("check", "c");
    assert_eq!(fields(&refused), (429, 0.into(), 0.into()));
    assert_eq!(refused.json()["retry_exact"], false);
    assert!(refused.json()["retry_after_us"].as_u64().unwrap() > 1_000_000_000);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(fields(&ask("renew", "a")), (200, 1.into(), 0.into()));
    let gone = ask("renew", "c");
    assert_eq!(
        (gone.status, &gone.json()["retry_after_us"]),
        (429, &Value::Null)
    );
    assert_eq!(gone.json().get("retry_exact"), None);
    assert_eq!(ask("release", "a").status, 200);
    assert_eq!(fields(&ask("check", "c")), (200, 1.into(), 0.into()));
    assert_eq!(ask("release", "nobody").status, 200);
    for verb in ["check", "take", "renew", "release"] {
        let response = check(&server, &json!({"key":"k","quota":CONCURRENT,"verb":verb}));
        let problem = response.json();
        assert_eq!(
            (response.status, &problem["code"]),
            (400, &"bad-field".into()),
            "{verb}"
        );
        assert!(problem["detail"].as_str().unwrap().contains("`owner`"));
    }
    let peek = json!({"key":"k","quota":CONCURRENT,"verb":"peek"});
    assert_eq!(check(&server, &peek).status, 429);
}

#[test]
fn a_reservation_is_settled_once() {
    let server = Server::start(&[]);
    let ask = |verb: &str, id: &str, cost: u32| {
        check(
            &server,
            &json!({"key":"k","quota":TOKENS,"verb":verb,"id":id,"cost":cost}),
        )
    };
    assert_eq!(
        fields(&ask("reserve", "r1", 1_000)),
        (200, 1_000.into(), 99_000.into())
    );
    // Sent again.
    assert_eq!(
        fields(&ask("reserve", "r1", 1_000)),
        (200, 1_000.into(), 99_000.into())
    );
    let conflict = ask("reserve", "r1", 5);
    let problem = conflict.json();
    assert_eq!(
        (conflict.status, &problem["code"]),
        (409, &"id-conflict".into())
    );
    assert!(problem["detail"].as_str().unwrap().contains("1000"));
    assert_eq!(
        fields(&ask("settle", "r1", 812)),
        (200, 0.into(), 99_188.into())
    );
    assert_eq!(
        fields(&ask("settle", "r1", 0)),
        (200, 0.into(), 99_188.into())
    );
    assert_eq!(
        fields(&ask("reserve", "r2", 100)),
        (200, 100.into(), 99_088.into())
    );
    assert_eq!(
        fields(&ask("settle", "r2", 300)),
        (200, 200.into(), 98_888.into())
    );
    assert_eq!(
        fields(&ask("settle", "unknown", 7)),
        (200, 0.into(), 98_888.into())
    );
    for (verb, id) in [
        ("reserve", None),
        ("settle", None),
        ("check", Some("r1")),
        ("charge", Some("r1")),
        ("release", Some("r1")),
    ] {
        let mut body = json!({"key":"k","quota":TOKENS,"verb":verb});
        if let Some(id) = id {
            body["id"] = id.into();
        }
        let response = check(&server, &body);
        assert_eq!(
            (response.status, &response.json()["code"]),
            (400, &"bad-field".into())
        );
    }
}

#[test]
fn only_a_settle_above_its_estimate_needs_the_token() {
    let token = "a-long-enough-token";
    let server = Server::start_with_env(&[], &[("TALLYGATE_ADMIN_TOKEN", token)]);
    let ask = |verb: &str, id: &str, cost: u32| {
        let limits = json!([{"key":"k","quota":TOKENS},
                            {"key":"k","quota":"1000/min","cost":1}]);
        check(
            &server,
            &json!({"limits":limits,"verb":verb,"id":id,"cost":cost}),
        )
    };
    assert_eq!(ask("reserve", "r1", 100).status, 200);
    let above = ask("settle", "r1", 101);
    assert_eq!(
        (above.status, &above.json()["code"]),
        (401, &"token-required".into())
    );
    // Nothing was settled.
    assert_eq!(
        ask("settle", "r1", 40).json()["quotas"][0]["remaining"],
        99_960
    );
    assert_eq!(ask("settle", "r1", 101).status, 200);
    assert_eq!(ask("reserve", "r2", 100).status, 200);
    let body = json!({"key":"k","quota":TOKENS,"verb":"settle","id":"r2","cost":150}).to_string();
    let bearer = format!("Bearer {token}");
    let headers = [JSON, ("authorization", &*bearer)];
    let allowed = send(server.api, "POST", "/v1/check", &headers, &body);
    assert_eq!(fields(&allowed), (200, 50.into(), 99_810.into()));
    let hold = json!({"key":"c","quota":CONCURRENT,"owner":"a"});
    for verb in ["check", "renew", "release"] {
        let mut body = hold.clone();
        body["verb"] = verb.into();
        assert_eq!(check(&server, &body).status, 200, "{verb}");
    }
}

#[test]
fn limits_have_their_own_cost() {
    let server = Server::start(&[]);
    let body = json!({
        "limits": [{"key":"k","quota":TOKENS,"cost":800},
                   {"key":"k","quota":"10/min"},
                   {"key":"k","quota":CONCURRENT,"cost":2}],
        "owner": "a", "cost": 3
    });
    let response = check(&server, &body);
    assert_eq!(response.status, 200);
    let quotas = response.json()["quotas"].clone();
    let figures: Vec<(u64, u64)> = quotas
        .as_array()
        .unwrap()
        .iter()
        .map(|quota| {
            (
                quota["granted"].as_u64().unwrap(),
                quota["remaining"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(figures, [(800, 99_200), (3, 7), (2, 0)]);
    // All or nothing.
    let other = json!({"limits":[{"key":"k","quota":"10/min"},{"key":"k","quota":CONCURRENT}],
                       "owner":"b"});
    assert_eq!(check(&server, &other).status, 429);
    let peek = json!({"key":"k","quota":"10/min","verb":"peek"});
    assert_eq!(check(&server, &peek).json()["remaining"], 7);
}

#[test]
fn a_rule_holds_one_unit_whatever_the_cost_and_finds_the_member() {
    let folder = TempDir::new();
    let rules = folder.write(
        "rules.yaml",
        "version: 1
rules:
  - name: reports
    key: [{ header: x-api-key }]
    limits: [fixed-window 1000/366d, concurrent 2 for 1h]
    cost: 100
  - name: tenants
    limits: token-bucket 1/h burst 100 shared
    share: { by: [{ header: x-tenant }], weights: { acme: 4 } }
",
    );
    let server = Server::start(&["--config", &rules]);
    let ask = |verb: &str, owner: &str| {
        let attributes = json!({"headers":{"x-api-key":"k"}});
        check(
            &server,
            &json!({"rule":"reports","attributes":attributes,"verb":verb,"owner":owner}),
        )
    };
    for (owner, remaining) in [("a", [900, 1]), ("b", [800, 0])] {
        let quotas = ask("check", owner).json()["quotas"].clone();
        let found = [&quotas[0]["remaining"], &quotas[1]["remaining"]];
        assert_eq!(
            found,
            [&Value::from(remaining[0]), &Value::from(remaining[1])]
        );
    }
    assert_eq!(ask("check", "c").status, 429);
    assert_eq!(ask("release", "a").status, 200);
    assert_eq!(ask("check", "c").status, 200);
    // The rule finds the member, or the check names it.
    let tenant =
        |tenant: &str| json!({"rule":"tenants","attributes":{"headers":{"x-tenant":tenant}}});
    assert_eq!(check(&server, &tenant("light")).status, 200);
    let mut greedy = 0;
    while check(&server, &tenant("greedy")).status == 200 {
        greedy += 1;
    }
    assert!(greedy < 99, "{greedy} of 100");
    let named = json!({"rule":"tenants","member":"greedy"});
    assert_eq!(check(&server, &named).status, 429);
    assert_eq!(check(&server, &tenant("light")).status, 200);
}
