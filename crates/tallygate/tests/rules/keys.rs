//! Keys: their sources, and which requests have the same key.

use http::HeaderValue;
use tallygate::http::{ClientAddress, StopReason};
use tallygate::rules::{Missing, Part, RuleOutcome, RuleSet, Rules, Source};

use super::{
    from, header, key_by, key_of, only_key, parse_request, path_matcher, plan, rule, rule_set,
    rules, with,
};

fn user() -> Vec<Part> {
    key_by(header("x-user"))
}

#[test]
fn a_header_cannot_contain_a_line_break() {
    for bytes in [&b"a\r\nb"[..], b"a\rb", b"a\nb", b"a\0b"] {
        assert!(HeaderValue::from_bytes(bytes).is_err());
    }
}

#[test]
fn any_bytes_of_any_length_are_keys() {
    let long = |end: &str| "x".repeat(64 * 1024) + end;
    let values = [
        b"ann".to_vec(),
        b"Ann".to_vec(),
        "jos\u{e9}".as_bytes().to_vec(),
        // Latin-1, which is not UTF-8.
        b"jos\xe9".to_vec(),
        b"jos\xe8".to_vec(),
        b"a\tb".to_vec(),
        b"a b".to_vec(),
        long("1").into_bytes(),
        long("2").into_bytes(),
    ];
    let keys = values.map(|value| key_of(user(), &with("x-user", value, parse_request("GET /"))));
    for (i, one) in keys.iter().enumerate() {
        for (j, other) in keys.iter().enumerate() {
            assert_eq!(one == other, i == j, "{i} and {j}");
        }
    }
}

#[test]
fn values_are_trimmed() {
    let plain = key_of(user(), &with("x-user", "ann", parse_request("GET /")));
    let padded = key_of(user(), &with("x-user", " ann\t", parse_request("GET /")));
    assert_eq!(plain, padded);
}

#[test]
fn conflicting_duplicate_headers_count_as_missing() {
    let ann = with("x-user", "ann", parse_request("GET /"));
    let twice = with("x-user", "ann", ann.clone());
    let both = with("x-user", "bob", ann.clone());
    let other = with(
        "x-user",
        "eve",
        with("x-user", "ann", parse_request("GET /")),
    );
    assert_eq!(key_of(user(), &ann), key_of(user(), &twice));
    assert_ne!(key_of(user(), &ann), key_of(user(), &both));
    // A conflicting value does not open a new budget.
    assert_eq!(key_of(user(), &both), key_of(user(), &other));
    assert_eq!(
        key_of(user(), &both),
        key_of(user(), &parse_request("GET /"))
    );
}

#[test]
fn an_empty_value_counts_as_missing() {
    let empty = with("x-user", "", parse_request("GET /?u=&u"));
    assert_eq!(
        key_of(user(), &empty),
        key_of(user(), &parse_request("GET /"))
    );
    let query = || key_by(Source::Query("u".into()));
    assert_eq!(
        key_of(query(), &empty),
        key_of(query(), &parse_request("GET /"))
    );
}

#[test]
fn a_request_without_a_key_is_refused_passed_or_shared() {
    let with_missing = |missing| {
        let mut rule = rule("only");
        rule.key = user();
        rule.on_missing = missing;
        rules(vec![rule])
    };
    let without_key = parse_request("GET /");
    let both = with(
        "x-user",
        "ann",
        with("x-user", "bob", parse_request("GET /")),
    );
    let empty = with("x-user", "", parse_request("GET /"));

    let refusing = with_missing(Missing::Refuse);
    for request in [&without_key, &both, &empty] {
        let plan = plan(&refusing, request);
        assert_eq!(plan.stopped().unwrap().reason, StopReason::NoKey);
        assert_eq!(&*plan.stopped().unwrap().settings.name, "only");
        assert!(plan.charges().is_empty());
    }
    let passing = with_missing(Missing::Pass);
    for request in [&without_key, &empty] {
        let plan = plan(&passing, request);
        assert!(plan.stopped().is_none() && plan.charges().is_empty());
    }
    // A conflicting value does not bypass the rule.
    assert_eq!(
        only_key(&passing, &both),
        only_key(&with_missing(Missing::Shared), &without_key)
    );
    let named = with("x-user", "ann", parse_request("GET /"));
    assert_ne!(only_key(&passing, &named), only_key(&passing, &both));
}

#[test]
fn requests_without_one_part_still_differ_in_the_others() {
    let parts = || vec![Part::new(header("x-tenant")), Part::new(header("x-user"))];
    let acme = with("x-tenant", "acme", parse_request("GET /"));
    let globex = with("x-tenant", "globex", parse_request("GET /"));
    let user_only = with("x-user", "acme", parse_request("GET /"));
    assert_ne!(key_of(parts(), &acme), key_of(parts(), &globex));
    assert_ne!(key_of(parts(), &acme), key_of(parts(), &user_only));
}

