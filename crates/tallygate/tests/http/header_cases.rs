//! Rule sets, and the rate limit headers that a client gets. The tower layer and the server run them.

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// A rules file without its version.
    pub(crate) rules: &'static str,
    /// The headers are those of the last of this many requests.
    pub(crate) requests: u32,
    pub(crate) status: u16,
    /// The rate limit headers, in the order of `NAMES`.
    pub(crate) headers: &'static [&'static str],
}

pub(crate) const NAMES: [&str; 6] = [
    "retry-after",
    "ratelimit-policy",
    "ratelimit",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

const fn admitted(
    name: &'static str,
    rules: &'static str,
    requests: u32,
    headers: &'static [&'static str],
) -> Case {
    Case {
        name,
        rules,
        requests,
        status: 200,
        headers,
    }
}

const fn refused(
    name: &'static str,
    rules: &'static str,
    requests: u32,
    headers: &'static [&'static str],
) -> Case {
    Case {
        status: 429,
        ..admitted(name, rules, requests, headers)
    }
}

pub(crate) const CASES: &[Case] = &[
    admitted(
        "a keyed rule with one limit is named by the rule alone",
        "rules: [{ name: client, key: ip, limits: sliding-window-log 10/d }]",
        1,
        &[
            "ratelimit-policy: \"client\";q=10;w=86400",
            "ratelimit: \"client\";r=9;t=86400",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 9",
            "x-ratelimit-reset: 86400",
        ],
    ),
    admitted(
        "a keyless rule is not told",
        "rules: [{ name: all, limits: sliding-window-log 10/d }]",
        1,
        &[],
    ),
    admitted(
        "a constant is no key",
        "rules: [{ name: all, key: { constant: eu }, limits: sliding-window-log 10/d }]",
        1,
        &[],
    ),
    admitted(
        "a keyless rule is told on request",
        "rules: [{ name: all, headers: on, limits: sliding-window-log 10/d }]",
        1,
        &[
            "ratelimit-policy: \"all\";q=10;w=86400",
            "ratelimit: \"all\";r=9;t=86400",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 9",
            "x-ratelimit-reset: 86400",
        ],
    ),
    admitted(
        "a keyless rule does not replace a client's own limit",
        "rules:
  - { name: all, limits: sliding-window-log 5/d }
  - { name: client, key: ip, limits: sliding-window-log 1000/h }",
        4,
        &[
            "ratelimit-policy: \"client\";q=1000;w=3600",
            "ratelimit: \"client\";r=996;t=3600",
            "x-ratelimit-limit: 1000",
            "x-ratelimit-remaining: 996",
            "x-ratelimit-reset: 3600",
        ],
    ),
    admitted(
        "a hidden rule does not hide others",
        "rules:
  - { name: hidden, key: ip, headers: off, limits: sliding-window-log 5/d }
  - { name: client, key: ip, limits: sliding-window-log 1000/h }",
        4,
        &[
            "ratelimit-policy: \"client\";q=1000;w=3600",
            "ratelimit: \"client\";r=996;t=3600",
            "x-ratelimit-limit: 1000",
            "x-ratelimit-remaining: 996",
            "x-ratelimit-reset: 3600",
        ],
    ),
    admitted(
        "the smallest part of a capacity is shown, not the smallest number",
        "rules:
  - { name: small, key: ip, limits: sliding-window-log 5/h }
  - { name: large, key: ip, limits: sliding-window-log 10/d, cost: 3 }",
        1,
        &[
            "ratelimit-policy: \"small\";q=5;w=3600, \"large\";q=10;w=86400",
            "ratelimit: \"large\";r=7;t=86400",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 7",
            "x-ratelimit-reset: 86400",
        ],
    ),
    admitted(
        "of equal parts the first is shown",
        "rules:
  - { name: large, key: ip, limits: sliding-window-log 10/d, cost: 2 }
  - { name: small, key: ip, limits: sliding-window-log 5/h }",
        2,
        &[
            "ratelimit-policy: \"large\";q=10;w=86400, \"small\";q=5;w=3600",
            "ratelimit: \"large\";r=6;t=86400",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 6",
            "x-ratelimit-reset: 86400",
        ],
    ),
    admitted(
        "several limits of a rule have their own names",
        "rules:
  - name: api
    key: ip
    limits: [sliding-window-log 10/d, { quota: sliding-window-log 5/d, name: slow }]",
        1,
        &[
            "ratelimit-policy: \"api sliding-window-log/d\";q=10;w=86400, \
             \"api slow\";q=5;w=86400",
            "ratelimit: \"api slow\";r=4;t=86400",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
            "x-ratelimit-reset: 86400",
        ],
    ),
    admitted(
        "a shadow rule is not told",
        "rules:
  - { name: shadow, key: ip, limits: sliding-window-log 1/d, shadow: true }
  - { name: client, key: ip, limits: sliding-window-log 10/h }",
        3,
        &[
            "ratelimit-policy: \"client\";q=10;w=3600",
            "ratelimit: \"client\";r=7;t=3600",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 7",
            "x-ratelimit-reset: 3600",
        ],
    ),
    admitted(
        "the rule of the shown limit chooses the families",
        "headers: { x_ratelimit: false }
rules:
  - { name: other, key: ip, limits: sliding-window-log 10/d, headers: { ratelimit: draft-07 } }
  - { name: client, key: ip, limits: sliding-window-log 10/h, cost: 2 }
  - { name: more, key: ip, limits: sliding-window-log 100/h, headers: { ratelimit: latest } }",
        1,
        &[
            "ratelimit-policy: \"client\";q=10;w=3600, \"more\";q=100;w=3600",
            "ratelimit: \"client\";r=8;t=3600",
        ],
    ),
    admitted(
        "a budget is listed once, and its rules spend the sum of their costs",
        "budgets: { api: { key: ip, limits: sliding-window-log 10/d } }
rules:
  - { name: read, budget: api }
  - { name: search, budget: api, cost: 5 }",
        1,
        &[
            "ratelimit-policy: \"api\";q=10;w=86400",
            "ratelimit: \"api\";r=4;t=86400",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 4",
            "x-ratelimit-reset: 86400",
        ],
    ),
    admitted(
        "a budget is told if one of its rules is",
        "budgets: { api: { key: ip, limits: sliding-window-log 10/d } }
rules:
  - { name: read, budget: api, headers: off }
  - { name: own, key: ip, limits: sliding-window-log 100/d }
  - { name: search, budget: api, cost: 5 }",
        1,
        &[
            "ratelimit-policy: \"own\";q=100;w=86400, \"api\";q=10;w=86400",
            "ratelimit: \"api\";r=4;t=86400",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 4",
            "x-ratelimit-reset: 86400",
        ],
    ),
    refused(
        "a refusal shows the limit that refuses",
        "rules:
  - { name: client, key: ip, limits: sliding-window-log 2/h }
  - { name: other, key: ip, limits: sliding-window-log 10/d, cost: 5 }",
        3,
        &[
            "retry-after: 86400",
            "ratelimit-policy: \"client\";q=2;w=3600, \"other\";q=10;w=86400",
            "ratelimit: \"other\";r=0;t=86400",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 86400",
        ],
    ),
    refused(
        "an admitting limit with nothing left gives way to one that refuses",
        "rules:
  - { name: free, key: ip, limits: sliding-window-log 2/h, cost: { method: { POST: 1 }, default: 1 } }
  - { name: dear, key: ip, limits: sliding-window-log 5/d, cost: 3 }",
        2,
        &[
            "retry-after: 86400",
            "ratelimit-policy: \"free\";q=2;w=3600, \"dear\";q=5;w=86400",
            "ratelimit: \"dear\";r=2;t=86400",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 2",
            "x-ratelimit-reset: 86400",
        ],
    ),
    refused(
        "if only a keyless rule refuses, clients are told when to retry",
        "rules:
  - { name: all, limits: sliding-window-log 1/d }
  - { name: client, key: ip, limits: sliding-window-log 10/h }",
        2,
        &["retry-after: 86400"],
    ),
    refused(
        "if only a hidden rule refuses, clients are told when to retry",
        "rules:
  - { name: client, key: ip, limits: sliding-window-log 10/h }
  - { name: hidden, key: ip, headers: off, limits: sliding-window-log 1/d }",
        2,
        &["retry-after: 86400"],
    ),
    refused(
        "of two refusing limits the told one is shown, and the longest retry counts",
        "rules:
  - { name: all, limits: sliding-window-log 1/d }
  - { name: client, key: ip, limits: sliding-window-log 1/h }",
        2,
        &[
            "retry-after: 86400",
            "ratelimit-policy: \"client\";q=1;w=3600",
            "ratelimit: \"client\";r=0;t=3600",
            "x-ratelimit-limit: 1",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 3600",
        ],
    ),
    refused(
        "of two told and refusing limits the one with the longest retry is shown",
        "rules:
  - { name: hour, key: ip, limits: sliding-window-log 1/h }
  - { name: day, key: ip, limits: sliding-window-log 1/d }",
        2,
        &[
            "retry-after: 86400",
            "ratelimit-policy: \"hour\";q=1;w=3600, \"day\";q=1;w=86400",
            "ratelimit: \"day\";r=0;t=86400",
            "x-ratelimit-limit: 1",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 86400",
        ],
    ),
    refused(
        "a cost that never fits has no time to retry",
        "rules:
  - { name: hour, key: ip, limits: sliding-window-log 1/h }
  - { name: large, key: ip, limits: sliding-window-log 10/d, cost: 20 }",
        1,
        &[
            "ratelimit-policy: \"hour\";q=1;w=3600, \"large\";q=10;w=86400",
            "ratelimit: \"large\";r=10;t=0",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 10",
            "x-ratelimit-reset: 0",
        ],
    ),
    refused(
        "without headers a refusal says when to retry",
        "headers: off
rules: [{ name: client, key: ip, limits: sliding-window-log 1/d }]",
        2,
        &["retry-after: 86400"],
    ),
    refused(
        "a rule can have headers that others have not",
        "headers: off
rules:
  - { name: client, key: ip, limits: sliding-window-log 1/d, headers: on }
  - { name: hidden, key: ip, limits: sliding-window-log 1/d }",
        2,
        &[
            "retry-after: 86400",
            "ratelimit-policy: \"client\";q=1;w=86400",
            "ratelimit: \"client\";r=0;t=86400",
            "x-ratelimit-limit: 1",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 86400",
        ],
    ),
    refused(
        "no headers at all",
        "headers: { retry_after: false, ratelimit: off, x_ratelimit: false }
rules: [{ name: client, key: ip, limits: sliding-window-log 1/d }]",
        2,
        &[],
    ),
];
