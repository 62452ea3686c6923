//! Costs in the bodies of requests and responses, through the layer.

use std::convert::Infallible;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full, StreamBody};
use tallygate::http::{ActualSource, Head, Policy, RequestJsonReader};
use tallygate::rules::{Cost, CostSource, Rule, Rules};
use tallygate::tower::{FromBytes, RateLimitBody, RateLimitLayer};
use tallygate::{Limit, Quota};
use tower::{Layer, Service, ServiceExt, service_fn};

const LIMIT: u32 = 100_000;

fn rule() -> Rule {
    let quota: Quota = format!("fixed-window {LIMIT}/366d").parse().unwrap();
    Rule::new("tokens", quota)
}

fn settled() -> Rule {
    let json = ActualSource::Json("usage.total_tokens".parse().unwrap());
    rule().cost(|_| 1_000).actual_cost([json])
}

fn left(layer: &RateLimitLayer) -> u32 {
    let limit: Limit = Rules::limits(layer.policy()).next().unwrap().clone();
    layer.engine().limiter(limit).peek("all", 1).remaining()
}

const ANSWER: &str = r#"{"text":"hi","usage":{"total_tokens":812}}"#;

/// What a response of type `B` cost in the end, if it is read to its end or not.
async fn settles<B>(to_the_end: bool) -> u32
where
    B: Body<Data = Bytes> + FromBytes + Send + 'static,
    B::Error: std::fmt::Debug,
{
    let layer = RateLimitLayer::new(settled());
    let inner = service_fn(|request: Request<()>| async move {
        assert_eq!(request.headers()["accept-encoding"], "identity");
        Ok::<_, Infallible>(Response::new(B::from_bytes(Bytes::from_static(
            ANSWER.as_bytes(),
        ))))
    });
    let mut service = layer.layer(inner);
    let response: Response<B> = service.call(Request::new(())).await.unwrap();
    if to_the_end {
        let body = response.into_body();
        assert_eq!(body.size_hint().exact(), Some(ANSWER.len() as u64));
        assert_eq!(body.collect().await.unwrap().to_bytes(), ANSWER);
    }
    LIMIT - left(&layer)
}

#[tokio::test]
async fn the_actual_cost_is_charged_at_the_end_of_any_body() {
    assert_eq!(settles::<Full<Bytes>>(true).await, 812);
    assert_eq!(settles::<BoxBody<Bytes, std::io::Error>>(true).await, 812);
    assert_eq!(
        settles::<UnsyncBoxBody<Bytes, std::io::Error>>(true).await,
        812
    );
    assert_eq!(settles::<axum::body::Body>(true).await, 812);
    assert_eq!(settles::<tonic::body::Body>(true).await, 812);
    assert_eq!(settles::<RateLimitBody<Full<Bytes>>>(true).await, 812);
    assert_eq!(settles::<axum::body::Body>(false).await, 1_000);
    assert_eq!(settles::<tonic::body::Body>(false).await, 1_000);
}

#[tokio::test]
async fn the_actual_cost_is_charged_of_shaped_requests_too() {
    let queue: Quota = "leaky-bucket 1000000/s queue 1000000".parse().unwrap();
    let layer = RateLimitLayer::new(settled().limit(queue));
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(
            ANSWER.as_bytes(),
        ))))
    });
    let mut service = layer.layer(inner);
    for number in 1..=3 {
        service.call(Request::new(())).await.unwrap();
        assert_eq!(left(&layer), LIMIT - 812 * number);
    }
}

#[tokio::test]
async fn a_wrapped_body_is_seen_too() {
    let layer = RateLimitLayer::new(settled());
    let inner = service_fn(|_: Request<()>| async {
        let body = RateLimitBody::from(Full::new(Bytes::from_static(ANSWER.as_bytes())));
        Ok::<_, Infallible>(Response::new(body))
    });
    let response = layer.layer(inner).call(Request::new(())).await.unwrap();
    assert_eq!(left(&layer), LIMIT - 1_000);
    response.into_body().collect().await.unwrap();
    assert_eq!(left(&layer), LIMIT - 812);
}

