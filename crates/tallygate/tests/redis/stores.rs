//! The conformance suite on every topology, in single calls and in batches.

use std::sync::{Arc, Mutex};

use tallygate::{Decision, Key, Limit, RedisStore, RedisStoreBuilder, Request, Verb};
use tallygate_testkit::redis::{
    ClientCertificate, Cluster, Flavour, Sentinel, Server, TlsServer, User,
};

use crate::conformance::oracle::{Oracle, difference};
use crate::conformance::{self, TestStore, UndoStore};
use crate::fixtures::{HEALTHY, LONG_DEADLINE, block_on, builder, connected};

/// A store with supplied times.
struct Supplied {
    store: RedisStore,
    slots: Slots,
}

/// Whether the counters of one request share a slot.
#[derive(Clone, Copy, Default, PartialEq)]
enum Slots {
    #[default]
    One,
    Many,
}

impl TestStore for Supplied {
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision {
        block_on(self.store.decide_at(request, now_us)).unwrap()
    }

    fn rolls_back(&self) -> bool {
        self.slots == Slots::Many
    }

    fn steps(&self) -> usize {
        300
    }
}

impl UndoStore for Supplied {
    fn undo(&mut self, request: &Request<'_>, decision: &Decision, now_us: u64) {
        block_on(self.store.undo_at(request, decision, now_us)).unwrap();
    }
}

/// Runs the whole suite, each trace in its own namespace.
fn conforms(builder: impl Fn() -> RedisStoreBuilder) {
    conforms_over(Slots::One, builder);
}

fn conforms_over(slots: Slots, builder: impl Fn() -> RedisStoreBuilder) {
    let fresh = || Supplied {
        store: connected(builder()),
        slots,
    };
    conformance::golden_traces_are_decided_exactly(fresh);
    conformance::random_traces_are_decided_exactly(fresh);
    conformance::clock_steps_back_are_decided_exactly(fresh);
    conformance::extreme_times_are_decided_exactly(fresh);
    conformance::undone_decisions_restore_the_counters(fresh);
    batches_are_decided_exactly(&connected(builder()), slots);
}

/// One recorded step of a trace.
struct Step {
    entries: Vec<(Key<'static>, Limit, u32)>,
    verb: Verb,
    now_us: u64,
    expected: tallygate_core::Decision,
}

/// Records a trace, deciding as the oracle does.
#[derive(Clone, Default)]
struct Recorder {
    trace: Arc<Mutex<(Oracle, Vec<Step>)>>,
    slots: Slots,
}

impl TestStore for Recorder {
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision {
        let (oracle, steps) = &mut *self.trace.lock().unwrap();
        let expected = oracle.decide(request, now_us);
        let entries = request.entries().iter();
        steps.push(Step {
            entries: entries
                .map(|entry| {
                    let key = entry.key.clone().into_owned();
                    (key, entry.limit.clone(), entry.cost())
                })
                .collect(),
            verb: request.requested_verb(),
            now_us,
            expected: expected.clone(),
        });
        Decision::from(expected.verdicts().to_vec())
    }

    fn rolls_back(&self) -> bool {
        self.slots == Slots::Many
    }

    fn steps(&self) -> usize {
        600
    }
}

fn batches_are_decided_exactly(store: &RedisStore, slots: Slots) {
    let traces = Mutex::new(Vec::new());
    conformance::clock_steps_back_are_decided_exactly(|| {
        let recorder = Recorder {
            slots,
            ..Recorder::default()
        };
        traces.lock().unwrap().push(recorder.clone());
        recorder
    });
    for trace in traces.into_inner().unwrap() {
        let (_, steps) = &*trace.trace.lock().unwrap();
        block_on(store.clear()).unwrap();
        let requests: Vec<(Request<'_>, u64)> = steps.iter().map(request).collect();
        for (part, steps) in requests.chunks(100).zip(steps.chunks(100)) {
            let actual = block_on(store.decide_many_at(part)).unwrap();
            for (actual, step) in actual.iter().zip(steps) {
                let difference = difference(actual, &step.expected);
                assert_eq!(difference, None, "at {}", step.now_us);
            }
        }
    }
}

fn request(step: &Step) -> (Request<'_>, u64) {
    let (key, limit, cost) = &step.entries[0];
    let mut request = Request::new(key, limit).cost(*cost);
    for (key, limit, cost) in &step.entries[1..] {
        request = request.and_cost(key, limit, *cost).unwrap();
    }
    (request.verb(step.verb), step.now_us)
}

#[test]
fn redis_conforms() {
    conforms(|| builder(&HEALTHY.url()));
}

#[test]
fn redis_over_a_socket_conforms() {
    conforms(|| builder(&HEALTHY.unix_url()).batching(false));
}

#[test]
fn valkey_conforms() {
    let server = Server::start_as(Flavour::Valkey, &["--requirepass", "secret"]);
    conforms(|| builder(&format!("{}/3", server.url())));
}

#[test]
fn sentinel_conforms() {
    let group = Sentinel::start();
    conforms(|| builder(&group.url()));
}

#[test]
fn a_cluster_conforms_across_slots() {
    // The traces use several keys per request: their counters are on different servers.
    let cluster = Cluster::start();
    conforms_over(Slots::Many, || builder(&cluster.url()));
}

#[test]
fn tls_with_a_limited_user_conforms() {
    let tls = TlsServer::start(ClientCertificate::NotRequested);
    let ca = std::fs::read(tls.certificates().authority()).unwrap();
    conforms(|| builder(&tls.url(User::Limited)).root_certificate(ca.clone()));
}

#[test]
fn tls_with_a_client_certificate_conforms_for_a_limited_user() {
    let tls = TlsServer::start(ClientCertificate::Required);
    let certificates = tls.certificates();
    let read = |path| std::fs::read(path).unwrap();
    let (ca, client) = (read(certificates.authority()), certificates.client());
    let store = connected(
        builder(&tls.url(User::Limited))
            .root_certificate(ca)
            .client_certificate(read(client.certificate), read(client.key)),
    );
    crate::fixtures::limits_are_exact(&store);
    block_on(store.clear()).unwrap();
}

#[test]
fn sentinel_and_cluster_work_with_a_limited_user() {
    let group = Sentinel::start();
    let cluster = Cluster::start();
    let user = User::Limited;
    for server in group.nodes().iter().chain(cluster.nodes()) {
        server.add_user(user);
    }
    let account = format!("//{}:{}@", user.name(), user.password());
    for url in [group.url(), cluster.url()] {
        let store =
            connected(builder(&url.replace("//", &account)).response_timeout(LONG_DEADLINE));
        crate::fixtures::limits_are_exact(&store);
        block_on(store.clear()).unwrap();
    }
}
