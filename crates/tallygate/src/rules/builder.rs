//! Methods that build a [`Rule`] in Rust, with functions where a file has fields.

use std::borrow::Cow;
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, StatusCode};
use tallygate_core::Quota;

use super::{
    Cost, Missing, Name, Part, Quotas, RequestFn, ResponseFn, Rule, RuleLimits, Source,
    StatusFilter, TierBy, Tiers,
};
use crate::failure::OnFailure;
use crate::http::{Head, Headers};
use crate::key::Key;

/// The key of a rule that was given none.
const SHARED_KEY: &str = "all";

impl Rule {
    /// Returns a rule that limits all requests together. With a `by…` method each client is
    /// limited; with several, their parts make one key.
    ///
    /// The name is shown to clients and is part of the names of the counters. Any text is allowed.
    pub fn new(name: impl AsRef<str>, quota: Quota) -> Self {
        let mut rule = Rule::with_limits(
            Name::unchecked(name.as_ref()),
            RuleLimits::Same(Quotas::from(quota)),
        );
        rule.key = vec![Part::new(Source::Constant(SHARED_KEY.into()))];
        rule
    }

    /// Adds a quota: a request must fit all of them, or is charged to none.
    ///
    /// # Panics
    /// When there are more than 64.
    #[must_use]
    pub fn limit(mut self, quota: Quota) -> Self {
        match &mut self.limits {
            RuleLimits::Same(quotas) => quotas.push(quota),
            RuleLimits::Tiered(tiers) => tiers.default_quotas().push(quota),
        }
        self
    }

    /// Gives clients of a tier other quotas; see [`tier_by`](Rule::tier_by).
    ///
    /// # Panics
    /// When there is no quota or more than 64.
    #[must_use]
    pub fn tier(self, name: impl AsRef<str>, quotas: impl IntoIterator<Item = Quota>) -> Self {
        let mut quotas = quotas.into_iter();
        let mut list = Quotas::from(quotas.next().expect("a tier has a quota"));
        quotas.for_each(|quota| list.push(quota));
        self.with_tiers(|tiers| tiers.set(Name::unchecked(name.as_ref()), list))
    }

    /// Sets the function that returns a client's tier. Without a tier of that name, the rule's own
    /// quotas apply. A client that changes its tier keeps the counters whose algorithm and period
    /// are the same.
    ///
    /// ```
    /// use tallygate::Quota;
    /// use tallygate::rules::Rule;
    ///
    /// let api = Rule::new("api", Quota::per_hour(100))
    ///     .tier("pro", [Quota::per_hour(10_000)])
    ///     .by_header("x-api-key")
    ///     .tier_by(|head| head.headers().get("x-plan")?.to_str().ok().map(str::to_owned));
    /// ```
    #[must_use]
    pub fn tier_by<T>(self, tier: impl Fn(&Head<'_>) -> Option<T> + Send + Sync + 'static) -> Self
    where
        T: Into<Cow<'static, str>>,
    {
        let tier = RequestFn::new(move |head| tier(head).map(Into::into));
        self.with_tiers(|tiers| tiers.by = TierBy::Custom(tier))
    }

    /// Changes the tiers; the quotas of a rule without any are its default tier.
    fn with_tiers(mut self, change: impl FnOnce(&mut Tiers)) -> Self {
        let mut tiers = match self.limits {
            RuleLimits::Same(quotas) => Tiers::with_default(quotas),
            RuleLimits::Tiered(tiers) => tiers,
        };
        change(&mut tiers);
        self.limits = RuleLimits::Tiered(tiers);
        self
    }

    /// Sets the function that decides which requests the rule applies to, all by default.
    #[must_use]
    pub fn when(mut self, applies: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.matcher.custom = Some(RequestFn::new(applies));
        self
    }

    /// Adds the client's [address](crate::http::ClientAddress) to the key.
    #[must_use]
    pub fn by_ip(self) -> Self {
        self.part(Source::Ip)
    }

    /// Adds the value of a header to the key. An empty value counts as missing, and so do
    /// conflicting duplicates. Values of headers that hold secrets, such as `Authorization`,
    /// `Cookie` and API keys, are stored as a hash.
    ///
    /// # Panics
    /// When it is not the name of a header.
    #[must_use]
    pub fn by_header(self, name: &str) -> Self {
        let name = name
            .parse::<HeaderName>()
            .expect("a header's name is letters, digits and hyphens");
        self.part(Source::Header(name))
    }

    /// Adds the result of a function to the key; `None` counts as missing.
    ///
    /// ```
    /// use tallygate::Quota;
    /// use tallygate::rules::Rule;
    ///
    /// #[derive(Clone)]
    /// struct User(u64); // inserted by the authentication layer
    ///
    /// let per_user = Rule::new("user", Quota::per_minute(60))
    ///     .by(|head| Some(head.extensions().get::<User>()?.0.to_string()));
    /// ```
    #[must_use]
    pub fn by<K>(self, key: impl Fn(&Head<'_>) -> Option<K> + Send + Sync + 'static) -> Self
    where
        K: Into<Key<'static>>,
    {
        let key = RequestFn::new(move |head| key(head).map(Into::into));
        self.part(Source::Custom(key))
    }

    fn part(mut self, source: Source) -> Self {
        if self.key == [Part::new(Source::Constant(SHARED_KEY.into()))] {
            self.key.clear();
        }
        self.key.push(Part::new(source));
        self
    }

    /// Sets what happens to a request that lacks a part of the key, [`Missing::Shared`] by default.
    #[must_use]
    pub fn missing(mut self, missing: Missing) -> Self {
        self.on_missing = missing;
        self
    }

    /// Sets the function that returns the cost of a request, 1 by default.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.cost = Cost::Custom(RequestFn::new(cost));
        self
    }

    /// Sets what to decide when the store fails. By default the engine's policy, which is
    /// [`OnFailure::Open`] by default.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = Some(policy);
        self
    }

    /// Sets the deadline of the store, 50 ms by default. The shortest of several rules applies.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets shadow mode: the rule counts but never refuses.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// Sets the headers that are sent to clients, all by default.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the longest shaping delay; a request that would be delayed for longer is refused. By
    /// default the length of the queue is the only bound.
    #[must_use]
    pub fn max_delay(mut self, max: Duration) -> Self {
        self.max_delay = Some(max);
        self
    }

    /// Counts only the requests whose response passes a function; the cost of all others is undone
    /// once the response is known. A request whose client disconnects earlier counts.
    ///
    /// ```
    /// use tallygate::Quota;
    /// use tallygate::rules::Rule;
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
        self.count_if = StatusFilter::Custom(ResponseFn::new(counts));
        self
    }
}