#[tokio::test]
async fn a_body_of_known_length_ends_with_its_last_byte() {
    let layer = RateLimitLayer::new(settled());
    let inner = service_fn(|_: Request<()>| async {
        let pieces = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(
            ANSWER.as_bytes(),
        )))];
        let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed();
        let mut response = Response::new(body);
        let length = ANSWER.len().to_string().parse().unwrap();
        response.headers_mut().insert("content-length", length);
        Ok::<_, Infallible>(response)
    });
    let response = layer.layer(inner).call(Request::new(())).await.unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    // A server polls no further.
    drop(body);
    assert_eq!(left(&layer), LIMIT - 812);
}

#[tokio::test]
async fn a_body_that_fails_leaves_the_estimate() {
    let layer = RateLimitLayer::new(settled());
    let inner = service_fn(|_: Request<()>| async {
        let pieces = [
            Ok(Frame::data(Bytes::from_static(ANSWER.as_bytes()))),
            Err(std::io::Error::other("broken")),
        ];
        let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed();
        Ok::<_, Infallible>(Response::new(body))
    });
    let response = layer.layer(inner).call(Request::new(())).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(left(&layer), LIMIT - 1_000);
}

fn by_model() -> Rule {
    let mut rule = rule();
    rule.cost = Cost::FirstOf {
        sources: vec![CostSource::JsonText {
            path: "model".parse().unwrap(),
            costs: vec![
                ("large".parse().unwrap(), 20),
                ("small".parse().unwrap(), 2),
            ],
        }],
        default: 5,
        min: 0,
        max: u32::MAX,
    };
    rule
}

#[tokio::test]
async fn axum_gets_the_body_unchanged() {
    let layer = RateLimitLayer::new(by_model());
    let app: Router = Router::new()
        .route("/", post(|body: Bytes| async move { body }))
        .layer(layer.clone());
    let padding = "x".repeat(3 << 20);
    let mut before = LIMIT;
    for (body, expected) in [
        (r#"{"model":"large"}"#.to_owned(), 20),
        (r#"{"model":"small"}"#.to_owned(), 2),
        (r#"{"model":"other"}"#.to_owned(), 5),
        (format!(r#"{{"model":"large","pad":"{padding}"}}"#), 20),
        (String::new(), 5),
    ] {
        let pieces: Vec<_> = body
            .as_bytes()
            .chunks(100_000)
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let stream = StreamBody::new(futures_util::stream::iter(pieces));
        let request = Request::post("/")
            .body(axum::body::Body::new(stream))
            .unwrap();
        let unlimited = axum::extract::DefaultBodyLimit::disable();
        let app = app.clone().layer(unlimited);
        let response = app.oneshot(request).await.unwrap();
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        assert!(answer == body, "{} bytes of {}", answer.len(), body.len());
        assert_eq!(
            before - left(&layer),
            expected,
            "{}",
            &body[..body.len().min(40)]
        );
        before = left(&layer);
    }
}

#[tokio::test]
async fn bodies_of_other_types_need_the_values_in_an_extension() {
    let layer = RateLimitLayer::new(by_model());
    let mut service = layer.layer(service_fn(|request: Request<String>| async move {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(request.into_body()))))
    }));
    let json = r#"{"model":"large"}"#;
    let unread = Request::new(json.to_owned());
    service.call(unread).await.unwrap();
    assert_eq!(left(&layer), LIMIT - 5);
    let path = "model".parse().unwrap();
    let mut reader = RequestJsonReader::new(&HeaderMap::new(), vec![path]).unwrap();
    reader.read(json.as_bytes());
    let mut read = Request::new(json.to_owned());
    read.extensions_mut().insert(reader.finish());
    service.call(read).await.unwrap();
    assert_eq!(left(&layer), LIMIT - 25);
    // Such as `Full`, which is read without an extension.
    let mut service = layer.layer(service_fn(|request: Request<Full<Bytes>>| async move {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    }));
    let full = Request::new(Full::new(Bytes::from_static(json.as_bytes())));
    let response = service.call(full).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        json
    );
    assert_eq!(left(&layer), LIMIT - 45);
}

#[tokio::test]
async fn only_rules_that_match_read_the_body() {
    let mut other = by_model();
    other.matcher.paths = vec!["/other".parse().unwrap()];
    let rules = Rules::default().with_rule(other);
    let paths = |uri: &str| {
        let request = Request::post(uri).body(()).unwrap();
        Policy::json_paths(&rules, &Head::from(&request)).len()
    };
    assert_eq!((paths("/"), paths("/other")), (0, 1));
}
