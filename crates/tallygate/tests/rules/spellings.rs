//! Different spellings of a path, host, cookie or claim neither bypass a rule nor open a new
//! budget.

use http::{Method, Request};
use tallygate::http::{Head, StopReason};
use tallygate::rules::{Matcher, Mismatch, RuleOutcome, Source};

use super::{
    applied_rules, key_by, key_of, only_key, parse_request, path_matcher, plan, rule, rules, with,
};

#[test]
fn no_spelling_of_a_path_bypasses_its_rule() {
    let mut login = rule("login");
    login.matcher = path_matcher("/account/login");
    let rules = rules(vec![login]);
    for path in [
        "/account/login",
        "/account/login/",
        "//account//login",
        "/account/./login",
        "/account/x/../login",
        "/../account/login",
        "/account/%6Cogin",
        "/account/%6cogin",
        "/account/x/%2e%2E/login",
        "/account/.%2e/account/login",
        "/%61ccount/login?x=/y",
        "http://example.com/account/login",
        // As some servers parse them, though not by RFC 3986.
        "/account/x//../login",
        "/account/x/y//../../login",
        "/account%2Flogin",
        "/account%2flogin",
        "/account/login%2F",
        "/account/..%2Faccount/login",
        "/x%2F..%2Faccount%5Clogin",
        "/account/login;a=b",
        "/account;v=1/login;",
        "/account/..;/account/login",
        "/x/.;/..;a%2F/;/account/login",
        "//evil/account/login",
        "///evil:80/account/login",
        "//u@evil//account/login",
        "/\\evil/account/login",
        "/%5Cevil/account%2Flogin",
        "//evil/x/../account/login;a",
        // Of these, servers treat some as slashes only.
        "/a%2Fb\\..\\account\\login",
        "/a\\b%2F..%2Faccount/login",
        "/x%2F..;%2Fy/account/login",
    ] {
        assert_eq!(
            applied_rules(&rules, &parse_request(&format!("GET {path}"))),
            ["login"],
            "{path}"
        );
    }
    for path in [
        "/account/Login",
        "/account/login/x",
        "/account",
        "/account/%256Cogin",
        "/account/login%",
        "/account/login%6",
        "/account%252Flogin",
        "/account/login%3Ba",
        "/account/login%20",
        "/account/login%00",
        "/evil/account/login",
        "/.//evil/account/login",
        "//evil/x/account/login",
    ] {
        let none = applied_rules(&rules, &parse_request(&format!("GET {path}")));
        assert!(none.is_empty(), "{path}");
    }
}

#[test]
fn no_spelling_of_a_method_bypasses_its_rule() {
    let mut login = rule("login");
    login.matcher.methods = vec![Method::POST];
    let mut purge = rule("purge");
    purge.matcher.methods = vec!["PURGE".parse().unwrap()];
    let rules = rules(vec![login, purge]);
    for (method, expected) in [
        ("POST", &["login"][..]),
        ("post", &["login"]),
        ("pOsT", &["login"]),
        ("purge", &["purge"]),
        ("GET", &[]),
        ("POSTS", &[]),
    ] {
        let request = parse_request(&format!("{method} /"));
        assert_eq!(applied_rules(&rules, &request), expected, "{method}");
    }
    let key = |method: &str| {
        key_of(
            key_by(Source::Method),
            &parse_request(&format!("{method} /")),
        )
    };
    assert_eq!(key("post"), key("POST"));
    assert_ne!(key("GET"), key("POST"));
}

#[test]
fn a_matcher_covers_another_one_whatever_the_case_of_its_methods() {
    let of = |method: &str| Matcher {
        methods: vec![method.parse().unwrap()],
        ..Matcher::default()
    };
    assert!(of("POST").covers(&of("post")) && !of("POST").covers(&of("GET")));
}

#[test]
fn a_path_with_too_many_segments_is_refused_and_charged_nowhere() {
    let rules = rules(vec![rule("all")]);
    let path = |segments: usize| parse_request(&format!("GET {}", "/a".repeat(segments)));
    assert_eq!(applied_rules(&rules, &path(256)), ["all"]);
    let refused = [
        path(257),
        parse_request(&format!("GET /{}", "%2f".repeat(256))),
        parse_request(&format!("GET /{}", "\\".repeat(256))),
    ];
    for request in refused {
        let plan = plan(&rules, &request);
        assert_eq!(plan.stopped().unwrap().reason, StopReason::TooManySegments);
        assert!(plan.charges().is_empty());
        let of_rule = rules.plan_rule("all", &Head::from(&request)).unwrap();
        assert_eq!(
            of_rule.stopped().unwrap().reason,
            StopReason::TooManySegments
        );
    }
    let query = parse_request(&format!("GET /?{}", "/".repeat(1_000)));
    assert_eq!(applied_rules(&rules, &query), ["all"]);
}

