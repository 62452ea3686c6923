//! Limits that can be walked around because of whom they believe. Knows the headers that proxies
//! write and clients can write too.

use super::{Checked, Problem, RulePlaces, SPOOFABLE_KEY, SPOOFABLE_STOP, UNTRUSTED_PROXY};
use crate::config::source::Span;
use tallygate::rules::{HeaderTest, Limits, Rule, Source, TierBy};

/// Lists that every client may begin as it likes, whoever is in front.
const LISTS: [&str; 2] = ["x-forwarded-for", "forwarded"];
/// Addresses that some proxies write, and without one any client.
const ADDRESSES: [&str; 6] = [
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fly-client-ip",
];

/// Keys made of a header that a client can write another address into with every request.
pub(super) fn spoofable_keys(checked: &Checked, problems: &mut Vec<Problem>) {
    for (rule, places) in checked.rules() {
        for (part, span) in rule.key.iter().zip(&places.key) {
            let named = part.sources().find_map(|source| match source {
                Source::Header(name) => {
                    let name = name.as_str();
                    let list = LISTS.contains(&name);
                    let address = ADDRESSES.contains(&name) && checked.proxies.is_none();
                    (list || address).then(|| name.to_owned())
                }
                Source::Ip
                | Source::Cookie(_)
                | Source::Query(_)
                | Source::Path(_)
                | Source::Claim { .. }
                | Source::Route
                | Source::Method
                | Source::Host
                | Source::Constant(_) => None,
            });
            if let Some(name) = named {
                let message = format!("a client can write anything into `{name}`");
                let problem = Problem::warning(SPOOFABLE_KEY, *span, message);
                let hint = "`ip` is the client's address; `trusted_proxies` says whom to believe";
                problems.push(problem.help(hint));
            }
        }
    }
}

/// Rules that keep others from applying where a header says so, with nobody in front who could
/// remove that header: any client can walk around the rules after them.
pub(super) fn spoofable_stops(checked: &Checked, problems: &mut Vec<Problem>) {
    if checked.proxies.is_some() {
        return;
    }
    let rules: Vec<_> = checked.rules().filter(|(rule, _)| !rule.shadow).collect();
    let Some((_, before)) = rules.split_last() else {
        return;
    };
    for (rule, places) in before.iter().filter(|(rule, _)| rule.stop) {
        if let Some(header) = rule.when.headers.first() {
            let message = match header.test {
                HeaderTest::Absent => {
                    format!(
                        "a client who leaves `{}` out is past the rules after this",
                        header.name
                    )
                }
                HeaderTest::Present | HeaderTest::Like(_) => {
                    format!(
                        "a client who writes `{}` is past the rules after this",
                        header.name
                    )
                }
            };
            let place = places.stop.unwrap_or(places.name);
            let problem = Problem::warning(SPOOFABLE_STOP, place, message);
            let hint = "match by what clients cannot choose; behind a proxy that removes the \
                        header, say so with `trusted_proxies`";
            problems.push(problem.help(hint));
        }
    }
}

/// A limit by address in a file that counts on somebody in front, and does not say whom to believe:
/// all clients would have that one's address.
pub(super) fn untrusted_proxy(checked: &Checked, problems: &mut Vec<Problem>) {
    if checked.proxies.is_some() {
        return;
    }
    let mut rules = checked.rules();
    let Some((sign, what)) = rules.find_map(|(rule, places)| in_front(rule, places)) else {
        return;
    };
    for (rule, places) in checked.rules() {
        let by_ip = rule.key.iter().zip(&places.key).find(|(part, _)| {
            let mut sources = part.sources();
            sources.any(|source| *source == Source::Ip)
        });
        if let Some((_, span)) = by_ip {
            let message = "behind a proxy that is not trusted, all clients have one address";
            let problem = Problem::warning(UNTRUSTED_PROXY, *span, message);
            let problem = problem.other(sign, what);
            problems.push(problem.help("say who it is: `trusted_proxies: [10.0.0.0/8]`"));
            return;
        }
    }
}

/// What shows that somebody is in front: headers that make sense only if a proxy writes them.
fn in_front(rule: &Rule, places: &RulePlaces) -> Option<(Span, &'static str)> {
    let claim = rule.key.iter().zip(&places.key).find(|(part, _)| {
        let mut sources = part.sources();
        sources.any(|source| matches!(source, Source::Claim { .. }))
    });
    if let Some((_, span)) = claim {
        return Some((*span, "a claim that somebody in front has verified"));
    }
    if let Limits::Tiered(tiers) = &rule.limits
        && matches!(tiers.by(), TierBy::Header(_))
    {
        return Some((places.name, "its tiers come from somebody in front"));
    }
    let forwarded = rule.when.headers.iter().any(|header| {
        let name = header.name.as_str();
        name.starts_with("x-forwarded-") && !matches!(header.test, HeaderTest::Absent)
    });
    forwarded.then_some((places.name, "it looks at what somebody in front forwards"))
}
