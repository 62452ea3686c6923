//! A gRPC service behind the layer: refused calls get RESOURCE_EXHAUSTED with `RetryInfo`.
//!
//! `cargo run -p tallygate --features tonic --example tonic_health`

use std::error::Error;

use tallygate::Quota;
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

#[expect(clippy::print_stdout, reason = "an example prints its result")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let per_method = Rule::new("grpc", "token-bucket 1/s burst 2".parse::<Quota>()?)
        .by_ip()
        .by(|head| Some(head.uri().path().to_owned()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .layer(RateLimitLayer::new(per_method))
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    let mut client = HealthClient::new(channel);
    for _ in 0..4 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(_) => println!("answered"),
            Err(status) => {
                let retry = status
                    .get_details_retry_info()
                    .and_then(|info| info.retry_delay);
                println!(
                    "{:?}: {}; RetryInfo: {retry:?}",
                    status.code(),
                    status.message()
                );
            }
        }
    }
    Ok(())
}
