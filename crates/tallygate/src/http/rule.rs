//! Rules in Rust: when one applies, whom it limits, to how much. Knows heads of requests; knows no
//! store.

mod part;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, StatusCode};
use tallygate_core::Quota;

use super::plan::{Charge, Plan, Policy, RuleSettings, Stop, StopReason};
use super::{ClientAddress, Head, Headers, Limits, is_secret};
use crate::failure::OnFailure;
use crate::key::Key;
use crate::limit::Limit;

use part::{Lack, Part};

/// One rule: when it applies, whom it limits, to how much, and what else is to be known of it.
///
/// ```
/// use tallygate::http::Rule;
/// use tallygate::{OnFailure, Quota};
///
/// let login = Rule::new("login", "sliding-window-log 5/min".parse::<Quota>()?)
///     .limit(Quota::per_day(50))
///     .when(|head| head.uri().path() == "/login")
///     .by_ip()
///     .on_failure(OnFailure::Closed);
/// # Ok::<(), tallygate::QuotaError>(())
/// ```
///
/// Without any `by…` it limits all clients together; with several, their parts make one key.
pub struct Rule {
    settings: RuleSettings,
    quotas: Vec<Quota>,
    tiers: Vec<(String, Vec<Quota>)>,
    tier_by: Option<Ask<Option<Cow<'static, str>>>>,
    on_failure: Option<OnFailure>,
    deadline: Option<Duration>,
    when: Option<Ask<bool>>,
    parts: Vec<Part>,
    missing: Missing,
    cost: Option<Ask<u32>>,
}

/// What is asked of each request.
type Ask<T> = Box<dyn Fn(&Head<'_>) -> T + Send + Sync>;

/// What becomes of a request that lacks what a rule tells clients apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// All such requests count as one client.
    #[default]
    Shared,
    /// The rule does not apply to it. One that says it twice counts as if `Shared`: otherwise
    /// saying one thing more would be a way around the rule.
    Pass,
    /// It is turned away, with status 400.
    Refuse,
}

impl Rule {
    /// Limits all clients together to a quota, until told how to tell them apart. The name is
    /// shown to clients, and counters go by it.
    pub fn new(name: impl AsRef<str>, quota: Quota) -> Self {
        Rule {
            settings: RuleSettings::new(name),
            quotas: vec![quota],
            tiers: Vec::new(),
            tier_by: None,
            on_failure: None,
            deadline: None,
            when: None,
            parts: Vec::new(),
            missing: Missing::default(),
            cost: None,
        }
    }

    /// Adds a quota: a request has to fit all of them, or is charged to none.
    #[must_use]
    pub fn limit(mut self, quota: Quota) -> Self {
        self.quotas.push(quota);
        self
    }

    /// Gives clients of a tier other quotas; see [`tier_by`](Rule::tier_by).
    #[must_use]
    pub fn tier(
        mut self,
        name: impl Into<String>,
        quotas: impl IntoIterator<Item = Quota>,
    ) -> Self {
        self.tiers.push((name.into(), quotas.into_iter().collect()));
        self
    }

