//! Several gateways over one Redis: shares of their members, and what their requests hold.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tallygate::rules::Share;
use tallygate::store::CounterState;
use tallygate::{Engine, Key, Limit, OnFailure, RedisStore, Weight};
use tallygate_testkit::redis::Server;
use tokio::sync::broadcast;

use super::*;

static REDIS: LazyLock<Server> = LazyLock::new(Server::start);

/// The counters of a test.
struct Counters {
    namespace: String,
    store: RedisStore,
    limit: Limit,
}

impl Counters {
    async fn new(quota: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let namespace = format!("gateway{}", NEXT.fetch_add(1, Relaxed));
        let store = connect(&namespace).await;
        let layer = RateLimitLayer::with_store(store.clone(), rule(quota));
        let limit = layer.policy().limits().next().unwrap().clone();
        Counters {
            namespace,
            store,
            limit,
        }
    }

    /// A gateway with its own connections.
    async fn gateway(&self, upstream: SocketAddr, rule: Rule) -> Running {
        let store = connect(&self.namespace).await;
        let engine = Engine::new(store).deadline(TIMEOUT);
        let layer = RateLimitLayer::with_engine(engine, Rules::default().with_rule(rule));
        Running::start(proxy_to(upstream), layer).await
    }

    async fn state(&self) -> CounterState {
        let key = Key::from("all");
        self.store.inspect(&key, &self.limit).await.unwrap().state
    }

    /// The units that are held.
    async fn held(&self) -> u32 {
        match self.state().await {
            CounterState::Holds { holds } => holds.iter().map(|hold| hold.units).sum(),
            other => panic!("{other:?}"),
        }
    }

