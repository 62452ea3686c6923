//! The conformance suite on every topology, in single calls and in batches.

use std::sync::{Arc, Mutex};

use tallygate::store::RedisStoreBuilder;
use tallygate::{
    Decision, Key, Limit, Member, MemoryStore, RedisStore, Request, RequestEntry, Verb,
};
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
    conformance::golden_traces_of_callers_are_decided_exactly(fresh);
    conformance::random_traces_of_callers_are_decided_exactly(fresh);
    conformance::clock_steps_back_for_callers_are_decided_exactly(fresh);
    conformance::undone_decisions_restore_the_counters(fresh);
    conformance::an_undo_reaches_the_newest_256_entries_of_a_log(fresh);
    batches_are_decided_exactly(&connected(builder()), slots);
}

/// One recorded step of a trace.
struct Step {
    entries: Vec<(Key<'static>, Limit, u32, Option<Member<'static>>)>,
    owner: Option<Key<'static>>,
    id: Option<Key<'static>>,
    verb: Verb,
    now_us: u64,
    expected: tallygate_core::Decision,
}

/// Records a trace, deciding as the oracle does.
#[derive(Clone)]
struct Recorder {
    trace: Arc<Mutex<(Oracle, Vec<Step>)>>,
    decider: Arc<MemoryStore>,
    slots: Slots,
}

impl Recorder {
    fn new(slots: Slots) -> Self {
        Recorder {
            trace: Arc::default(),
            decider: Arc::new(MemoryStore::builder().capacity(1_000).build()),
            slots,
        }
    }
}

impl TestStore for Recorder {
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision {
        let (oracle, steps) = &mut *self.trace.lock().unwrap();
        let expected = oracle.decide(request, now_us);
        let entries = request.entries().iter();
        let owned = |key: &Key<'_>| key.clone().into_owned();
        steps.push(Step {
            entries: entries
                .map(|entry| {
                    let member = request.member_of(entry).map(|member| {
                        let copy = Member::new(owned(member.name())).weight(member.own_weight());
                        match member.is_pinned() {
                            true => copy.pinned(),
                            false => copy,
                        }
                    });
                    (owned(&entry.key), entry.limit.clone(), entry.cost(), member)
                })
                .collect(),
            owner: request.requested_owner().map(owned),
            id: request.requested_id().map(owned),
            verb: request.requested_verb(),
            now_us,
            expected,
        });
        self.decider.decide_at(request, now_us)
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
    let record = || {
        let recorder = Recorder::new(slots);
        traces.lock().unwrap().push(recorder.clone());
        recorder
    };
    conformance::clock_steps_back_are_decided_exactly(record);
    conformance::clock_steps_back_for_callers_are_decided_exactly(record);
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
    let mut entries = step.entries.iter().map(|(key, limit, cost, member)| {
        let entry = RequestEntry::new(key, limit).with_cost(*cost);
        match member {
            Some(member) => entry.with_member(member.clone()),
            None => entry,
        }
    });
    let mut request = Request::from_entry(entries.next().unwrap());
    for entry in entries {
        request = request.and_entry(entry).unwrap();
    }
    if let Some(owner) = &step.owner {
        request = request.owner(owner);
    }
    if let Some(id) = &step.id {
        request = request.id(id);
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
fn a_cluster_with_hash_tags_conforms() {
    let cluster = Cluster::start();
    conforms_over(Slots::Many, || builder(&cluster.url()).hash_tags(64));
    // All counters in one slot.
    conforms(|| builder(&cluster.url()).hash_tags(1));
}

#[test]
fn several_connections_conform() {
    conforms(|| builder(&HEALTHY.url()).connections(3));
}

#[test]
fn shards_conform() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let hosts = servers
        .each_ref()
        .map(|one| format!("127.0.0.1:{}", one.port()));
    let url = format!("redis+shards://{}", hosts.join(","));
    conforms_over(Slots::Many, || builder(&url));
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
