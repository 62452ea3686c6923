//! Who is limited: what a key is made of, and what is the same client and what is not.

use http::HeaderValue;
use tallygate::http::{ClientAddress, StopReason};
use tallygate::rules::{Missing, Part, RuleSet, Rules, Source};

use super::{about, ask, by, from, header, key_of, only_key, plan, rule, rules, set, with};

fn user() -> Vec<Part> {
    by(header("x-user"))
}

#[test]
fn a_line_end_cannot_be_in_a_header_and_so_in_no_key() {
    for bytes in [&b"a\r\nb"[..], b"a\rb", b"a\nb", b"a\0b"] {
        assert!(HeaderValue::from_bytes(bytes).is_err());
    }
}

#[test]
fn any_bytes_and_any_length_tell_clients_apart() {
    let long = |end: &str| "x".repeat(64 * 1024) + end;
    let values = [
        b"ann".to_vec(),
        b"Ann".to_vec(),
        "jos\u{e9}".as_bytes().to_vec(),
        // Latin-1, which is no UTF-8.
        b"jos\xe9".to_vec(),
        b"jos\xe8".to_vec(),
        b"a\tb".to_vec(),
        b"a b".to_vec(),
        long("1").into_bytes(),
        long("2").into_bytes(),
    ];
    let keys = values.map(|value| key_of(user(), &with("x-user", value, ask("GET /"))));
    for (i, one) in keys.iter().enumerate() {
        for (j, other) in keys.iter().enumerate() {
            assert_eq!(one == other, i == j, "{i} and {j}");
        }
    }
}

#[test]
fn white_space_around_a_value_is_not_part_of_it() {
    let plain = key_of(user(), &with("x-user", "ann", ask("GET /")));
    let padded = key_of(user(), &with("x-user", " ann\t", ask("GET /")));
    assert_eq!(plain, padded);
}

#[test]
fn a_header_twice_is_nobody_unless_both_say_the_same() {
    let ann = with("x-user", "ann", ask("GET /"));
    let twice = with("x-user", "ann", ann.clone());
    let both = with("x-user", "bob", ann.clone());
    let other = with("x-user", "eve", with("x-user", "ann", ask("GET /")));
    assert_eq!(key_of(user(), &ann), key_of(user(), &twice));
    assert_ne!(key_of(user(), &ann), key_of(user(), &both));
    // One who adds a name gets no fresh budget by it: all such are one.
    assert_eq!(key_of(user(), &both), key_of(user(), &other));
    assert_eq!(key_of(user(), &both), key_of(user(), &ask("GET /")));
}

#[test]
fn an_empty_value_is_none() {
    let empty = with("x-user", "", ask("GET /?u=&u"));
    assert_eq!(key_of(user(), &empty), key_of(user(), &ask("GET /")));
    let query = || by(Source::Query("u".into()));
    assert_eq!(key_of(query(), &empty), key_of(query(), &ask("GET /")));
}

#[test]
fn who_does_not_say_who_they_are_is_refused_passed_or_shared() {
    let with_missing = |missing| {
        let mut rule = rule("only");
        rule.key = user();
        rule.on_missing = missing;
        rules(vec![rule])
    };
    let nobody = ask("GET /");
    let both = with("x-user", "ann", with("x-user", "bob", ask("GET /")));
    let empty = with("x-user", "", ask("GET /"));

    let refusing = with_missing(Missing::Refuse);
    for request in [&nobody, &both, &empty] {
        let plan = plan(&refusing, request);
        assert_eq!(plan.stopped().unwrap().reason, StopReason::NoKey);
        assert_eq!(&*plan.stopped().unwrap().settings.name, "only");
        assert!(plan.charges().is_empty());
    }
    let passing = with_missing(Missing::Pass);
    for request in [&nobody, &empty] {
        let plan = plan(&passing, request);
        assert!(plan.stopped().is_none() && plan.charges().is_empty());
    }
    // Saying two things is no way around a rule.
    assert_eq!(
        only_key(&passing, &both),
        only_key(&with_missing(Missing::Shared), &nobody)
    );
    let named = with("x-user", "ann", ask("GET /"));
    assert_ne!(only_key(&passing, &named), only_key(&passing, &both));
}

#[test]
fn those_who_lack_one_part_still_differ_in_the_others() {
    let parts = || vec![Part::new(header("x-tenant")), Part::new(header("x-user"))];
    let acme = with("x-tenant", "acme", ask("GET /"));
    let globex = with("x-tenant", "globex", ask("GET /"));
    let user_only = with("x-user", "acme", ask("GET /"));
    assert_ne!(key_of(parts(), &acme), key_of(parts(), &globex));
    assert_ne!(key_of(parts(), &acme), key_of(parts(), &user_only));
}

