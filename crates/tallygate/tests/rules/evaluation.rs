//! Which rules apply, and that plan and trace agree.

use http::Method;
use tallygate::MAX_LIMITS;
use tallygate::http::{Headers, StopReason};
use tallygate::rules::{
    Missing, Part, Rule, RuleLimits, RuleOutcome, RuleSet, Rules, Source, StatusFilter,
    StatusRange, TracedValue,
};
use tallygate_testkit::any;

use super::{
    applied_rules, header, key, key_by, network, parse_request, path_matcher, plan, rule, rules,
    same_limits, with,
};

#[test]
fn all_matching_rules_apply_in_order_until_stop() {
    let mut off = rule("off");
    off.enabled = false;
    off.stop = true;
    let mut elsewhere = rule("elsewhere");
    elsewhere.matcher = path_matcher("/other/**");
    elsewhere.stop = true;
    let mut watching = rule("watching");
    watching.shadow = true;
    watching.stop = true;
    let mut last = rule("last");
    last.stop = true;
    let list = vec![rule("first"), off, elsewhere, watching, last, rule("never")];
    let rules = rules(list);
    assert_eq!(
        applied_rules(&rules, &parse_request("GET /x")),
        ["first", "watching", "last"]
    );
    assert_eq!(
        applied_rules(&rules, &parse_request("GET /other/x")),
        ["first", "elsewhere"]
    );

    let trace = rules.trace(&(&parse_request("GET /x")).into());
    let fates: Vec<&RuleOutcome> = trace.rules.iter().map(|step| &step.outcome).collect();
    assert!(matches!(
        fates[..],
        [
            RuleOutcome::Applies { stop: false, .. },
            RuleOutcome::Disabled,
            RuleOutcome::Mismatch(_),
            RuleOutcome::Applies { stop: false, .. },
            RuleOutcome::Applies { stop: true, .. },
            RuleOutcome::NotReached,
        ]
    ));
}

#[test]
fn a_second_host_does_not_bypass_rules_with_stop() {
    let mut lax = rule("static");
    lax.matcher.hosts = vec!["*.static.example.com".parse().unwrap()];
    lax.stop = true;
    let mut strict = rule("api");
    strict.matcher.hosts = vec!["api.example.com".parse().unwrap()];
    let rules = rules(vec![lax, strict, rule("all")]);
    let entries = |target: &str, host: &'static str| {
        applied_rules(
            &rules,
            &with("host", host, parse_request(&format!("GET {target}"))),
        )
    };
    assert_eq!(entries("/", "a.static.example.com"), ["static"]);
    let (one, other) = ("http://a.static.example.com/", "http://api.example.com/");
    assert_eq!(entries(one, "A.static.example.com:80"), ["static"]);
    assert_eq!(entries(one, "b.static.example.com"), ["static"]);
    for both in [
        entries(one, "api.example.com"),
        entries(other, "a.static.example.com"),
    ] {
        assert_eq!(both, ["static", "api", "all"]);
    }
    let twice = with("host", "a.static.example.com", parse_request("GET /"));
    let twice = with("host", "api.example.com", twice);
    assert_eq!(applied_rules(&rules, &twice), ["static", "api", "all"]);
    let trace = rules.trace(&(&twice).into());
    assert!(matches!(
        trace.rules[0].outcome,
        RuleOutcome::Applies { stop: false, .. }
    ));
}

#[test]
fn without_rules_every_request_is_admitted() {
    let none = Rules::new(RuleSet::default()).unwrap();
    let plan = plan(&none, &parse_request("GET /"));
    assert!(plan.charges().is_empty() && plan.stopped().is_none());
}

#[test]
fn one_element_of_every_list_has_to_match() {
    let mut some = rule("some");
    some.matcher = path_matcher("/a");
    some.matcher.paths.push("/b/{x}".parse().unwrap());
    some.matcher.methods = vec![Method::POST, Method::PUT];
    let rules = rules(vec![some]);
    for (line, applies) in [
        ("POST /a", true),
        ("PUT /b/1", true),
        ("GET /a", false),
        ("POST /b", false),
        // Some servers take it for POST.
        ("post /a", true),
    ] {
        assert_eq!(
            !applied_rules(&rules, &parse_request(line)).is_empty(),
            applies,
            "{line}"
        );
    }
}

#[test]
fn a_grpc_method_is_matched_by_its_path() {
    let mut carts = rule("carts");
    carts.matcher.grpc = vec!["shop.v1.Carts/Checkout".parse().unwrap()];
    carts.key = key_by(Source::Route);
    let rules = rules(vec![carts]);
    assert_eq!(
        applied_rules(&rules, &parse_request("POST /shop.v1.Carts/Checkout")),
        ["carts"]
    );
    assert!(applied_rules(&rules, &parse_request("POST /shop.v1.Carts/List")).is_empty());
}