    /// Finds out a client's tier; where there is none of that name, the rule's own quotas hold.
    /// A client that changes its tier keeps its counts where behaviour and period are the same.
    ///
    /// ```
    /// use tallygate::http::Rule;
    /// use tallygate::Quota;
    ///
    /// let api = Rule::new("api", Quota::per_hour(100))
    ///     .tier("pro", [Quota::per_hour(10_000)])
    ///     .by_header("x-api-key")
    ///     .tier_by(|head| head.headers().get("x-plan")?.to_str().ok().map(str::to_owned));
    /// ```
    #[must_use]
    pub fn tier_by<T>(
        mut self,
        tier: impl Fn(&Head<'_>) -> Option<T> + Send + Sync + 'static,
    ) -> Self
    where
        T: Into<Cow<'static, str>>,
    {
        self.tier_by = Some(Box::new(move |head| tier(head).map(Into::into)));
        self
    }

    /// Says to which requests the rule applies: all unless told otherwise.
    #[must_use]
    pub fn when(mut self, applies: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(Box::new(applies));
        self
    }

    /// Tells clients apart by their [address](ClientAddress).
    #[must_use]
    pub fn by_ip(mut self) -> Self {
        self.parts.push(Part::Ip);
        self
    }

    /// Tells clients apart by a header. An empty one names nobody, nor does one that says two
    /// things, so that nobody can choose which of them counts. Values of headers that hold secrets, such as
    /// `Authorization`, `Cookie` and API keys, are never stored in clear.
    ///
    /// # Panics
    /// When that is no header's name.
    #[must_use]
    pub fn by_header(mut self, name: &str) -> Self {
        let name = name
            .parse::<HeaderName>()
            .expect("a header's name is letters, digits and hyphens");
        let secret = is_secret(name.as_str());
        self.parts.push(Part::Header { name, secret });
        self
    }

    /// Tells clients apart by whatever a function finds; none if a request does not say.
    ///
    /// ```
    /// use tallygate::http::Rule;
    /// use tallygate::{Key, Quota};
    ///
    /// #[derive(Clone)]
    /// struct User(u64); // put there by whatever checked the login
    ///
    /// let per_user = Rule::new("user", Quota::per_minute(60))
    ///     .by(|head| Some(head.extensions().get::<User>()?.0.to_string()));
    /// ```
    #[must_use]
    pub fn by<K>(mut self, key: impl Fn(&Head<'_>) -> Option<K> + Send + Sync + 'static) -> Self
    where
        K: Into<Key<'static>>,
    {
        let told = Box::new(move |head: &Head<'_>| key(head).map(Into::into));
        self.parts.push(Part::Told(told));
        self
    }

    /// Says what becomes of a request that lacks one of the parts: [`Missing::Shared`] unless told
    /// otherwise.
    #[must_use]
    pub fn missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// Finds out how much a request takes: 1 unless told otherwise.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.cost = Some(Box::new(cost));
        self
    }

    /// Says what to answer when the store does not: [`OnFailure::Open`] unless told otherwise.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = Some(policy);
        self
    }

    /// Says how long the store may take: 50 ms unless told otherwise. Of several rules the
    /// shortest counts.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Only watches: it counts, and what it would refuse passes.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.settings.shadow = true;
        self
    }

    /// Says which headers tell the client: all of them unless told otherwise.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.settings.headers = headers;
        self
    }

    /// Sets the longest that shaping may hold a request back; one that would have to wait longer
    /// is refused. Unless told otherwise the queue's length is the only bound.
    #[must_use]
    pub fn max_delay(mut self, max: Duration) -> Self {
        self.settings.max_delay = Some(max);
        self
    }

    /// Counts only requests that are answered like this: what others took is given back once they
    /// are answered. A request whose client leaves before counts.
    ///
    /// ```
    /// use tallygate::http::Rule;
    /// use tallygate::Quota;
    ///
    /// let failed_logins = Rule::new("failed-logins", Quota::per_hour(10))
    ///     .by_ip()
    ///     .count_if(|status, _| status == 401 || status == 403);
    /// ```
    #[must_use]
    pub fn count_if(
        mut self,
        counts: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.settings.count_filter = Some(Arc::new(counts));
        self
    }

    /// The limits of some quotas under this rule's name.
    fn limits(&self, quotas: &[Quota]) -> Arc<Limits> {
        let mut names: Vec<String> = Vec::new();
        let limits = quotas.iter().map(|&quota| {
            let plain = format!("{} {}", self.settings.name, quota.default_name());
            let same = names.iter().filter(|name| **name == plain).count();
            let limit = match same {
                0 => Limit::named(&plain, quota),
                1.. => Limit::named(format!("{plain} {}", same + 1), quota),
            };
            names.push(plain);
            let limit = match self.on_failure {
                Some(policy) => limit.on_failure(policy),
                None => limit,
            };
            match self.deadline {
                Some(deadline) => limit.deadline(deadline),
                None => limit,
            }
        });
        let limits = Limits::new(limits.collect::<Vec<_>>());
        Arc::new(limits.expect("a rule has 1 to 64 quotas"))
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}

/// Rules that all apply: a request passes all of them, or is charged to none.
#[derive(Clone, Debug)]
pub struct Rules {
    client: ClientAddress,
    rules: Vec<Arc<Ready>>,
}

