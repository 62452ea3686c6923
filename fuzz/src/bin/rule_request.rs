//! Parses any bytes as a request, a target and then header lines, for rules with every source.
//! Checks that plan and trace agree and that no secret is shown.
#![no_main]

use std::net::SocketAddr;
use std::sync::LazyLock;

use http::{HeaderName, HeaderValue, Request, Uri};
use libfuzzer_sys::fuzz_target;
use tallygate::http::{ClientAddress, Head, Peer, Policy};
use tallygate::rules::{
    Cost, KeyText, ListEntry, Missing, Part, Quotas, Rule, RuleLimits, RuleSet, Rules, Source,
};

/// The secret; no other text contains it.
const SECRET: &str = "zq7h4nter2";
/// The header names, selected by the first byte of a line.
const NAMES: [&str; 8] = [
    "x-user",
    "authorization",
    "cookie",
    "x-claims",
    "host",
    "x-forwarded-for",
    "x-cost",
    "x-api-key",
];

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let header = |name: &str| Source::Header(name.parse().expect("the name is valid"));
    let claims = "x-claims".parse().expect("the name is valid");
    let name = "sub".to_owned();
    let parts = [
        Part::new(Source::Ip),
        Part::new(header("x-user")).or(Source::Host).or(Source::Ip),
        Part::new(header("authorization")),
        Part::new(Source::Cookie("sid".into())).or(header("x-api-key")),
        Part::new(Source::Query("user".into())).or(Source::Route),
        Part::new(Source::Path("id".into())),
        Part::new(Source::Claim {
            header: claims,
            name,
        }),
    ];
    let one = |(number, missing): (usize, Missing)| {
        let quota = "10/min".parse().expect("the quota is valid");
        let quotas = Quotas::new(vec![(None, quota)]).expect("one quota is valid");
        let name = format!("rule-{number}").parse().expect("the name is valid");
        let mut rule = Rule::with_limits(name, RuleLimits::Same(quotas));
        rule.matcher.paths = vec!["/{id}/**".parse().expect("the pattern is valid")];
        rule.key = match number {
            0 => parts.to_vec(),
            _ => vec![parts[number % parts.len()].clone()],
        };
        rule.on_missing = missing;
        rule.shadow = number % 3 == 1;
        rule.cost = Cost::Header {
            name: "x-cost".parse().expect("the name is valid"),
            default: 1,
            min: 1,
            max: 100,
        };
        if number > 0 {
            // A key by address needs a listed address.
            let listed = match number % parts.len() {
                0 => "192.0.2.9",
                _ => "eve",
            };
            rule.deny = vec![ListEntry::Key(KeyText::new([listed]))];
        }
        rule
    };
    let missing = [Missing::Shared, Missing::Pass, Missing::Refuse];
    let rules = (0..12).map(|number| one((number, missing[number % 3])));
    let proxies = "10.0.0.0/8".parse().expect("the network is valid");
    let set = RuleSet {
        client: ClientAddress::behind([proxies]),
        rules: rules.collect(),
        overrides: Vec::new(),
    };
    Rules::new(set).expect("the rules are valid")
});

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let target = lines.next().unwrap_or_default();
    let Ok(uri) = Uri::try_from(target) else {
        return;
    };
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    let peer: SocketAddr = ([10, 0, 0, 1], 1).into();
    request.extensions_mut().insert(Peer(peer));
    for line in lines.take(32) {
        let Some((&letter, value)) = line.split_first() else {
            continue;
        };
        let name = HeaderName::from_static(NAMES[usize::from(letter) % NAMES.len()]);
        if let Ok(value) = HeaderValue::from_bytes(value) {
            request.headers_mut().append(name, value);
        }
    }
    check(&request);
    // Again with secrets.
    for name in ["authorization", "x-api-key"] {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(SECRET));
    }
    let cookie = HeaderValue::from_static("sid=zq7h4nter2");
    request.headers_mut().insert("cookie", cookie);
    let shown = check(&request);
    assert!(!shown.contains(SECRET), "{shown}");
});

/// Checks one request and returns what would be shown.
fn check(request: &Request<()>) -> String {
    let head = Head::from(request);
    let (plan, trace) = (RULES.plan(&head), RULES.trace(&head));
    assert_eq!(format!("{plan:?}"), format!("{:?}", trace.plan()));
    assert_eq!(trace.rules.len(), 12);
    for charge in plan.charges() {
        assert!((1..=100).contains(&charge.cost));
    }
    format!("{plan:?} {trace:?}")
}
