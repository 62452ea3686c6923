//! Concurrency limits, shares and reservations through the layer.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::task::Poll;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tallygate::Quota;
use tallygate::http::{ActualSource, Holds};
use tallygate::rules::{Rule, Rules, Share};
use tallygate::tower::RateLimitLayer;
use tower::{Layer, Service, service_fn};

fn free(layer: &RateLimitLayer) -> u32 {
    let limit = Rules::limits(layer.policy()).next().unwrap().clone();
    let limiter = layer.engine().limiter(limit);
    limiter.peek("all", 0).remaining()
}

fn two_at_once() -> Rule {
    Rule::new("all", "concurrent 2 for 1h".parse::<Quota>().unwrap())
}

#[tokio::test]
async fn a_unit_is_held_until_the_body_has_ended_or_is_dropped() {
    let layer = RateLimitLayer::new(two_at_once());
    let hello = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(axum::body::Body::from("hello")))
    });
    let mut service = layer.layer(hello);
    let one = service.call(Request::new(())).await.unwrap();
    let two = service.call(Request::new(())).await.unwrap();
    let refused = service.call(Request::new(())).await.unwrap();
    assert_eq!((refused.status().as_u16(), free(&layer)), (429, 0));
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(one.into_body().collect().await.unwrap().to_bytes(), "hello");
    assert_eq!(free(&layer), 1);
    drop(two);
    assert_eq!(free(&layer), 2);
}

#[tokio::test]
async fn a_cancelled_call_and_one_that_fails_release() {
    let layer = RateLimitLayer::new(two_at_once());
    let never = service_fn(|_: Request<()>| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let mut call = Box::pin(layer.layer(never).call(Request::new(())));
    poll_fn(|context| {
        assert!(call.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    assert_eq!(free(&layer), 1);
    drop(call);
    assert_eq!(free(&layer), 2);
    let fails = service_fn(|_: Request<()>| async {
        Err::<Response<Full<Bytes>>, _>(std::io::Error::other("broken"))
    });
    assert!(layer.layer(fails).call(Request::new(())).await.is_err());
    assert_eq!(free(&layer), 2);
}

#[tokio::test]
async fn a_service_keeps_what_its_request_holds_beyond_the_response() {
    let layer = RateLimitLayer::new(two_at_once());
    let (send, kept) = std::sync::mpsc::channel();
    let upgrade = service_fn(move |request: Request<()>| {
        send.send(request.extensions().get::<Holds>().cloned())
            .unwrap();
        async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))) }
    });
    drop(layer.layer(upgrade).call(Request::new(())).await.unwrap());
    assert_eq!(free(&layer), 1);
    drop(kept.recv().unwrap().unwrap());
    assert_eq!(free(&layer), 2);
}

#[tokio::test]
async fn a_greedy_member_leaves_the_others_their_part() {
    let quota: Quota = "token-bucket 1/h burst 100 shared".parse().unwrap();
    let rule = Rule::new("api", quota).share(Share::by_header("x-tenant"));
    let layer = RateLimitLayer::new(rule);
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
    }));
    let status = |tenant: &'static str| {
        let mut service = service.clone();
        let request = Request::builder().header("x-tenant", tenant);
        async move {
            let response = service.call(request.body(()).unwrap()).await;
            response.unwrap().status().as_u16()
        }
    };
    assert_eq!(status("light").await, 200);
    let mut greedy = 0;
    while status("greedy").await == 200 {
        greedy += 1;
    }
    assert!((40..99).contains(&greedy), "{greedy} of 100");
    assert_eq!(status("light").await, 200);
}

#[tokio::test]
async fn no_reservation_is_left_when_a_response_breaks_off() {
    let quota: Quota = "fixed-window 1000/366d".parse().unwrap();
    let json = ActualSource::Json("n".parse().unwrap());
    let rule = Rule::new("tokens", quota).cost(|_| 10).actual_cost([json]);
    let layer = RateLimitLayer::new(rule);
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(axum::body::Body::from(r#"{"n":3}"#)))
    }));
    let live = || layer.engine().store().live_keys();
    for to_the_end in [true, false] {
        let response = service.clone().call(Request::new(())).await.unwrap();
        assert_eq!(live(), 2, "the counter and the reservation");
        match to_the_end {
            true => drop(response.into_body().collect().await.unwrap()),
            false => drop(response),
        }
        assert_eq!(live(), 1, "the counter");
    }
    assert_eq!(free(&layer), 1_000 - 3 - 10);
}
