//! The layer with reqwest, which has its own request type.

use std::time::Duration;

use http::{Request, Response};
use reqwest::Body;
use tallygate::outbound::OutboundLayer;
use tallygate::{Limiter, Quota};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn reqwest_calls_wait_and_respect_pauses() {
    let server = Server::start(|path| {
        let response = Response::builder();
        let response = match path {
            "/first" => response.status(429).header("ratelimit", "\"a\";r=0;t=1"),
            _ => response,
        };
        response.body(()).unwrap()
    })
    .await;
    let client = reqwest::Client::new();
    let layer = OutboundLayer::new(Limiter::new(Quota::per_second(1_000))).by_host();
    let client =
        ServiceBuilder::new()
            .layer(layer)
            .service(service_fn(move |request: Request<Body>| {
                let client = client.clone();
                async move {
                    let response = client.execute(request.try_into()?).await?;
                    Ok::<_, reqwest::Error>(Response::from(response))
                }
            }));
    for (path, status) in [("/first", 429), ("/later", 200)] {
        let request = Request::get(server.uri(path)).body(Body::from("hello"));
        let response = client.clone().oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), status);
    }
    let arrivals = server.arrivals();
    let paths: Vec<&str> = arrivals.iter().map(|arrival| &*arrival.path).collect();
    assert_eq!(paths, ["/first", "/later"]);
    let apart = arrivals[1].at - arrivals[0].at;
    assert!(apart >= Duration::from_secs(1), "{apart:?}");
}
