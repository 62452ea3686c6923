//! Tiers and costs.

use http::Method;
use tallygate::http::ClientAddress;
use tallygate::rules::{
    Cost, KeyText, Part, RuleLimits, RuleOutcome, Rules, Source, TierBy, Tiers, TiersError,
};

use super::{from, header, key_by, only_key, parse_request, plan, quotas, rule, rules, with};

fn tiers(by: TierBy) -> RuleLimits {
    let free = ("free".parse().unwrap(), quotas(&["100/h"]));
    let pro = quotas(&["10000/h", "token-bucket 50/s burst 200"]);
    let pro = ("pro".parse().unwrap(), pro);
    RuleLimits::Tiered(Tiers::new(by, "free".parse().unwrap(), vec![free, pro]).unwrap())
}

fn hourly(rules: &Rules, request: &http::Request<()>) -> u32 {
    plan(rules, request).charges()[0].limits[0].quota().limit()
}

#[test]
fn a_header_selects_the_tier_and_other_values_the_default() {
    let mut api = rule("api");
    api.key = key_by(header("x-user"));
    api.limits = tiers(TierBy::Header("x-plan".parse().unwrap()));
    let rules = rules(vec![api]);
    let pro = with("x-plan", "pro", parse_request("GET /"));
    assert_eq!(hourly(&rules, &pro), 10_000);
    assert_eq!(plan(&rules, &pro).charges()[0].limits.len(), 2);
    for value in ["free", "", "PRO", "gold", "pro,free"] {
        assert_eq!(
            hourly(&rules, &with("x-plan", value, parse_request("GET /"))),
            100,
            "{value}"
        );
    }
    assert_eq!(hourly(&rules, &parse_request("GET /")), 100);
    // Conflicting values select the default.
    assert_eq!(hourly(&rules, &with("x-plan", "free", pro.clone())), 100);

    let (a, b) = (plan(&rules, &pro), plan(&rules, &parse_request("GET /")));
    let (a, b) = (&a.charges()[0].limits[0], &b.charges()[0].limits[0]);
    assert_eq!(a.name(), b.name(), "moving up keeps the count");
    let trace = rules.trace(&(&pro).into());
    let RuleOutcome::Applies { tier, .. } = &trace.rules[0].outcome else {
        panic!()
    };
    assert_eq!(tier.as_ref().unwrap().as_str(), "pro");
}

