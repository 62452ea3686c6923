//! What somebody learns of keys who reads what the server stores.

use sha2::{Digest, Sha256};
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server as Redis;

use super::client::send;
use super::*;

const HMAC_SECRET: &str = "correct horse battery";
/// Short enough to be found by hashing all of its kind.
const PIN: &str = "4711";

fn rules(store: &str) -> String {
    format!(
        "version: 1\nstore: {store}\nrules:\n  \
         - {{ name: pins, key: [{{ header: x-api-key }}], limits: 2/h }}\n"
    )
}

/// Sends a request with the PIN, and returns its status.
fn request(target: &Target) -> u16 {
    send(
        target.server.gateway(),
        "GET",
        "/",
        &[("x-api-key", PIN)],
        "",
    )
    .status
}

/// The stored counters.
fn counters(redis: &Redis) -> Vec<String> {
    let names = redis.command(&["KEYS", "*{*"]);
    names
        .array()
        .iter()
        .map(|name| name.text().to_owned())
        .collect()
}

/// What an attacker computes for every PIN.
fn guess() -> String {
    let digest = Sha256::digest(PIN);
    digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn a_short_secret_cannot_be_guessed_from_stored_keys_with_an_hmac_secret() {
    let redis = Redis::start();
    let count = |store: &str| {
        let (rules, upstream) = (rules(store), Upstream::text("hello"));
        let variables = [("HMAC_SECRET_OF_TEST", HMAC_SECRET)];
        let target = Target::start_with_env(&rules, upstream, &[], &variables);
        poll::until(TIMEOUT, "the server is ready", || {
            send(target.server.admin, "GET", "/readyz", &[], "").status == 200
        });
        assert_eq!(request(&target), 200);
        target
    };
    let url = redis.url();
    // Without one it can: this is what the setting is for.
    drop(count(&url));
    let unkeyed = counters(&redis);
    assert!(
        unkeyed.iter().any(|name| name.contains(&guess())),
        "{unkeyed:?}"
    );
    redis.command(&["FLUSHALL"]);
    let keyed = format!("{{ url: \"{url}\", hmac_secret: \"${{HMAC_SECRET_OF_TEST}}\" }}");
    let first = count(&keyed);
    let stored = counters(&redis);
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert!(!stored[0].contains(&guess()), "{stored:?}");
    assert!(!stored[0].contains(PIN), "{stored:?}");
    // Processes with the same secret share their counters.
    let second = count(&keyed);
    assert_eq!(counters(&redis), stored);
    assert_eq!([request(&first), request(&second)], [429, 429]);
    for target in [first, second] {
        assert!(!target.server.stderr().contains(HMAC_SECRET));
        let rules = send(target.server.admin, "GET", "/admin/rules", &[], "").body;
        assert!(!rules.contains(HMAC_SECRET));
    }
}