    async fn until_held(&self, units: u32) {
        let wait = async {
            while self.held().await != units {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(TIMEOUT, wait).await;
        waited.unwrap_or_else(|_| panic!("never: {units} units held"));
    }
}

async fn connect(namespace: &str) -> RedisStore {
    let builder = RedisStore::builder(&REDIS.url()).namespace(namespace);
    let store = builder.response_timeout(TIMEOUT).open().unwrap();
    store.check().await.unwrap();
    store
}

fn rule(quota: &str) -> Rule {
    let rule = Rule::new("limited", quota.parse::<Quota>().unwrap());
    rule.on_failure(OnFailure::Closed)
}

/// Whether a member's request is admitted.
async fn admits(gateway: &Running, member: &str) -> bool {
    let request = Request::get(gateway.url("/")).header("x-tenant", member);
    let request = request.body(empty()).unwrap();
    let response = http1().request(request).await.unwrap();
    match response.status().as_u16() {
        200 => true,
        429 => false,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_greedy_member_of_a_share_leaves_the_others_theirs_at_every_gateway() {
    const BURST: u32 = 100;
    let quota = "token-bucket 1/h burst 100 shared 4";
    let counters = Counters::new(quota).await;
    let share = || {
        let share = Share::by_header("x-tenant");
        share.weight("heavy", Weight::new(3).unwrap())
    };
    let received = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&received);
    let address = upstream(move |_| {
        count.fetch_add(1, Relaxed);
        async { Response::new(text("hello")) }
    })
    .await;
    let gateways = [
        counters.gateway(address, rule(quota).share(share())).await,
        counters.gateway(address, rule(quota).share(share())).await,
    ];
    let mut admitted = 0;
    for member in ["light", "heavy"] {
        assert!(admits(&gateways[0], member).await);
        admitted += 1;
    }
    // Asks at both gateways until neither admits it.
    let (mut refused, mut asked) = (0, 0);
    while refused < 2 {
        match admits(&gateways[asked % 2], "greedy").await {
            true => (admitted, refused) = (admitted + 1, 0),
            false => refused += 1,
        }
        asked += 1;
    }
    // What it borrowed ends at a reserve; the others still have their own units.
    let members = match counters.state().await {
        CounterState::Shared { members, .. } => members.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(members, 3);
    for gateway in &gateways {
        for member in ["light", "heavy", "light", "heavy", "new"] {
            assert!(admits(gateway, member).await, "{member}");
            admitted += 1;
        }
        assert!(!admits(gateway, "greedy").await);
    }
    // Whoever asks, the burst is all there is.
    for gateway in &gateways {
        for number in 0..60 {
            admitted += u32::from(admits(gateway, &format!("more{number}")).await);
        }
    }
    assert_eq!(admitted, BURST);
    assert_eq!(received.load(Relaxed), BURST);
}

/// Starts a server that streams what is sent to it, to all its clients.
async fn streaming() -> (broadcast::Sender<&'static str>, SocketAddr) {
    let (send, _) = broadcast::channel(16);
    let pieces = send.clone();
    let address = upstream(move |_| {
        let pieces = stream::unfold(pieces.subscribe(), |mut pieces| async move {
            let piece = match pieces.recv().await {
                Ok("end") | Err(_) => return None,
                Ok(piece) => piece,
            };
            let frame = Frame::data(Bytes::from_static(piece.as_bytes()));
            Some((Ok(frame), pieces))
        });
        let response = Response::new(BodyExt::boxed(StreamBody::new(pieces)));
        async { response }
    })
    .await;
    (send, address)
}

type Pooled = Client<HttpConnector, TestBody>;

async fn open(gateway: &Running) -> (Pooled, Response<Incoming>) {
    let request = Request::get(gateway.url("/")).body(empty()).unwrap();
    let client = http1();
    let response = client.request(request).await.unwrap();
    (client, response)
}

#[tokio::test]
async fn a_stream_holds_a_unit_of_all_gateways_to_its_end_or_until_its_client_is_gone() {
    let quota = "concurrent 2 for 1h";
    let counters = Counters::new(quota).await;
    let (send, address) = streaming().await;
    let gateways = [
        counters.gateway(address, rule(quota)).await,
        counters.gateway(address, rule(quota)).await,
    ];
    let (_client, mut to_the_end) = open(&gateways[0]).await;
    let (client, mut abandoned) = open(&gateways[1]).await;
    send.send("a").unwrap();
    for response in [&mut to_the_end, &mut abandoned] {
        let frame = response.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "a");
    }
    assert_eq!(counters.held().await, 2);
    for gateway in &gateways {
        let (_client, refused) = open(gateway).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "1");
    }
    drop((client, abandoned));
    counters.until_held(1).await;
    // Its unit is free at the other gateway too.
    let (_another_client, another) = open(&gateways[0]).await;
    assert_eq!(another.status(), 200);
    assert_eq!(counters.held().await, 2);
    send.send("end").unwrap();
    assert!(to_the_end.frame().await.is_none());
    assert!(another.into_body().frame().await.is_none());
    counters.until_held(0).await;
}

#[tokio::test]
async fn a_stream_renews_what_it_holds_in_redis() {
    let quota = "concurrent 1 for 2s";
    let counters = Counters::new(quota).await;
    let (send, address) = streaming().await;
    let gateway = counters.gateway(address, rule(quota)).await;
    let (_client, mut response) = open(&gateway).await;
    let end = |state: CounterState| match state {
        CounterState::Holds { holds } => holds[0].until_us,
        other => panic!("{other:?}"),
    };
    let first = end(counters.state().await);
    // Later than the first hold's end: it was renewed, and never lapsed meanwhile.
    let renewed = async {
        while end(counters.state().await) < first + 2_500_000 {
            send.send("tick").unwrap();
            response.frame().await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let renewed = tokio::time::timeout(TIMEOUT, renewed).await;
    renewed.expect("it is renewed");
    send.send("end").unwrap();
    assert!(response.frame().await.is_none());
    counters.until_held(0).await;
}

#[tokio::test]
async fn requests_that_are_cut_off_release_in_redis() {
    let quota = "concurrent 1 for 1h";
    let counters = Counters::new(quota).await;
    // Ends each response in the middle.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal";
            stream.write_all(cut).await.unwrap();
        }
    });
    let gateway = counters.gateway(address, rule(quota)).await;
    for _ in 0..3 {
        let answer = gateway.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        counters.until_held(0).await;
    }
    // A client that resets its stream while the upstream has not answered.
    let (_send, address) = streaming().await;
    let gateway = counters.gateway(address, rule(quota)).await;
    let (mut sender, connection) = gateway.connect_http2().await;
    let request = Request::get(gateway.url("/")).body(empty()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    counters.until_held(1).await;
    drop(response);
    counters.until_held(0).await;
    connection.abort();
}