#[test]
fn a_shadow_rule_never_stops_a_request() {
    let mut denying = rule("denying");
    denying.shadow = true;
    denying.deny = vec![network("203.0.113.7")];
    let mut refusing = rule("refusing");
    refusing.shadow = true;
    refusing.key = key_by(header("x-user"));
    refusing.on_missing = Missing::Refuse;
    let rules = rules(vec![denying, refusing, rule("real")]);
    let plan = plan(&rules, &parse_request("GET /"));
    assert!(plan.stopped().is_none());
    assert_eq!(applied_rules(&rules, &parse_request("GET /")), ["real"]);
}

#[test]
fn a_refusal_ends_the_evaluation() {
    let mut denying = rule("denying");
    denying.deny = vec![network("203.0.113.0/24")];
    let rules = rules(vec![rule("first"), denying, rule("after")]);
    let plan = plan(&rules, &parse_request("GET /"));
    assert_eq!(plan.stopped().unwrap().reason, StopReason::Denied);
    let trace = rules.trace(&(&parse_request("GET /")).into());
    assert!(matches!(trace.rules[2].outcome, RuleOutcome::NotReached));
}

/// Limits with different periods.
fn many(number: usize) -> RuleLimits {
    let periods: Vec<String> = (1..=number).map(|s| format!("10/{s}s")).collect();
    same_limits(&periods.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_request_with_too_many_limits_is_refused() {
    let mut list: Vec<Rule> = ["a", "b", "c"].map(rule).into();
    for (at, size, path) in [(0, 40, "/x/*"), (1, 25, "/*/y"), (2, 24, "/**")] {
        list[at].limits = many(size);
        // They match together in some requests only; otherwise the set is invalid.
        list[at].matcher = path_matcher(path);
    }
    let rules = rules(list);
    assert_eq!(
        applied_rules(&rules, &parse_request("GET /x/z")),
        ["a", "c"]
    );
    let full = plan(&rules, &parse_request("GET /x/z"));
    let limits = full.charges().iter().map(|charge| charge.limits.len());
    assert_eq!(limits.sum::<usize>(), MAX_LIMITS);
    assert!(full.stopped().is_none());
    assert_eq!(
        applied_rules(&rules, &parse_request("GET /z/y")),
        ["b", "c"]
    );

    let stopped = plan(&rules, &parse_request("GET /x/y"));
    let stop = stopped.stopped().unwrap();
    assert_eq!(
        (stop.reason, &*stop.settings.name),
        (StopReason::TooManyLimits, "b")
    );
    let trace = rules.trace(&(&parse_request("GET /x/y")).into());
    assert!(matches!(trace.rules[1].outcome, RuleOutcome::TooManyLimits));
    assert!(matches!(trace.rules[2].outcome, RuleOutcome::NotReached));
}

#[test]
fn shadow_rules_take_no_room_from_enforced_rules() {
    let mut list: Vec<Rule> = ["a", "b", "real"].map(rule).into();
    list[0].limits = many(MAX_LIMITS);
    list[2].limits = many(MAX_LIMITS);
    list[0].shadow = true;
    list[1].shadow = true;
    let rules = rules(list);
    assert_eq!(
        applied_rules(&rules, &parse_request("GET /")),
        ["a", "real"]
    );
    assert!(plan(&rules, &parse_request("GET /")).stopped().is_none());
    let trace = rules.trace(&(&parse_request("GET /")).into());
    assert!(matches!(trace.rules[1].outcome, RuleOutcome::TooManyLimits));
}

#[test]
fn a_trace_shows_keys_but_no_secret() {
    let mut only = rule("only");
    only.key = vec![
        Part::new(header("x-user")),
        Part::new(header("authorization")),
        Part::new(Source::Cookie("sid".into())),
        Part::new(header("x-api-key"))
            .or(Source::Query("api_key".into()))
            .or(Source::Ip),
    ];
    let rules = rules(vec![only]);
    let request = with(
        "x-user",
        "ann\u{7f}".trim_end_matches('\u{7f}'),
        parse_request("GET /?api_key=hunter3"),
    );
    let request = with("authorization", "Bearer hunter2", request);
    let request = with("cookie", "sid=hunter4", request);
    let trace = rules.trace(&(&request).into());
    assert!(!format!("{trace:?}").contains("hunter"), "{trace:?}");
    let looked = &trace.rules[0].sources;
    let sights: Vec<&TracedValue> = looked.iter().map(|looked| &looked.value).collect();
    assert_eq!(*sights[0], TracedValue::Text("ann".into()));
    assert!(
        matches!(sights[1], TracedValue::Secret(mark) if mark.starts_with('#') && mark.len() == 5)
    );
    assert!(matches!(sights[2], TracedValue::Secret(_)));
    assert_eq!(*sights[3], TracedValue::Absent);
    assert!(matches!(sights[4], TracedValue::Secret(_)));
    // Later sources are not tried.
    assert_eq!(sights.len(), 5);
    assert_eq!(looked[4].part, 3);
}

#[test]
fn a_path_parameter_may_be_a_secret() {
    let mut only = rule("only");
    only.matcher = path_matcher("/hooks/{token}/{user}");
    only.key = ["token", "user"]
        .map(|name| Part::new(Source::Path(name.into())))
        .into();
    let rules = rules(vec![only]);
    let trace = rules.trace(&(&parse_request("GET /hooks/hunter2/ann")).into());
    assert!(!format!("{trace:?}").contains("hunter"), "{trace:?}");
    let looked = &trace.rules[0].sources;
    assert!(matches!(looked[0].value, TracedValue::Secret(_)));
    assert_eq!(looked[1].value, TracedValue::Text("ann".into()));
}

#[test]
fn traced_values_are_escaped_and_shortened() {
    let mut only = rule("only");
    only.key = key_by(Source::Query("q".into()));
    let rules = rules(vec![only]);
    let request = parse_request(&format!("GET /?q=%0A%1b%ff{}", "x".repeat(5000)));
    let trace = rules.trace(&(&request).into());
    let TracedValue::Text(text) = &trace.rules[0].sources[0].value else {
        panic!()
    };
    assert!(
        text.chars().count() <= 81 && !text.chars().any(char::is_control),
        "{text:?}"
    );
    assert!(text.starts_with("\\n\\u{1b}") && text.ends_with('…'));
}

#[test]
fn the_settings_of_a_charge_are_those_of_the_rule() {
    let mut login = rule("login");
    login.headers = Headers::none();
    login.max_delay = Some(std::time::Duration::from_secs(2));
    let failed: StatusRange = "401".parse().unwrap();
    login.count_if = StatusFilter::Only(vec![failed]);
    let rules = rules(vec![login, rule("plain")]);
    let plan = plan(&rules, &parse_request("GET /"));
    let [login, plain] = plan.charges() else {
        panic!()
    };
    assert_eq!(login.settings.headers, Headers::none());
    assert_eq!(
        login.settings.max_delay,
        Some(std::time::Duration::from_secs(2))
    );
    let counts = login.settings.count_filter.as_ref().unwrap();
    let status = |code| http::StatusCode::from_u16(code).unwrap();
    assert!(counts(status(401), &http::HeaderMap::new()));
    assert!(!counts(status(200), &http::HeaderMap::new()));
    assert!(plain.settings.count_filter.is_none() && !plain.settings.shadow);
}

/// Rules of many kinds and requests of many kinds. `plan` compares plan and trace.
#[test]
fn plan_and_trace_agree() {
    let mut list: Vec<Rule> = (0..8).map(|n| rule(&format!("r{n}"))).collect();
    list[0].key = key_by(Source::Ip);
    list[1].matcher = path_matcher("/a/{x}/**");
    list[1].key = key_by(Source::Path("x".into()));
    list[2].key = key_by(header("x-user"));
    list[2].on_missing = Missing::Pass;
    list[3].key = vec![Part::new(header("x-user")).or(Source::Query("u".into()))];
    list[3].on_missing = Missing::Refuse;
    list[3].shadow = true;
    list[4].key = key_by(header("x-user"));
    list[4].allow = vec![key(&["ann"])];
    list[4].deny = vec![key(&["eve"]), network("2001:db8::/64")];
    list[5].matcher = path_matcher("/a/**");
    list[5].stop = true;
    list[6].key = key_by(Source::Cookie("c".into()));
    list[6].on_missing = Missing::Refuse;
    let rules = rules(list);
    tallygate_testkit::with_each_seed(|rng| {
        for _ in 0..2_000 {
            let path = any(rng, &["/a", "/a/1", "/a/2/b", "/b", "/a/%31", "/b?u=1"]);
            let mut request = parse_request(&format!("GET {path}"));
            if rng.bool() {
                request = super::from("2001:db8::7", request);
            }
            for _ in 0..rng.usize(0..3) {
                request = with("x-user", any(rng, &["ann", "bob", "eve", ""]), request);
            }
            for _ in 0..rng.usize(0..3) {
                request = with("cookie", any(rng, &["c=1", "c=2", "d=1"]), request);
            }
            plan(&rules, &request);
        }
    });
}