#[test]
fn tiers_costs_and_claims_of_others_than_the_named_proxies_are_ignored() {
    let mut api = rule("api");
    let claim = Source::Claim {
        header: "x-claims".parse().unwrap(),
        name: "sub".into(),
    };
    api.key = vec![Part::new(claim).or(Source::Ip)];
    api.limits = tiers(TierBy::Header("x-plan".parse().unwrap()));
    api.cost = Cost::Header {
        name: "x-cost".parse().unwrap(),
        default: 5,
        min: 1,
        max: 50,
    };
    let plain = |ip| from(ip, parse_request("GET /"));
    let forged = |ip| {
        let request = with("x-plan", "pro", with("x-cost", "1", plain(ip)));
        with("x-claims", r#"{"sub":"ann"}"#, request)
    };
    let proxies = || ClientAddress::behind(["10.0.0.0/8".parse().unwrap()]);
    for (client, ip, is_believed) in [
        (proxies(), "203.0.113.7", false),
        (proxies(), "64:ff9b::10.1.2.3", false),
        (proxies(), "10.1.2.3", true),
        (proxies(), "::ffff:10.1.2.3", true),
        // Nothing tells a proxy from a client.
        (ClientAddress::peer(), "203.0.113.7", true),
        (ClientAddress::behind_hops(1), "203.0.113.7", true),
    ] {
        let rules = rules(vec![api.clone()]).with_client(client);
        let (forged, plain) = (forged(ip), plain(ip));
        let (tier, cost) = if is_believed { (10_000, 1) } else { (100, 5) };
        assert_eq!(hourly(&rules, &forged), tier, "{ip}");
        assert_eq!(plan(&rules, &forged).charges()[0].cost, cost, "{ip}");
        let same_key = only_key(&rules, &forged) == only_key(&rules, &plain);
        assert_eq!(same_key, !is_believed, "{ip}");
        let ignored = rules.trace(&(&forged).into()).ignored_headers;
        let expected: &[&str] = if is_believed {
            &[]
        } else {
            &["x-plan", "x-cost", "x-claims"]
        };
        assert_eq!(ignored, expected, "{ip}");
        // A caller that names the rule vouches for the request.
        let named = rules.plan_rule("api", &(&forged).into()).unwrap();
        assert_eq!(named.charges()[0].cost, 1, "{ip}");
    }
    // Without an address nobody is a named proxy.
    let Some(claim) = api.key[0].sources().next().cloned() else {
        panic!("the key has a claim");
    };
    api.key = vec![Part::new(claim).or(Source::Constant("none".into()))];
    let rules = rules(vec![api]).with_client(proxies());
    let mut forged = forged("10.1.2.3");
    forged.extensions_mut().clear();
    assert_eq!(hourly(&rules, &forged), 100);
}

#[test]
fn a_list_of_keys_selects_the_tier() {
    let mut api = rule("api");
    api.key = key_by(header("x-tenant"));
    let listed = |text: &str| (KeyText::new([text]), "pro".parse().unwrap());
    api.limits = tiers(TierBy::Keys(vec![listed("acme"), listed("globex")]));
    let rules = rules(vec![api]);
    let entries = |tenant: &str| hourly(&rules, &with("x-tenant", tenant, parse_request("GET /")));
    assert_eq!(entries("acme"), 10_000);
    assert_eq!(entries("globex"), 10_000);
    assert_eq!(entries("initech"), 100);
    assert_eq!(hourly(&rules, &parse_request("GET /")), 100);
}

#[test]
fn tiers_must_exist_and_have_unique_names() {
    let tier = |name: &str| (name.parse().unwrap(), quotas(&["1/s"]));
    let by = || TierBy::Header("x-plan".parse().unwrap());
    let free = || "free".parse().unwrap();
    let unknown = Tiers::new(by(), free(), vec![tier("pro")]);
    assert_eq!(unknown.unwrap_err(), TiersError::Unknown { name: free() });
    let twice = Tiers::new(by(), free(), vec![tier("free"), tier("free")]);
    assert_eq!(twice.unwrap_err(), TiersError::Twice { name: free() });
    let listed = TierBy::Keys(vec![(KeyText::new(["acme"]), "gold".parse().unwrap())]);
    let unlisted = Tiers::new(listed, free(), vec![tier("free")]);
    assert!(matches!(unlisted, Err(TiersError::Unknown { .. })));
}

#[test]
fn a_cost_from_a_header_stays_within_its_bounds() {
    let mut api = rule("api");
    api.cost = Cost::Header {
        name: "x-cost".parse().unwrap(),
        default: 2,
        min: 1,
        max: 50,
    };
    let rules = rules(vec![api]);
    let cost = |request: &http::Request<()>| plan(&rules, request).charges()[0].cost;
    for (value, expected) in [
        ("7", 7),
        ("0", 1),
        ("50", 50),
        ("51", 50),
        ("99999999999999999999", 50),
        ("-1", 2),
        ("1.5", 2),
        ("", 2),
        ("many", 2),
    ] {
        assert_eq!(
            cost(&with("x-cost", value, parse_request("GET /"))),
            expected,
            "{value}"
        );
    }
    assert_eq!(cost(&parse_request("GET /")), 2);
    // A second value does not make a request cheaper.
    let both = with("x-cost", "1", with("x-cost", "9", parse_request("GET /")));
    assert_eq!(cost(&both), 9);
    // A proxy may have merged them.
    for joined in ["1, 9", "9,1", "x, 9 ,", "1,,9"] {
        let joined = with("x-cost", joined, parse_request("GET /"));
        assert_eq!(cost(&joined), 9);
    }
}

#[test]
fn a_cost_by_method_has_a_default() {
    let mut api = rule("api");
    api.cost = Cost::Method {
        costs: vec![(Method::POST, 5), (Method::GET, 0)],
        default: 2,
    };
    assert_eq!(api.cost.max(), 5);
    let rules = rules(vec![api]);
    let cost = |line: &str| plan(&rules, &parse_request(line)).charges()[0].cost;
    assert_eq!([cost("POST /"), cost("GET /"), cost("PUT /")], [5, 0, 2]);
    assert_eq!([cost("post /"), cost("Get /"), cost("put /")], [5, 0, 2]);
}