#[test]
fn what_is_found_elsewhere_is_never_taken_for_what_is_found_first() {
    let part = || vec![Part::new(header("x-user")).or(Source::Ip)];
    let by_ip = key_of(part(), &ask("GET /"));
    let forged = key_of(part(), &with("x-user", "203.0.113.7", ask("GET /")));
    assert_ne!(by_ip, forged);
    // Nor do two values say the marks of something else.
    let nobody = key_of(user(), &ask("GET /"));
    let two = || vec![Part::new(header("x-user")), Part::new(header("x-mark"))];
    let forged = with("x-mark", "-", with("x-user", " ", ask("GET /")));
    assert_ne!(nobody, key_of(two(), &forged));
    // Adding a second place keeps the counts of the first.
    let ann = with("x-user", "ann", ask("GET /"));
    assert_eq!(key_of(part(), &ann), key_of(user(), &ann));
}

#[test]
fn parts_do_not_run_into_each_other() {
    let parts = || vec![Part::new(header("x-a")), Part::new(header("x-b"))];
    let ask = |a: &str, b: &str| with("x-b", b, with("x-a", a, ask("GET /")));
    assert_ne!(
        key_of(parts(), &ask("ab", "c")),
        key_of(parts(), &ask("a", "bc"))
    );
}

#[test]
fn the_address_is_the_peers_unless_a_trusted_proxy_says_otherwise() {
    let ip = || by(Source::Ip);
    let plain = key_of(ip(), &ask("GET /"));
    let spoofed = with("x-forwarded-for", "198.51.100.1", ask("GET /"));
    assert_eq!(plain, key_of(ip(), &spoofed));

    let mut only = rule("only");
    only.key = ip();
    let behind = Rules::new(RuleSet {
        client: ClientAddress::behind(["203.0.113.0/24".parse().unwrap()]),
        ..set(vec![only])
    })
    .unwrap();
    let client = from("198.51.100.1", ask("GET /"));
    assert_eq!(only_key(&behind, &spoofed), key_of(ip(), &client));
    // What the client wrote itself is left of what the proxy wrote.
    let forged = with("x-forwarded-for", "192.0.2.1, 198.51.100.1", ask("GET /"));
    assert_eq!(only_key(&behind, &forged), key_of(ip(), &client));
}

#[test]
fn rotating_within_an_ipv6_network_changes_nothing() {
    let ip = || by(Source::Ip);
    let key = |text| key_of(ip(), &from(text, ask("GET /")));
    assert_eq!(
        key("2001:db8:1:2::1"),
        key("2001:db8:1:2:ffff:ffff:ffff:ffff")
    );
    assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
    assert_eq!(key("::ffff:203.0.113.7"), key("203.0.113.7"));
}

#[test]
fn without_a_peer_the_address_is_missing() {
    let bare = http::Request::builder().uri("/").body(()).unwrap();
    let also = with("x-forwarded-for", "198.51.100.1", bare.clone());
    assert_eq!(key_of(by(Source::Ip), &bare), key_of(by(Source::Ip), &also));
    assert_ne!(
        key_of(by(Source::Ip), &bare),
        key_of(by(Source::Ip), &ask("GET /"))
    );
}

#[test]
fn an_authorization_is_the_same_in_every_spelling_of_its_scheme() {
    let by_token = || by(header("authorization"));
    let key = |text: &str| key_of(by_token(), &with("authorization", text, ask("GET /")));
    assert_eq!(key("Bearer abc"), key("bearer   abc"));
    assert_eq!(key("Bearer abc"), key("BEARER\tabc"));
    assert_ne!(key("Bearer abc"), key("Bearer ABC"));
    assert_ne!(key("Bearer abc"), key("Basic abc"));
}

#[test]
fn a_part_that_never_changes_and_the_method_and_route_are_parts() {
    let mut only = rule("only");
    only.matcher = about("/users/{id}/**");
    only.matcher.paths.push("/teams/{id}".parse().unwrap());
    let keyed = |source: Source| {
        let mut only = only.clone();
        only.key = by(source);
        rules(vec![only])
    };
    let constant = keyed(Source::Constant("all".into()));
    let route = keyed(Source::Route);
    let method = keyed(Source::Method);
    let host = keyed(Source::Host);
    let (one, two) = (ask("GET /users/1"), ask("POST /users/2/x"));
    let team = with("host", "Example.com:80", ask("GET /teams/1"));
    assert_eq!(only_key(&constant, &one), only_key(&constant, &team));
    assert_eq!(only_key(&route, &one), only_key(&route, &two));
    assert_ne!(only_key(&route, &one), only_key(&route, &team));
    assert_eq!(only_key(&method, &one), only_key(&method, &team));
    assert_ne!(only_key(&method, &one), only_key(&method, &two));
    let absolute = ask("GET http://example.com/teams/1");
    assert_eq!(only_key(&host, &team), only_key(&host, &absolute));
    assert_ne!(only_key(&host, &team), only_key(&host, &one));
}
