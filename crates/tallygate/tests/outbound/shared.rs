//! Two independent clients share one limit through Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, Response};
use tallygate::outbound::OutboundLayer;
use tallygate::{Limiter, OnFailure, Quota, RedisStore};
use tallygate_testkit::redis::Server;
use tower::{Layer, ServiceExt, service_fn};

#[tokio::test(flavor = "multi_thread")]
async fn layers_over_one_redis_share_a_limit() {
    let redis = Server::start();
    let arrivals = Arc::new(std::sync::Mutex::new(Vec::new()));
    let quota: Quota = "leaky-bucket 50/s queue 100".parse().unwrap();
    let mut calls = Vec::new();
    let start = Instant::now();
    for _ in 0..2 {
        let store = RedisStore::builder(&redis.url())
            .response_timeout(Duration::from_secs(10))
            .connect()
            .await
            .unwrap();
        let limiter = Limiter::with_store(store, quota)
            .deadline(Duration::from_secs(10))
            .on_failure(OnFailure::Closed);
        let layer = OutboundLayer::new(limiter).max_wait(Duration::from_secs(60));
        for _ in 0..10 {
            let arrivals = Arc::clone(&arrivals);
            let client = layer.layer(service_fn(move |_: Request<()>| {
                arrivals.lock().unwrap().push(start.elapsed());
                async { Ok::<_, std::convert::Infallible>(Response::new(())) }
            }));
            calls.push(tokio::spawn(client.oneshot(Request::new(()))));
        }
    }
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len(), 20);
    for (n, at) in arrivals.iter().enumerate() {
        // A millisecond each for two clocks.
        let due = Duration::from_millis(19) * u32::try_from(n).unwrap();
        assert!(*at >= due, "{n}: {arrivals:?}");
    }
}
