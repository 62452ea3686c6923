//! The conformance suite on every topology, call by call and in batches.

use std::sync::{Arc, Mutex};

use tallygate::{Decision, Key, Limit, RedisStore, RedisStoreBuilder, Request, Verb};
use tallygate_testkit::redis::{
    ClientCertificate, Cluster, Flavour, Sentinel, Server, TlsServer, User,
};

use crate::conformance::oracle::{Oracle, difference};
use crate::conformance::{self, Decides, Undoes};
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

impl Decides for Supplied {
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision {
        block_on(self.store.decide_at(request, now_us)).unwrap()
    }

    fn gives_back(&self) -> bool {
        self.slots == Slots::Many
    }

    fn steps(&self) -> usize {
        300
    }
}

impl Undoes for Supplied {
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
    conformance::golden_traces_are_answered_exactly(fresh);
    conformance::random_traces_are_answered_exactly(fresh);
    conformance::steps_back_are_answered_exactly(fresh);
    conformance::the_ends_of_time_are_answered_exactly(fresh);
    conformance::undone_decisions_leave_what_they_should(fresh);
    batches_are_decided_exactly(&connected(builder()), slots);
}

/// One recorded step of a trace.
struct Step {
    asked: Vec<(Key<'static>, Limit, u32)>,
    verb: Verb,
    now_us: u64,
    right: tallygate_core::Decision,
}

/// Records a trace, deciding as the oracle does.
#[derive(Clone, Default)]
struct Recorder {
    trace: Arc<Mutex<(Oracle, Vec<Step>)>>,
    slots: Slots,
}

impl Decides for Recorder {
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision {
        let (oracle, steps) = &mut *self.trace.lock().unwrap();
        let right = oracle.decide(request, now_us);
        let asked = request.entries().iter();
        steps.push(Step {
            asked: asked
                .map(|asked| {
                    let key = asked.key.clone().into_owned();
                    (key, asked.limit.clone(), asked.cost())
                })
                .collect(),
            verb: request.requested_verb(),
            now_us,
            right: right.clone(),
        });
        Decision::from(right.verdicts().to_vec())
    }

    fn gives_back(&self) -> bool {
        self.slots == Slots::Many
    }

    fn steps(&self) -> usize {
        600
    }
}

fn batches_are_decided_exactly(store: &RedisStore, slots: Slots) {
    let traces = Mutex::new(Vec::new());
    conformance::steps_back_are_answered_exactly(|| {
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
            let given = block_on(store.decide_many_at(part)).unwrap();
            for (given, step) in given.iter().zip(steps) {
                let difference = difference(given, &step.right);
                assert_eq!(difference, None, "at {}", step.now_us);
            }
        }
    }
}

fn request(step: &Step) -> (Request<'_>, u64) {
    let (key, limit, cost) = &step.asked[0];
    let mut request = Request::new(key, limit).cost(*cost);
    for (key, limit, cost) in &step.asked[1..] {
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
