//! Rules: from a request to the limits it has to fit. Knows requests by their heads; knows nothing
//! of the file that rules are written in, of stores, or of who serves.
//!
//! All enabled rules that match a request apply, in order, until one says `stop`.

mod client_list;
mod coalesce;
mod compile;
mod cost;
mod evaluate;
mod extract;
mod glob;
mod grpc;
mod key_part;
mod matcher;
mod name;
mod overlap;
mod overrides;
mod path;
mod path_variants;
mod quotas;
mod request_view;
mod status_filter;
mod swap;
mod text_error;
mod tiers;
mod trace;
mod validate;

use std::time::Duration;

use crate::OnFailure;
use crate::http::{ClientAddress, Headers};

pub use crate::http::Missing;
pub use coalesce::{Identical, SharedBy};
pub use cost::Cost;
pub use evaluate::{By, Rules, Standing};
pub use glob::Glob;
pub use grpc::GrpcPattern;
pub use key_part::{MAX_PARTS, Part, Source};
pub use matcher::{HeaderMatch, HeaderTest, HostPattern, Match, Mismatch};
pub use name::Name;
pub use overrides::{Entry, Instead, KeyText, Override};
pub use path::{Path, PathPattern};
pub use quotas::{Quotas, QuotasError};
pub use status_filter::{Answers, Statuses};
pub use swap::Live;
pub use text_error::TextError;
pub use tiers::{Limits, TierBy, Tiers, TiersError};
pub use trace::{Fate, Looked, Sight, Step, Trace};
pub use validate::Kinds;
pub use validate::{Fault, List};

/// Rules as they were written, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSet {
    /// Who a client is.
    pub client: ClientAddress,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// What holds instead of a rule for some, in order: the first that fits counts.
    pub overrides: Vec<Override>,
}

/// A rule: which requests it is about, who is limited, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name, which its counters go by; no other rule has it.
    pub name: Name,
    /// Whether it applies at all.
    pub enabled: bool,
    /// Which requests it is about.
    pub when: Match,
    /// Who is limited; without any part, all together.
    pub key: Vec<Part>,
    /// What happens to a request that does not say who it is.
    pub on_missing: Missing,
    /// How much is allowed.
    pub limits: Limits,
    /// How much a request takes.
    pub cost: Cost,
    /// Whom it does not apply to.
    pub allow: Vec<Entry>,
    /// Whom it turns away. Goes before `allow`.
    pub deny: Vec<Entry>,
    /// What to answer when the store does not.
    pub on_failure: OnFailure,
    /// How long the store may take; none: the limiter's own.
    pub deadline: Option<Duration>,
    /// Whether it only watches: it counts and stops nothing.
    pub shadow: bool,
    /// Whether rules after it do not apply where it applies. They do to a request that names
    /// another host too, or has a path that some servers read as another, which it is not about.
    pub stop: bool,
    /// Which headers tell the client.
    pub headers: Headers,
    /// Which answers count; what was taken for any other is given back.
    pub counts: Answers,
    /// The longest that a request may be held back by shaping.
    pub longest_delay: Option<Duration>,
    /// What makes requests identical that share one call to an upstream; none: no request does.
    pub single_flight: Option<SharedBy>,
}

impl Default for RuleSet {
    /// No rules; the client is the socket's peer.
    fn default() -> Self {
        RuleSet {
            client: ClientAddress::peer(),
            rules: Vec::new(),
            overrides: Vec::new(),
        }
    }
}

impl Rule {
    /// A rule about every request that limits all clients together, everything else as it is
    /// unless told otherwise.
    pub fn new(name: Name, limits: Limits) -> Self {
        Rule {
            name,
            enabled: true,
            when: Match::default(),
            key: Vec::new(),
            on_missing: Missing::default(),
            limits,
            cost: Cost::default(),
            allow: Vec::new(),
            deny: Vec::new(),
            on_failure: OnFailure::default(),
            deadline: None,
            shadow: false,
            stop: false,
            headers: Headers::default(),
            counts: Answers::default(),
            longest_delay: None,
            single_flight: None,
        }
    }
}
