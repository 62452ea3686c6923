//! The rule model: which requests a rule matches, what it is keyed by and how much it allows.
//!
//! A [`RuleSet`] is data, written in Rust or loaded from a file. [`Rules`] is a compiled rule set
//! and a [`Policy`](crate::http::Policy). All enabled rules that match a request apply, in order,
//! up to and including the first with `stop`.
//!
//! ```
//! use tallygate::Quota;
//! use tallygate::rules::{Rule, RuleSet, Rules};
//!
//! let mut login = Rule::new("login", Quota::per_minute(5)).by_ip();
//! login.matcher.paths = vec!["/login".parse()?];
//! let api = Rule::new("api", Quota::per_hour(1_000)).by_header("x-api-key");
//! let rules = Rules::new(RuleSet::from([login, api]))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod builder;
mod coalesce;
mod compile;
mod cost;
mod evaluate;
mod extract;
mod function;
mod glob;
mod grpc;
mod header_names;
mod key_part;
mod limits;
mod matcher;
mod name;
mod overrides;
mod path;
mod path_variants;
mod request_view;
mod share;
mod status_filter;
mod trace;
mod validate;

use std::time::Duration;

use crate::failure::OnFailure;
use crate::http::{ActualCost, ClientAddress, Headers};
use crate::limit::{LeaseSettings, Partition};

pub use crate::http::TextError;
pub use coalesce::{CoalesceBy, CoalesceKey};
pub use cost::{Cost, CostSource};
pub use evaluate::{KeyLimits, ListedBy, Rules, SwappableRules};
pub use function::{Function, RequestFn, ResponseFn};
pub use glob::Glob;
pub use grpc::GrpcPattern;
pub use header_names::HeaderNames;
pub use key_part::{MAX_PARTS, Part, Source};
pub use limits::{Quotas, QuotasError, RuleLimits, TierBy, Tiers, TiersError};
pub use matcher::{HeaderCondition, HeaderMatcher, HostPattern, Matcher, Mismatch};
pub use name::Name;
pub use overrides::{KeyText, ListEntry, Override, OverrideAction};
pub use path::{Path, PathPattern};
pub use share::Share;
pub use status_filter::{StatusFilter, StatusRange};
pub use trace::{RuleOutcome, RuleTrace, SourceTrace, Trace, TracedValue};
pub use validate::{KeyShapes, ListKind, RuleSetError};

/// Rules, overrides and how client addresses are found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    /// How the address of a client is found.
    pub client: ClientAddress,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// The overrides, in order. The first that lists a client applies.
    pub overrides: Vec<Override>,
}

/// A rule: the requests it matches, its key and its limits.
///
/// Rules are written field by field, or with the methods below, which take functions too:
///
/// ```
/// use tallygate::rules::Rule;
/// use tallygate::{OnFailure, Quota};
///
/// let login = Rule::new("login", "sliding-window-log 5/min".parse::<Quota>()?)
///     .limit(Quota::per_day(50))
///     .when(|head| head.uri().path() == "/login")
///     .by_ip()
///     .on_failure(OnFailure::Closed);
/// # Ok::<(), tallygate::QuotaError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The name, unique in a rule set. It is part of the names of the counters, unless the rule has a
    /// budget.
    pub name: Name,
    /// Whether the rule applies at all.
    pub enabled: bool,
    /// The requests it applies to.
    pub matcher: Matcher,
    /// The parts of the key. Without parts, all clients share one counter.
    pub key: Vec<Part>,
    /// The budget that the rule spends. Rules of one budget share counters: they have the same key
    /// and limits, and the rule's name is no part of the names of the counters.
    pub budget: Option<Name>,
    /// What happens to a request that lacks a part of the key.
    pub on_missing: Missing,
    /// How much is allowed.
    pub limits: RuleLimits,
    /// Who shares the limits that are [shared](tallygate_core::Algorithm::is_shared). By default all
    /// requests are of one member.
    pub share: Option<Share>,
    /// The cost of a request.
    pub cost: Cost,
    /// Where the response says what the request really cost. The [cost](Rule::cost) is then an estimate
    /// that is corrected when the response has ended.
    pub actual: Option<ActualCost>,
    /// Clients that the rule does not apply to.
    pub allow: Vec<ListEntry>,
    /// Clients that are refused. Takes precedence over `allow`.
    pub deny: Vec<ListEntry>,
    /// What to decide when the store fails. By default the engine's policy.
    pub on_failure: Option<OnFailure>,
    /// The deadline of the store. By default the engine's.
    pub deadline: Option<Duration>,
    /// Shadow mode: the rule counts but never refuses.
    pub shadow: bool,
    /// Whether later rules are skipped when this one applies. It is ignored for requests that may
    /// be a different request to the application: those with several hosts that do not all match,
    /// and those with a path that some servers read differently and that then does not match.
    pub stop: bool,
    /// The headers that are sent to clients.
    pub headers: Headers,
    /// The responses that count. The cost of all others is undone.
    pub count_if: StatusFilter,
    /// The longest shaping delay; a request that would be delayed for longer is refused.
    pub max_delay: Option<Duration>,
    /// How processes take units of the limits ahead. By default they do not; see
    /// [`Limit::lease`](crate::Limit::lease).
    pub lease: Option<LeaseSettings>,
    /// How many live keys should have their own counters in memory. By default an equal part of
    /// what other rules leave. Whoever builds the store divides it; see
    /// [`MemoryStoreBuilder::partitions`](crate::store::MemoryStoreBuilder::partitions).
    pub keys: Option<usize>,
    /// The part of a memory store that holds the counters.
    pub partition: Partition,
    /// What makes requests identical, so that they share one upstream call. By default none do.
    pub coalesce: Option<CoalesceBy>,
}

/// What happens to a request that lacks a part of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// Requests that lack the same parts, and are equal in the others, share a counter.
    #[default]
    Shared,
    /// The rule does not apply. Conflicting duplicate values are treated as `Shared`: otherwise a
    /// client could bypass the rule by sending a value twice.
    Pass,
    /// The request is refused with status 400.
    Refuse,
}

impl<const N: usize> From<[Rule; N]> for RuleSet {
    fn from(rules: [Rule; N]) -> Self {
        RuleSet {
            rules: rules.into(),
            ..RuleSet::default()
        }
    }
}

impl Rule {
    /// Returns a rule that matches every request, has no key and is otherwise set to the defaults.
    pub fn with_limits(name: Name, limits: RuleLimits) -> Self {
        Rule {
            name,
            enabled: true,
            matcher: Matcher::default(),
            key: Vec::new(),
            budget: None,
            on_missing: Missing::default(),
            limits,
            share: None,
            cost: Cost::default(),
            actual: None,
            allow: Vec::new(),
            deny: Vec::new(),
            on_failure: None,
            deadline: None,
            shadow: false,
            stop: false,
            headers: Headers::default(),
            count_if: StatusFilter::default(),
            max_delay: None,
            lease: None,
            keys: None,
            partition: Partition::default(),
            coalesce: None,
        }
    }
}
