//! One line for each host, if asked for.

use tallygate::Key;
use tallygate::outbound::OutboundLayer;

use crate::remote::{Calls, limiter};

#[tokio::test(start_paused = true)]
async fn each_host_has_a_line_and_pauses_of_its_own() {
    let gate = OutboundLayer::new(limiter("leaky-bucket 1/s queue 10"));
    let calls = Calls::through(&gate.by_host());
    calls.call("https://a.example/1?429&retry-after=10").await;
    calls.call("https://b.example/2").await;
    calls.call("https://A.EXAMPLE:443/3").await;
    calls.call("https://b.example/4").await;
    calls.call("http://a.example/5").await;
    calls.remote.until_ms(60_000).await;
    let right = [("1", 0), ("2", 0), ("5", 0), ("4", 1_000), ("3", 10_000)];
    calls.remote.assert_arrived(&right);
}

#[tokio::test(start_paused = true)]
async fn unless_told_otherwise_there_is_one_line_for_all() {
    let calls = Calls::under("leaky-bucket 1/s queue 10");
    calls.call("https://a.example/1?429&retry-after=10").await;
    calls.call("https://b.example/2").await;
    calls.remote.until_ms(60_000).await;
    calls.remote.assert_arrived(&[("1", 0), ("2", 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_gate_and_its_clones_share_lines_pauses_and_counts() {
    let gate = OutboundLayer::new(limiter("leaky-bucket 1/s queue 10"));
    let one = Calls::through(&gate);
    let other = Calls::through(&gate.clone());
    one.call("a").await;
    other.call("b?429&retry-after=5").await;
    one.call("c").await;
    one.remote.until_ms(60_000).await;
    one.remote.assert_arrived(&[("a", 0), ("c", 6_000)]);
    other.remote.assert_arrived(&[("b", 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_key_may_borrow_from_the_request_or_be_its_own() {
    let gate = || OutboundLayer::new(limiter("leaky-bucket 1/s queue 10"));
    for gate in [
        gate().by(|head| head.uri().path().into()),
        gate().by(|head| Key::secret(head.uri().path())),
        gate().by(|head| Key::from(head.uri().path()).and(head.method().as_str())),
    ] {
        let calls = Calls::through(&gate);
        calls.call("a").await;
        calls.call("a").await;
        calls.call("b").await;
        calls.remote.until_ms(60_000).await;
        calls
            .remote
            .assert_arrived(&[("a", 0), ("b", 0), ("a", 1_000)]);
        let shown = format!("{gate:?}{:?}", calls.client.get_ref().arrived().len());
        assert!(!shown.contains("\"a\""), "{shown}");
    }
}