/// A rule with everything worked out that does not depend on the request.
struct Ready {
    rule: Rule,
    settings: Arc<RuleSettings>,
    limits: Arc<Limits>,
    tiers: HashMap<String, Arc<Limits>>,
}

impl Rules {
    /// No rules yet, and clients known by the socket's peer.
    pub fn new() -> Self {
        Rules {
            client: ClientAddress::peer(),
            rules: Vec::new(),
        }
    }

    /// Adds a rule.
    ///
    /// # Panics
    /// When there is a rule of that name already, or the rule or one of its tiers has no quota or
    /// more than 64.
    #[must_use]
    pub fn and(mut self, rule: Rule) -> Self {
        let same = |ready: &Arc<Ready>| ready.settings.name == rule.settings.name;
        assert!(
            !self.rules.iter().any(same),
            "two rules are named `{}`",
            rule.settings.name
        );
        self.rules.push(Arc::new(Ready::new(rule)));
        self
    }

    /// Says how clients' addresses are found: the socket's peer unless told otherwise.
    #[must_use]
    pub fn client(mut self, client: ClientAddress) -> Self {
        self.client = client;
        self
    }

    /// Every limit of every rule and tier.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.rules.iter().flat_map(|ready| {
            let tiers = ready.tiers.values().flat_map(|limits| limits.iter());
            ready.limits.iter().chain(tiers)
        })
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Rules {
    #[inline]
    fn plan(&self, head: &Head<'_>) -> Plan {
        let mut plan = Plan::new();
        for ready in &self.rules {
            ready.apply(&mut plan, head, &self.client);
        }
        plan
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        Rules::limits(self).for_each(each);
    }
}

impl Ready {
    fn new(rule: Rule) -> Self {
        let tiers = rule.tiers.iter();
        let tiers = tiers.map(|(name, quotas)| (name.clone(), rule.limits(quotas)));
        let tiers = tiers.collect();
        let settings = Arc::new(rule.settings.clone());
        let limits = rule.limits(&rule.quotas);
        Ready {
            rule,
            settings,
            limits,
            tiers,
        }
    }

    /// Adds what this rule charges or stops to a plan.
    fn apply(&self, plan: &mut Plan, head: &Head<'_>, client: &ClientAddress) {
        let rule = &self.rule;
        if rule.when.as_ref().is_some_and(|when| !when(head)) {
            return;
        }
        let key = match rule.key(head, client) {
            Ok(key) => key,
            Err(lack) => match self.missing_key(lack, plan) {
                Some(key) => key,
                None => return,
            },
        };
        let tier = rule.tier_by.as_ref().and_then(|tier_by| tier_by(head));
        let limits = tier
            .and_then(|tier| self.tiers.get(&*tier))
            .unwrap_or(&self.limits);
        plan.charge(Charge {
            settings: Arc::clone(&self.settings),
            key,
            limits: Arc::clone(limits),
            cost: rule.cost.as_ref().map_or(1, |cost| cost(head)),
        });
    }

    /// The key of a request that lacks one, if it is to be charged at all.
    #[cold]
    fn missing_key(&self, lack: Lack, plan: &mut Plan) -> Option<Key<'static>> {
        match (lack, self.rule.missing) {
            (_, Missing::Shared) | (Lack::Several, Missing::Pass) => {
                return Some(Key::from_parts::<&str>([]));
            }
            (Lack::Nothing, Missing::Pass) => {}
            (_, Missing::Refuse) if self.settings.shadow => {}
            (_, Missing::Refuse) => plan.stop(Stop {
                settings: Arc::clone(&self.settings),
                reason: StopReason::NoKey,
            }),
        }
        None
    }
}

impl Rule {
    /// Who is limited.
    fn key(&self, head: &Head<'_>, client: &ClientAddress) -> Result<Key<'static>, Lack> {
        let mut parts = self.parts.iter();
        let Some(first) = parts.next() else {
            return Ok(Key::from("all"));
        };
        let first = first.of(head, client)?;
        parts.try_fold(first, |key, part| Ok(key.and_key(&part.of(head, client)?)))
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)
    }
}
