//! As many callers as a counter keeps, and more.

use tallygate_core::lua::{NamedCaller, Operation, read_holds, read_share};
use tallygate_core::{
    Caller, FoundState, MAX_MEMBERS, Quota, Room, State, Verb, Weight, evaluate_by, evaluate_found,
};
use tallygate_testkit::resp::Reply;

use super::super::{Limit, Scripts, unique_key};
use super::{fields, id};

const START: u64 = 1_700_000_000_000_000;

/// Checks of cost 1, each by a caller of its own.
struct Crowd {
    scripts: Scripts,
    key: Vec<u8>,
    quota: Quota,
    state: State,
}

impl Crowd {
    fn new(text: &str) -> Self {
        Crowd {
            scripts: Scripts::connect(),
            key: unique_key(),
            quota: text.parse().unwrap(),
            state: State::New,
        }
    }

    /// Decides a verb for each of these callers, in scripts of 128 requests, in Lua and in Rust. Returns
    /// how many were admitted.
    fn ask(&mut self, verb: Verb, names: &[String], has_place: bool, t: u64) -> usize {
        let mut admitted = 0;
        let operation = Operation::Verb(verb);
        for names in names.chunks(128) {
            let limits: Vec<Limit<'_>> = names
                .iter()
                .map(|name| Limit {
                    caller: NamedCaller {
                        member: name.as_bytes(),
                        owner: name.as_bytes(),
                        weight: Weight::ONE,
                        has_place,
                    },
                    ..Limit::new(&self.key, &self.quota, operation, 1)
                })
                .collect();
            self.scripts.send(&limits, Some(t));
            let each = names.iter().map(|_| (self.quota, operation));
            let (_, found) = self.scripts.receive_found(each);
            for ((state, _), name) in found.into_iter().zip(names) {
                let room = if has_place {
                    Room::Always
                } else {
                    Room::Bounded
                };
                let caller = Caller {
                    member: id(name.as_bytes()),
                    owner: id(name.as_bytes()),
                    room,
                    ..Caller::default()
                };
                let mut found = [FoundState {
                    caller,
                    ..FoundState::new(&self.quota, state, 1, t)
                }];
                let actual = evaluate_found(&mut found, verb);
                let expected = evaluate_by(&self.quota, &mut self.state, &caller, verb, 1, t);
                assert_eq!(*actual.verdict(), expected, "{name} at {t}");
                admitted += usize::from(expected.allowed());
            }
        }
        self.compare_stored();
        admitted
    }

    fn compare_stored(&mut self) {
        let key = |suffix: &str| [&self.key, suffix.as_bytes()].concat();
        let keys = [key("|0"), key("|1")];
        let stored = if self.quota.algorithm().is_concurrent() {
            read_holds(&fields(&mut self.scripts, &self.key), id)
        } else {
            let root = self.scripts.command(&[&b"GET"[..], &self.key]);
            let members = keys.map(|key| fields(&mut self.scripts, &key));
            match root {
                Reply::Bulk(root) => read_share(&root, [&members[0], &members[1]], id).unwrap(),
                _ => State::New,
            }
        };
        assert!(stored == self.state, "other states are stored");
    }
}

fn names(prefix: &str, count: u32) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

#[test]
fn an_epoch_keeps_ten_thousand_members_and_those_that_are_named() {
    let mut crowd = Crowd::new("token-bucket 40000/min burst 40000 shared 4");
    let kept = crowd.ask(Verb::Check, &names("m", MAX_MEMBERS), false, START);
    assert_eq!(kept, 10_000);
    // Those beyond borrow what is left above the reserve.
    assert!(crowd.ask(Verb::Check, &names("late", 300), false, START + 1) > 0);
    assert!(crowd.ask(Verb::Check, &names("m", 300), false, START + 2) > 0);
    crowd.ask(Verb::Check, &names("named", 50), true, START + 3);
    crowd.ask(Verb::Refund, &names("late", 10), false, START + 4);
    crowd.ask(Verb::Refund, &names("m", 10), false, START + 5);
    // The epochs turn: members of this one, of the one before, and new ones.
    for turn in 1..4 {
        let t = START + turn * 60_000_000;
        crowd.ask(Verb::Check, &names("m", 200), false, t);
        crowd.ask(Verb::Check, &names("named", 50), true, t + 1);
        crowd.ask(Verb::Check, &names("new", 200), false, t + 2);
    }
    crowd.ask(Verb::Reset, &names("m", 1), false, START + 1_000_000_000);
    assert_eq!(crowd.state, State::New);
}

#[test]
fn ten_thousand_owners_hold_lapse_and_make_room() {
    let mut crowd = Crowd::new("concurrent 10000 for 30s");
    assert_eq!(
        crowd.ask(Verb::Check, &names("o", 6_000), false, START),
        6_000
    );
    let second = 1_000_000;
    assert_eq!(
        crowd.ask(Verb::Check, &names("p", 4_100), false, START + second),
        4_000
    );
    // A renewal, and then the others of the first second lapse at once.
    assert_eq!(
        crowd.ask(Verb::Renew, &names("o", 100), false, START + 2 * second),
        100
    );
    let lapsed = START + 30 * second;
    assert_eq!(crowd.ask(Verb::Peek, &names("q", 10), false, lapsed), 10);
    assert_eq!(
        crowd.ask(Verb::Check, &names("q", 5_950), false, lapsed),
        5_900
    );
    assert_eq!(
        crowd.ask(Verb::Release, &names("p", 500), false, lapsed),
        500
    );
    assert_eq!(
        crowd.ask(Verb::Renew, &names("p", 500), false, lapsed + 1),
        0
    );
    assert_eq!(
        crowd.ask(Verb::Check, &names("r", 600), false, lapsed + 60 * second),
        600
    );
}
