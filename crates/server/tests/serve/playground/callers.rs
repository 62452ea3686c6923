//! Cards with owners and reservations, over memory and Redis.

use serde_json::{Value, json};
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server as Redis;

use super::super::{Server, TIMEOUT};
use super::Visitor;

fn over_both_stores(test: impl Fn(&Visitor<'_>)) {
    let server = Server::start(&[]);
    test(&Visitor::new(&server));
    let redis = Redis::start();
    let server = Server::start(&["--store", &redis.url()]);
    let visitor = Visitor::new(&server);
    poll::until(TIMEOUT, "the store is reachable", || {
        visitor.get("/api/play").json()["reachable"] == true
    });
    test(&visitor);
}

/// The owners of the holds that the last answer shows, in the order of their ends.
fn owners(answers: &[Value]) -> Vec<u64> {
    let holds = answers.last().unwrap()["state"]["holds"].as_array();
    let owner = |hold: &Value| hold["owner"].as_u64().unwrap();
    holds.unwrap().iter().map(owner).collect()
}

#[test]
fn holds_are_shown_with_their_owners_and_end_by_themselves() {
    over_both_stores(|visitor| {
        let step = |verb: &str, owner: u32| json!({"card": "f", "quota": "concurrent 2 for 3s", "verb": verb, "owner": owner});
        let first = [step("check", 1), step("check", 7), step("check", 2)];
        let answers = visitor.play("real", &first);
        let allowed: Vec<&Value> = answers.iter().map(|one| &one["allowed"]).collect();
        assert_eq!(allowed, [true, true, false]);
        assert_eq!(answers[2]["headers"]["Retry-After"], "1");
        assert_eq!(owners(&answers), [1, 7]);
        let state = &answers[2]["state"];
        assert_eq!(
            (&state["kind"], &state["used"]),
            (&json!("concurrent"), &json!(2))
        );
        for hold in state["holds"].as_array().unwrap() {
            let until = hold["until_us"].as_u64().unwrap();
            assert!(until > answers[2]["now_us"].as_u64().unwrap(), "{hold}");
        }
        let released = visitor.play("real", &[step("release", 1), step("check", 2)]);
        assert_eq!(owners(&released), [7, 2]);
        // Only one is renewed.
        poll::until(TIMEOUT, "the other hold to end", || {
            let renewed = visitor.play("real", &[step("renew", 7)]);
            assert_eq!(renewed[0]["allowed"], true);
            owners(&renewed) == [7]
        });
        let lost = visitor.play("real", &[step("renew", 2)]);
        assert_eq!(lost[0]["allowed"], false);
        let reset = visitor.play("real", &[step("reset", 1)]);
        assert_eq!(reset[0]["state"]["holds"], json!([]));
    });
}

#[test]
fn a_reservation_is_settled_for_less_and_for_more() {
    over_both_stores(|visitor| {
        let take = |verb: &str, cost: u32, id: u32| {
            let quota = "sliding-window-log 1000/h";
            let step = json!({"card": "r", "quota": quota, "verb": verb, "cost": cost, "id": id});
            let answer = visitor.play("real", &[step]).remove(0);
            let number = |field: &str| answer[field].as_u64().unwrap();
            (number("granted"), number("remaining"))
        };
        assert_eq!(take("reserve", 200, 1), (200, 800));
        assert_eq!(take("reserve", 200, 2), (200, 600));
        assert_eq!(take("reserve", 200, u32::MAX), (200, 400));
        assert_eq!(take("settle", 80, 1), (0, 520));
        assert_eq!(take("settle", 500, 2), (300, 220));
        // Repeated: nothing changes.
        assert_eq!(take("settle", 80, 1), (0, 220));
        // More than sixteen are open: the oldest is forgotten, and stays charged.
        for id in 10..26 {
            assert_eq!(take("reserve", 1, id).0, 1);
        }
        poll::until(TIMEOUT, "the oldest to be forgotten", || {
            // A known id answers its estimate; this one does not fit.
            let again = take("reserve", 300, u32::MAX);
            assert_eq!(again.1, 204);
            again.0 == 0
        });
        assert_eq!(take("settle", 0, 25), (0, 205));
    });
}

#[test]
fn a_second_card_that_tells_callers_apart_takes_the_place_of_the_first() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let step = |card: &str, verb: &str| {
        let quota = "concurrent 2 for 1h";
        let step = json!({"card": card, "quota": quota, "verb": verb, "owner": 1});
        visitor.play("real", &[step]).remove(0)
    };
    assert_eq!(step("one", "check")["remaining"], 1);
    assert_eq!(step("two", "check")["remaining"], 1);
    assert_eq!(step("one", "peek")["remaining"], 2);
}
