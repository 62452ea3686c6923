//! Rules that are built in Rust, and the plans and traces they produce.
#![allow(clippy::unwrap_used)]

mod counters;
mod evaluation;
mod keys;
mod lists;
mod shares;
mod spellings;
mod swap;
mod tiers;
mod validation;

use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Request};
use tallygate::http::{Head, Peer, Plan, Policy};
use tallygate::rules::{
    KeyText, ListEntry, Matcher, Part, Quotas, Rule, RuleLimits, RuleSet, Rules, Source,
};
use tallygate::{Decision, Key, Limiter, ManualClock, MemoryStore, Quota};

/// A rule that matches every request, without a key, of 10 per minute.
fn rule(name: &str) -> Rule {
    Rule::with_limits(name.parse().unwrap(), same_limits(&["10/min"]))
}

fn quotas(texts: &[&str]) -> Quotas {
    let quota = |text: &&str| (None, text.parse::<Quota>().unwrap());
    Quotas::new(texts.iter().map(quota).collect()).unwrap()
}

fn same_limits(texts: &[&str]) -> RuleLimits {
    RuleLimits::Same(quotas(texts))
}

fn path_matcher(path: &str) -> Matcher {
    Matcher {
        paths: vec![path.parse().unwrap()],
        ..Matcher::default()
    }
}

fn header(name: &str) -> Source {
    Source::Header(name.parse().unwrap())
}

fn key_by(source: Source) -> Vec<Part> {
    vec![Part::new(source)]
}

fn key(texts: &[&str]) -> ListEntry {
    ListEntry::Key(KeyText::new(texts.iter().copied()))
}

fn network(text: &str) -> ListEntry {
    ListEntry::Network(text.parse().unwrap())
}

fn rule_set(rules: Vec<Rule>) -> RuleSet {
    RuleSet {
        rules,
        ..RuleSet::default()
    }
}

fn rules(list: Vec<Rule>) -> Rules {
    Rules::new(rule_set(list)).unwrap()
}

/// A request from 203.0.113.7, from text such as `POST /login`.
fn parse_request(line: &str) -> Request<()> {
    let (method, uri) = line.split_once(' ').unwrap();
    let request = Request::builder().method(method).uri(uri);
    from("203.0.113.7", request.body(()).unwrap())
}

fn from(ip: &str, mut request: Request<()>) -> Request<()> {
    let ip: IpAddr = ip.parse().unwrap();
    request
        .extensions_mut()
        .insert(Peer(SocketAddr::new(ip, 40_000)));
    request
}

/// Adds a header to a request.
fn with(name: &'static str, value: impl AsRef<[u8]>, mut request: Request<()>) -> Request<()> {
    let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
    request.headers_mut().append(name, value);
    request
}

/// The plan, after comparing it with that of the trace.
fn plan(rules: &Rules, request: &Request<()>) -> Plan {
    let head = Head::from(request);
    let plan = rules.plan(&head);
    let trace = rules.trace(&head);
    // Keys print as fingerprints.
    assert_eq!(format!("{plan:?}"), format!("{:?}", trace.plan()));
    plan
}

/// The names of the rules that apply to a request, in order.
fn applied_rules(rules: &Rules, request: &Request<()>) -> Vec<String> {
    let plan = plan(rules, request);
    let names = plan
        .charges()
        .iter()
        .map(|charge| charge.settings.name.to_string());
    names.collect()
}

/// The key of the only rule that applies.
fn only_key(rules: &Rules, request: &Request<()>) -> Key<'static> {
    let plan = plan(rules, request);
    let [charge] = plan.charges() else {
        panic!("{} rules apply", plan.charges().len())
    };
    charge.key.clone()
}

/// The key of a request by a single rule with these parts.
fn key_of(parts: Vec<Part>, request: &Request<()>) -> Key<'static> {
    let mut rule = rule("only");
    rule.key = parts;
    only_key(&rules(vec![rule]), request)
}

type Counters = Limiter<MemoryStore<ManualClock>>;

/// Counters with a manual clock, so that none expires.
fn counters() -> Counters {
    let clock = ManualClock::at(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(clock).build();
    Limiter::with_store(store, Quota::per_second(1))
}

/// Decides a plan in one step, as the executor does.
fn decide(limiter: &Counters, plan: &Plan) -> Decision {
    let mut entries = plan.charges().iter().flat_map(|charge| {
        let key = &charge.key;
        charge.limits.iter().map(move |limit| (key, limit))
    });
    let (key, limit) = entries.next().expect("a rule applies");
    let request = tallygate::Request::new(key, limit);
    let request = entries.try_fold(request, |request, (key, limit)| request.and(key, limit));
    limiter.decide_now(&request.expect("no counter occurs twice"))
}
