//! Queues by host or by key.

use tallygate::Key;
use tallygate::outbound::OutboundLayer;

use crate::remote::{Calls, limiter};

#[tokio::test(start_paused = true)]
async fn each_host_has_its_own_queue_and_pauses() {
    let layer = OutboundLayer::new(limiter("leaky-bucket 1/s queue 10"));
    let calls = Calls::through(&layer.by_host());
    calls.call("https://a.example/1?429&retry-after=10").await;
    calls.call("https://b.example/2").await;
    calls.call("https://A.EXAMPLE:443/3").await;
    calls.call("https://b.example/4").await;
    calls.call("http://a.example/5").await;
    calls.remote.until_ms(60_000).await;
    let expected = [("1", 0), ("2", 0), ("5", 0), ("4", 1_000), ("3", 10_000)];
    calls.remote.assert_arrived(&expected);
}

#[tokio::test(start_paused = true)]
async fn by_default_all_calls_share_one_queue() {
    let calls = Calls::with_quota("leaky-bucket 1/s queue 10");
    calls.call("https://a.example/1?429&retry-after=10").await;
    calls.call("https://b.example/2").await;
    calls.remote.until_ms(60_000).await;
    calls.remote.assert_arrived(&[("1", 0), ("2", 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn clones_share_queues_pauses_and_counters() {
    let layer = OutboundLayer::new(limiter("leaky-bucket 1/s queue 10"));
    let one = Calls::through(&layer);
    let other = Calls::through(&layer.clone());
    one.call("a").await;
    other.call("b?429&retry-after=5").await;
    one.call("c").await;
    one.remote.until_ms(60_000).await;
    one.remote.assert_arrived(&[("a", 0), ("c", 6_000)]);
    other.remote.assert_arrived(&[("b", 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_key_may_be_borrowed_or_owned() {
    let layer = || OutboundLayer::new(limiter("leaky-bucket 1/s queue 10"));
    for layer in [
        layer().by(|head| head.uri().path().into()),
        layer().by(|head| Key::secret(head.uri().path())),
        layer().by(|head| Key::from(head.uri().path()).and(head.method().as_str())),
    ] {
        let calls = Calls::through(&layer);
        calls.call("a").await;
        calls.call("a").await;
        calls.call("b").await;
        calls.remote.until_ms(60_000).await;
        calls
            .remote
            .assert_arrived(&[("a", 0), ("b", 0), ("a", 1_000)]);
        let shown = format!("{layer:?}{:?}", calls.client.get_ref().arrived().len());
        assert!(!shown.contains("\"a\""), "{shown}");
    }
}