#[test]
fn stop_applies_only_if_every_path_variant_matches() {
    let mut assets = rule("assets");
    assets.matcher = path_matcher("/assets/**");
    assets.stop = true;
    let mut login = rule("login");
    login.matcher = path_matcher("/login");
    let rules = rules(vec![assets, login]);
    let found = |path: &str| applied_rules(&rules, &parse_request(&format!("GET {path}")));
    for path in [
        "/assets/a",
        "//assets/assets/a",
        "/assets//a%2Fb",
        "/assets/a;v=1",
        "/login/../assets/x",
    ] {
        assert_eq!(found(path), ["assets"], "{path}");
    }
    for path in [
        "/assets/..%2Flogin",
        "/assets/..;/login",
        "/assets//../login",
        "/assets%2F..%5Clogin",
        "//assets/login",
    ] {
        assert!(found(path).contains(&"login".to_owned()), "{path}");
    }
}

#[test]
fn a_path_parameter_is_from_the_variant_that_matched() {
    let mut users = rule("users");
    users.matcher = path_matcher("/users/{id}");
    users.key = key_by(Source::Path("id".into()));
    let rules = rules(vec![users]);
    let key = |path: &str| only_key(&rules, &parse_request(&format!("GET {path}")));
    for path in [
        "/users%2Fann",
        "/x%2F../users/ann",
        "/users;v=1/ann",
        "/x//../users/ann",
    ] {
        assert_eq!(key(path), key("/users/ann"), "{path}");
    }
}

#[test]
fn a_path_parameter_is_decoded_and_may_contain_a_slash() {
    let mut users = rule("users");
    users.matcher = path_matcher("/users/{id}");
    users.key = key_by(Source::Path("id".into()));
    let rules = rules(vec![users]);
    let key = |path: &str| only_key(&rules, &parse_request(&format!("GET {path}")));
    assert_eq!(key("/users/ann"), key("/users/%61nn"));
    assert_eq!(key("/users/a@b"), key("/users/a%40b"));
    assert_eq!(key("/users/a%2Fb"), key("/users/a%2fb"));
    assert_ne!(key("/users/a%2Fb"), key("/users/ab"));
    assert_ne!(key("/users/ann"), key("/users/Ann"));
    assert_ne!(key("/users/100%"), key("/users/100"));
    assert!(
        plan(&rules, &parse_request("GET /users/a/b"))
            .charges()
            .is_empty()
    );
}

#[test]
fn a_query_is_decoded_and_conflicts_count_as_missing() {
    let user = || key_by(Source::Query("user".into()));
    let key = |query: &str| key_of(user(), &parse_request(&format!("GET /?{query}")));
    let ann = key("user=ann");
    for same in [
        "user=%61nn",
        "us%65r=ann",
        "x=1&user=ann",
        "user=ann&user=ann",
        "user=&user=ann",
        "user=ann&User=bob",
    ] {
        assert_eq!(key(same), ann, "{same}");
    }
    assert_eq!(key("user=a+b"), key("user=a%20b"));
    assert_ne!(key("user=a%2Bb"), key("user=a+b"));
    assert_ne!(key("user=a%26user%3Db"), key("user=a"));
    let without_key = key("x=1");
    for none in ["user=ann&user=bob", "user", "user=", "=ann", "", "&&"] {
        assert_eq!(key(none), without_key, "{none}");
    }
}

#[test]
fn a_cookie_is_found_in_any_header_line() {
    let session = || key_by(Source::Cookie("session".into()));
    let key = |request: &Request<()>| key_of(session(), request);
    let plain = key(&with("cookie", "session=abc", parse_request("GET /")));
    for line in [
        "a=1; session=abc; b=2",
        "a=1;session=abc",
        "session=\"abc\"",
        " session = abc ",
        "session=abc; session=abc",
        "session; session=abc",
    ] {
        assert_eq!(
            key(&with("cookie", line, parse_request("GET /"))),
            plain,
            "{line}"
        );
    }
    // HTTP/2 may send each in its own header.
    let apart = with(
        "cookie",
        "a=1",
        with("cookie", "session=abc", parse_request("GET /")),
    );
    assert_eq!(key(&apart), plain);
    let without_key = key(&parse_request("GET /"));
    for line in [
        "session=abc; session=abd",
        "xsession=abc",
        "SESSION=abc",
        "session=",
        "\u{e9}",
    ] {
        assert_eq!(
            key(&with("cookie", line, parse_request("GET /"))),
            without_key,
            "{line}"
        );
    }
}

