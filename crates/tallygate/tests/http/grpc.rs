//! gRPC refusals over a real connection.

use std::net::SocketAddr;
use std::time::Duration;

use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tallygate::{MemoryStore, Quota};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

async fn serve(rule: Rule) -> HealthClient<Channel> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .layer(RateLimitLayer::with_store(MemoryStore::new(), rule))
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy();
    HealthClient::new(channel)
}

async fn send(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.check(HealthCheckRequest::default()).await.map(drop)
}

#[tokio::test]
async fn a_refusal_is_resource_exhausted_with_retry_info() {
    let quota: Quota = "fixed-window 1/d".parse().unwrap();
    let mut client = serve(Rule::new("checks", quota).by_ip()).await;
    send(&mut client).await.unwrap();
    let refused = send(&mut client).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().contains("checks"),
        "{}",
        refused.message()
    );
    let delay = refused
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap();
    assert!(
        delay > Duration::ZERO && delay <= Duration::from_secs(86_400),
        "{delay:?}"
    );
    let retry_after: u64 = refused
        .metadata()
        .get("retry-after")
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        Duration::from_secs(retry_after) >= delay,
        "{retry_after} s is less than {delay:?}"
    );
}

#[tokio::test]
async fn a_cost_above_the_capacity_has_no_retry_info() {
    let mut client = serve(Rule::new("checks", Quota::per_hour(1)).cost(|_| 2)).await;
    let refused = send(&mut client).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.get_details_retry_info().is_none());
}
