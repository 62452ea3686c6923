//! Methods that build a [`Rule`] in Rust, with functions where a file has fields.

use std::borrow::Cow;
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, StatusCode};
use tallygate_core::Quota;

use super::{
    Cost, Missing, Name, Part, Quotas, RequestFn, ResponseFn, Rule, RuleLimits, Share, Source,
    StatusFilter, TierBy, Tiers,
};
use crate::failure::OnFailure;
use crate::http::{ActualCost, ActualSource, Head, Headers};
use crate::key::Key;
use crate::limit::LeaseSettings;

/// The key of a rule that was given none.
fn shared_key() -> Part {
    Part::new(Source::Constant("all".into()))
}

fn header(name: &str) -> Source {
    let name = name.parse::<HeaderName>();
    Source::Header(name.expect("a header's name is letters, digits and hyphens"))
}

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
        rule.key = vec![shared_key()];
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
    ///
    /// The server has to record it: with axum,
    /// `app.into_make_service_with_connect_info::<SocketAddr>()`; other servers insert a
    /// [`Peer`](crate::http::Peer). Requests without an address are answered with status 500:
    /// otherwise all clients would share one budget.
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
        self.part(header(name))
    }

    /// Identifies clients that lack the part of the key before by their address; see
    /// [`by_ip`](Rule::by_ip). An address never shares a counter with a header of that value.
    ///
    /// ```
    /// use tallygate::Quota;
    /// use tallygate::rules::Rule;
    ///
    /// let api = Rule::new("api", Quota::per_minute(600)).by_header("x-api-key").or_ip();
    /// ```
    #[must_use]
    pub fn or_ip(self) -> Self {
        self.or(Source::Ip)
    }

    /// Identifies clients that lack the part of the key before by another header; see
    /// [`by_header`](Rule::by_header).
    ///
    /// # Panics
    /// When it is not the name of a header.
    #[must_use]
    pub fn or_header(self, name: &str) -> Self {
        self.or(header(name))
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
        if self.key == [shared_key()] {
            self.key.clear();
        }
        self.key.push(Part::new(source));
        self
    }

    /// Adds a source to the last part, or a part if there is none.
    fn or(mut self, source: Source) -> Self {
        match self.key.pop().filter(|part| *part != shared_key()) {
            Some(part) => self.key.push(part.or(source)),
            None => self.key.push(Part::new(source)),
        }
        self
    }

    /// Divides the quotas that are `shared` among members.
    #[must_use]
    pub fn share(mut self, share: Share) -> Self {
        self.share = Some(share);
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

    /// Corrects the cost when the response has ended, by what the response says: the first of some
    /// sources that has it. Without an answer the cost stays: a value that is no whole number, a
    /// response that breaks off, a client that disconnects.
    ///
    /// ```
    /// use tallygate::Quota;
    /// use tallygate::http::ActualSource;
    /// use tallygate::rules::Rule;
    ///
    /// let tokens = Rule::new("tokens", Quota::per_minute(100_000))
    ///     .by_header("x-api-key")
    ///     .cost(|_| 1_000)
    ///     .actual_cost([
    ///         ActualSource::Header("x-tokens".parse()?),
    ///         ActualSource::Json("usage.total_tokens".parse()?),
    ///     ]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn actual_cost(mut self, sources: impl IntoIterator<Item = ActualSource>) -> Self {
        self.actual = Some(ActualCost::new(sources));
        self
    }

    /// Sets what to decide when the store fails. By default the engine's policy, which is
    /// [`OnFailure::Local`] by default.
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

    /// Lets every process take units of the limits ahead and spend them without asking the store; see
    /// [`Limit::lease`](crate::Limit::lease).
    #[must_use]
    pub fn lease(mut self, settings: LeaseSettings) -> Self {
        self.lease = Some(settings);
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
