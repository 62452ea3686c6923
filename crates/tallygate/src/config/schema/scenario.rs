//! The fields of a scenario of `tallygate simulate`.

use schemars::JsonSchema;

use super::{
    Bool, Context, Field, FromNode, Integer, Lease, OnFailure, OneOrMany, RefusalCache, Shorthand,
    Spanned, Text,
};

pub(in crate::config) type ScenarioLimit = Shorthand<Spanned<Text>, LimitOptions>;
pub(in crate::config) type Traffic = Shorthand<Spanned<Text>, StreamOptions>;

words! {

/// What requests are counted by.
CountedBy { "key" => Key, "all" => All }

/// A fix that is switched off.
Defect {
    "overload-is-failure" => OverloadIsFailure,
    "one-breaker" => OneBreaker,
    "forgotten-refusals" => ForgottenRefusals
}

}

mappings! {

/// A fleet, its traffic and what goes wrong.
ScenarioFile = "a scenario" {
    /// What it shows.
    title: Option<Spanned<Text>>,
    /// The seed of all random numbers. 1 by default.
    seed: Option<Spanned<Integer>>,
    /// How long requests arrive: at most `1h`. `10s` by default.
    duration: Option<Spanned<Text>>,
    /// The number of processes: 1 to 1000. 1 by default.
    nodes: Option<Spanned<Integer>>,
    /// The number of servers, each with a part of the keys: 1 to 100. 1 by default.
    shards: Option<Spanned<Integer>>,
    /// The limits of every request.
    limits: Spanned<OneOrMany<ScenarioLimit>>,
    /// What is decided when servers fail, as in a rules file. `local` by default.
    on_failure: Option<Spanned<OnFailure>>,
    /// The cache of exhausted counters, as in a rules file. On by default.
    refusal_cache: Option<Spanned<RefusalCache>>,
    /// Whether requests that wait together travel together. True by default.
    batching: Option<Spanned<Bool>>,
    /// The requests: a rate such as `1000/s`, or a mapping, or several.
    traffic: Spanned<OneOrMany<Traffic>>,
    /// The network between processes and servers.
    network: Option<Spanned<NetworkOptions>>,
    /// The clocks of the processes.
    clocks: Option<Spanned<ClockOptions>>,
    /// The time that a server works.
    service: Option<Spanned<ServiceOptions>>,
    /// What goes wrong.
    faults: Option<Spanned<OneOrMany<FaultOptions>>>,
    /// Fixes that are switched off, to see what they are worth.
    defects: Option<Spanned<OneOrMany<Defect>>>,
    /// Bounds on the results, such as `admitted <= 1.25x`.
    bounds: Option<Spanned<OneOrMany<Text>>>,
}

/// A limit of every request.
LimitOptions = "a limit" {
    /// The quota, such as `100/min`.
    quota: Spanned<Text>,
    /// How bounds name it. `limit1`, `limit2` and so on by default.
    name: Option<Spanned<Text>>,
    /// `key` (the default): each key has a counter. `all`: all requests share one.
    by: Option<Spanned<CountedBy>>,
    /// Whether processes take units ahead, as in a rules file. False by default.
    lease: Option<Spanned<Lease>>,
}

/// Requests at random times, with keys of skewed popularity.
StreamOptions = "a stream of traffic" {
    /// The mean rate of all processes together, such as `1000/s`.
    rate: Spanned<Text>,
    /// The number of keys: 1 to 10000000. 1000 by default.
    keys: Option<Spanned<Integer>>,
    /// The number of the most popular key; the others follow. 1 by default.
    first_key: Option<Spanned<Integer>>,
    /// How skewed their popularity is: the k-th is asked for `1/k^skew` as often as the first.
    /// 0 (all the same) to 5. 1 by default.
    skew: Option<Spanned<Text>>,
    /// The units that each request asks for. 1 by default.
    cost: Option<Spanned<Integer>>,
    /// When it begins. At the start by default.
    from: Option<Spanned<Text>>,
    /// When it ends. At the end by default.
    until: Option<Spanned<Text>>,
}

/// The network between processes and servers.
NetworkOptions = "`network`" {
    /// The least delay of a message in one direction: at most `10s`. `200us` by default.
    delay: Option<Spanned<Text>>,
    /// The mean of a random delay in addition: at most `10s`. `50us` by default.
    jitter: Option<Spanned<Text>>,
    /// The share of messages that never arrive: 0 to 1. 0 by default.
    loss: Option<Spanned<Text>>,
}

/// The clocks of the processes.
ClockOptions = "`clocks`" {
    /// How much faster or slower than the servers' each may run, in millionths: at most 100000.
    /// 0 by default.
    drift_ppm: Option<Spanned<Integer>>,
}

/// The time that a server works.
ServiceOptions = "`service`" {
    /// For a script call: at most `1s`. `10us` by default.
    call: Option<Spanned<Text>>,
    /// For each counter of it: at most `1s`. `2us` by default.
    counter: Option<Spanned<Text>>,
}

/// Something that goes wrong: exactly one of `kill`, `stop`, `dead`, `silent` and `fail_over`.
FaultOptions = "a fault" {
    /// When it begins.
    at: Spanned<Text>,
    /// How long it lasts. Of `fail_over`: how long writes take to reach the replica. `1s` by default.
    r#for: Option<Spanned<Text>>,
    /// So many processes end at once. Others take their places afterwards.
    kill: Option<Spanned<Integer>>,
    /// So many processes are asked to end, and return what they have leased.
    stop: Option<Spanned<Integer>>,
    /// The shard with this number, from 1 on, refuses connections.
    dead: Option<Spanned<Integer>>,
    /// The shard with this number does not reply.
    silent: Option<Spanned<Integer>>,
    /// A replica takes the place of the shard with this number.
    fail_over: Option<Spanned<Integer>>,
}

}