#[test]
fn a_value_of_a_fallback_source_never_equals_one_of_the_first() {
    let part = || vec![Part::new(header("x-user")).or(Source::Ip)];
    let by_ip = key_of(part(), &parse_request("GET /"));
    let forged = key_of(
        part(),
        &with("x-user", "203.0.113.7", parse_request("GET /")),
    );
    assert_ne!(by_ip, forged);
    // Values cannot imitate the marks of sources.
    let without_key = key_of(user(), &parse_request("GET /"));
    let two = || vec![Part::new(header("x-user")), Part::new(header("x-mark"))];
    let forged = with("x-mark", "-", with("x-user", " ", parse_request("GET /")));
    assert_ne!(without_key, key_of(two(), &forged));
    // Adding a fallback source keeps the counts.
    let ann = with("x-user", "ann", parse_request("GET /"));
    assert_eq!(key_of(part(), &ann), key_of(user(), &ann));
}

#[test]
fn parts_are_separated() {
    let parts = || vec![Part::new(header("x-a")), Part::new(header("x-b"))];
    let request = |a: &str, b: &str| with("x-b", b, with("x-a", a, parse_request("GET /")));
    assert_ne!(
        key_of(parts(), &request("ab", "c")),
        key_of(parts(), &request("a", "bc"))
    );
}

#[test]
fn the_address_is_the_peers_or_the_one_a_trusted_proxy_reports() {
    let ip = || key_by(Source::Ip);
    let plain = key_of(ip(), &parse_request("GET /"));
    let spoofed = with("x-forwarded-for", "198.51.100.1", parse_request("GET /"));
    assert_eq!(plain, key_of(ip(), &spoofed));

    let mut only = rule("only");
    only.key = ip();
    let behind = Rules::new(RuleSet {
        client: ClientAddress::behind(["203.0.113.0/24".parse().unwrap()]),
        ..rule_set(vec![only])
    })
    .unwrap();
    let client = from("198.51.100.1", parse_request("GET /"));
    assert_eq!(only_key(&behind, &spoofed), key_of(ip(), &client));
    // What the client sent is left of what the proxy appended.
    let forged = with(
        "x-forwarded-for",
        "192.0.2.1, 198.51.100.1",
        parse_request("GET /"),
    );
    assert_eq!(only_key(&behind, &forged), key_of(ip(), &client));
}

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let ip = || key_by(Source::Ip);
    let key = |text| key_of(ip(), &from(text, parse_request("GET /")));
    assert_eq!(
        key("2001:db8:1:2::1"),
        key("2001:db8:1:2:ffff:ffff:ffff:ffff")
    );
    assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
    assert_eq!(key("::ffff:203.0.113.7"), key("203.0.113.7"));
}

#[test]
fn without_an_address_a_request_is_stopped_and_a_check_of_a_rule_shares_a_counter() {
    let mut rule = rule("only");
    rule.key = key_by(Source::Ip);
    let rules = rules(vec![rule]);
    let bare = http::Request::builder().uri("/").body(()).unwrap();
    // Of a peer without an address, no header is believed.
    let also = with("x-forwarded-for", "198.51.100.1", bare.clone());
    for request in [&bare, &also] {
        let plan = plan(&rules, request);
        assert!(plan.charges().is_empty());
        assert_eq!(plan.stopped().unwrap().reason, StopReason::NoAddress);
        let trace = rules.trace(&request.into());
        assert!(matches!(trace.rules[0].outcome, RuleOutcome::NoAddress));
    }
    // Attributes may lack the address.
    let named = rules.plan_rule("only", &(&bare).into()).unwrap();
    assert!(named.stopped().is_none());
    assert_ne!(
        named.charges()[0].key,
        only_key(&rules, &parse_request("GET /"))
    );
}

#[test]
fn the_scheme_of_an_authorization_is_canonical() {
    let by_token = || key_by(header("authorization"));
    let key = |text: &str| {
        key_of(
            by_token(),
            &with("authorization", text, parse_request("GET /")),
        )
    };
    assert_eq!(key("Bearer abc"), key("bearer   abc"));
    assert_eq!(key("Bearer abc"), key("BEARER\tabc"));
    assert_ne!(key("Bearer abc"), key("Bearer ABC"));
    assert_ne!(key("Bearer abc"), key("Basic abc"));
}

#[test]
fn constants_method_and_route_are_parts() {
    let mut only = rule("only");
    only.matcher = path_matcher("/users/{id}/**");
    only.matcher.paths.push("/teams/{id}".parse().unwrap());
    let keyed = |source: Source| {
        let mut only = only.clone();
        only.key = key_by(source);
        rules(vec![only])
    };
    let constant = keyed(Source::Constant("all".into()));
    let route = keyed(Source::Route);
    let method = keyed(Source::Method);
    let host = keyed(Source::Host);
    let (one, two) = (
        parse_request("GET /users/1"),
        parse_request("POST /users/2/x"),
    );
    let team = with("host", "Example.com:80", parse_request("GET /teams/1"));
    assert_eq!(only_key(&constant, &one), only_key(&constant, &team));
    assert_eq!(only_key(&route, &one), only_key(&route, &two));
    assert_ne!(only_key(&route, &one), only_key(&route, &team));
    assert_eq!(only_key(&method, &one), only_key(&method, &team));
    assert_ne!(only_key(&method, &one), only_key(&method, &two));
    let absolute = parse_request("GET http://example.com/teams/1");
    assert_eq!(only_key(&host, &team), only_key(&host, &absolute));
    assert_ne!(only_key(&host, &team), only_key(&host, &one));
}