#[test]
fn a_claim_is_read_from_a_header_and_otherwise_missing() {
    let subject = || {
        key_by(Source::Claim {
            header: "x-claims".parse().unwrap(),
            name: "sub".into(),
        })
    };
    let key = |value: &str| key_of(subject(), &with("x-claims", value, parse_request("GET /")));
    assert_eq!(key(r#"{"sub":"ann"}"#), key("eyJzdWIiOiJhbm4ifQ"));
    assert_eq!(
        key("eyJzdWIiOiJhbm4ifQ=="),
        key("Bearer e30.eyJzdWIiOiJhbm4ifQ.x")
    );
    assert_ne!(key(r#"{"sub":"ann"}"#), key(r#"{"sub":"bob"}"#));
    let without_key = key_of(subject(), &parse_request("GET /"));
    for none in [
        "ann",
        "{}",
        r#"{"sub":""}"#,
        r#"{"sub":null}"#,
        "{\"sub\":\"ann\"",
    ] {
        assert_eq!(key(none), without_key, "{none}");
    }
}

#[test]
fn hosts_match_in_any_case_with_any_port_and_as_subdomains() {
    let mut api = rule("api");
    api.matcher.hosts = vec![
        "api.example.com".parse().unwrap(),
        "*.example.org".parse().unwrap(),
    ];
    let rules = rules(vec![api]);
    for host in [
        "api.example.com",
        "API.Example.COM:8443",
        "api.example.com.",
        "a.example.org",
        "a.b.example.org",
    ] {
        assert_eq!(
            applied_rules(&rules, &with("host", host, parse_request("GET /"))),
            ["api"],
            "{host}"
        );
        let absolute = parse_request(&format!("GET http://{host}/"));
        assert_eq!(applied_rules(&rules, &absolute), ["api"], "{host}");
    }
    for host in [
        "example.com",
        "x.api.example.com",
        "example.org",
        "aexample.org",
        "",
    ] {
        let request = with("host", host, parse_request("GET /"));
        assert!(applied_rules(&rules, &request).is_empty(), "{host}");
    }
    // Some servers read these hosts, others another one.
    for host in [
        "api.example.com:80@x.net",
        "u:p@api.example.com",
        "x.net:80@API.example.com:80",
        "api.example.com,x.net",
        "x.net, a.example.org",
    ] {
        let request = with("host", host, parse_request("GET /"));
        assert_eq!(applied_rules(&rules, &request), ["api"], "{host}");
        let target = parse_request(&format!("GET http://{}/", host.replace(' ', "")));
        assert_eq!(applied_rules(&rules, &target), ["api"], "{host}");
    }
    // A request with two hosts matches by either.
    let both = with(
        "host",
        "x.net",
        with("host", "api.example.com", parse_request("GET /")),
    );
    assert_eq!(applied_rules(&rules, &both), ["api"]);
    let beside = with(
        "host",
        "api.example.com",
        parse_request("GET http://x.net/"),
    );
    assert_eq!(applied_rules(&rules, &beside), ["api"]);
    let host = || key_by(Source::Host);
    assert_eq!(
        key_of(host(), &both),
        key_of(host(), &parse_request("GET /"))
    );
    assert_eq!(key_of(host(), &both), key_of(host(), &beside));
}

#[test]
fn a_trace_shows_the_mismatch() {
    use tallygate::rules::{HeaderCondition, HeaderMatcher};
    let mut narrow = rule("narrow");
    narrow.matcher = path_matcher("/a/*");
    narrow.matcher.methods = vec![http::Method::POST];
    narrow.matcher.hosts = vec!["a.test".parse().unwrap()];
    narrow.matcher.headers = vec![
        HeaderMatcher {
            name: "x-kind".parse().unwrap(),
            condition: HeaderCondition::Matches(vec!["a*".parse().unwrap()]),
        },
        HeaderMatcher {
            name: "x-no".parse().unwrap(),
            condition: HeaderCondition::Absent,
        },
    ];
    let rules = rules(vec![narrow]);
    let mismatch = |request: Request<()>| {
        let trace = rules.trace(&(&request).into());
        match &trace.rules[0].outcome {
            RuleOutcome::Mismatch(mismatch) => Some(mismatch.clone()),
            RuleOutcome::Applies { .. } => None,
            other => panic!("{other:?}"),
        }
    };
    let good = |line: &str| {
        with(
            "x-kind",
            "b",
            with("x-kind", "abc", with("host", "a.test", parse_request(line))),
        )
    };
    assert_eq!(mismatch(good("POST /a/b")), None);
    assert_eq!(mismatch(good("GET /a/b")), Some(Mismatch::Method));
    assert_eq!(mismatch(good("POST /a")), Some(Mismatch::Path));
    let elsewhere = with("host", "b.test", parse_request("POST /a/b"));
    assert_eq!(mismatch(elsewhere), Some(Mismatch::Host));
    let kind = Mismatch::Header("x-kind".parse().unwrap());
    assert_eq!(
        mismatch(with("host", "a.test", parse_request("POST /a/b"))),
        Some(kind)
    );
    let no = Mismatch::Header("x-no".parse().unwrap());
    assert_eq!(mismatch(with("x-no", "", good("POST /a/b"))), Some(no));
}
