//! Requests: keys, limits, a verb and costs that a store decides in one atomic step.

use std::fmt;

use smallvec::{SmallVec, smallvec};
use tallygate_core::{Verb, Weight};

use crate::error::debug_is_display;
use crate::key::Key;
use crate::limit::Limit;

/// The maximum number of limits of one request.
pub const MAX_LIMITS: usize = 64;

/// A verb and a cost for one or several limits, all or nothing. A limit may have
/// [its own cost](Request::and_cost).
///
/// ```
/// use tallygate::{Limit, Quota, Request};
///
/// let per_user = Limit::named("user", Quota::per_minute(100));
/// let per_tenant = Limit::named("tenant", Quota::per_minute(1_000));
/// let request = Request::new("user:42", &per_user)
///     .and("tenant:7", &per_tenant)?
///     .cost(5);
/// # Ok::<(), tallygate::RequestError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    entries: SmallVec<[RequestEntry<'a>; 2]>,
    verb: Verb,
    cost: u32,
    /// Most requests have none.
    caller: Option<Box<RequestCaller<'a>>>,
}

/// Who asks, for all limits of a request.
#[derive(Clone, Debug, Default)]
struct RequestCaller<'a> {
    member: Option<Member<'a>>,
    owner: Option<Key<'a>>,
    id: Option<Key<'a>>,
}

impl RequestCaller<'_> {
    #[cfg(feature = "tokio")]
    fn to_owned(&self) -> RequestCaller<'static> {
        let owned = |key: &Key<'_>| key.clone().into_owned();
        RequestCaller {
            member: self.member.as_ref().map(Member::to_owned),
            owner: self.owner.as_ref().map(owned),
            id: self.id.as_ref().map(owned),
        }
    }

    fn borrow(&self) -> RequestCaller<'_> {
        RequestCaller {
            member: self.member.as_ref().map(Member::borrow),
            owner: self.owner.as_ref().map(Key::from),
            id: self.id.as_ref().map(Key::from),
        }
    }
}

/// One key and one limit of a request.
#[derive(Clone, Debug)]
pub struct RequestEntry<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The limit.
    pub limit: &'a Limit,
    cost: u32,
    /// Whether the entry has its own cost instead of the request's.
    own_cost: bool,
    /// Its own member instead of the request's.
    member: Option<Box<Member<'a>>>,
}

impl<'a> RequestEntry<'a> {
    /// A key and a limit, with the cost and the member of the request.
    pub fn new(key: impl Into<Key<'a>>, limit: &'a Limit) -> Self {
        RequestEntry {
            key: key.into(),
            limit,
            cost: 1,
            own_cost: false,
            member: None,
        }
    }

    /// Sets its own cost instead of the request's.
    #[must_use]
    pub fn with_cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self.own_cost = true;
        self
    }

    /// Sets its own member of a shared limit instead of the request's.
    #[must_use]
    pub fn with_member(mut self, member: impl Into<Member<'a>>) -> Self {
        self.member = Some(Box::new(member.into()));
        self
    }

    /// The same for another limit and cost, such as this process's part of a limit.
    pub(crate) fn for_limit<'b>(&'b self, limit: &'b Limit, cost: u32) -> RequestEntry<'b> {
        RequestEntry {
            key: Key::from(&self.key),
            limit,
            cost,
            own_cost: true,
            member: self.member.as_deref().map(Member::borrow).map(Box::new),
        }
    }

    /// The cost for this limit: its own, or the request's.
    #[inline]
    pub fn cost(&self) -> u32 {
        self.cost
    }
}

/// A member of a key whose limit [is shared](tallygate_core::Quota::shared_units).
///
/// ```
/// use tallygate::{Limiter, Member, Quota, Verb, Weight};
///
/// let limiter = Limiter::new("token-bucket 100/s burst 100 shared 4".parse::<Quota>()?);
/// let acme = Member::new("acme").weight(Weight::new(4)?);
/// let decision = limiter.decide_now(&limiter.request("api").member(acme));
/// assert_eq!(decision.remaining(), 99); // alone
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Member<'a> {
    pub(crate) name: Key<'a>,
    pub(crate) weight: Weight,
    pub(crate) pinned: bool,
}

impl<'a> Member<'a> {
    /// A member of weight 1.
    pub fn new(name: impl Into<Key<'a>>) -> Self {
        Member {
            name: name.into(),
            weight: Weight::ONE,
            pinned: false,
        }
    }

    /// Sets the weight.
    #[must_use]
    pub fn weight(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }

    /// The name.
    pub fn name(&self) -> &Key<'a> {
        &self.name
    }

    /// The weight.
    pub fn own_weight(&self) -> Weight {
        self.weight
    }

    /// Whether it always has a place.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Gives the member a place however many others there are, because the operator named it. Without,
    /// members beyond the first 10,000 of an epoch only borrow.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        self.pinned = true;
        self
    }
}

impl Member<'_> {
    #[cfg(feature = "tokio")]
    fn to_owned(&self) -> Member<'static> {
        Member {
            name: self.name.clone().into_owned(),
            ..*self
        }
    }

    pub(crate) fn borrow(&self) -> Member<'_> {
        Member {
            name: Key::from(&self.name),
            ..*self
        }
    }
}

impl<'a, K: Into<Key<'a>>> From<K> for Member<'a> {
    fn from(name: K) -> Self {
        Member::new(name)
    }
}

impl<'a> Request<'a> {
    /// Creates a check of cost 1.
    pub fn new(key: impl Into<Key<'a>>, limit: &'a Limit) -> Self {
        Request {
            entries: smallvec![RequestEntry::new(key, limit)],
            verb: Verb::Check,
            cost: 1,
            caller: None,
        }
    }

    /// Creates a check of cost 1 of one entry.
    pub fn from_entry(entry: RequestEntry<'a>) -> Self {
        Request {
            entries: smallvec![entry],
            verb: Verb::Check,
            cost: 1,
            caller: None,
        }
    }

    /// Creates a check of cost 1 of one key against several limits.
    ///
    /// # Errors
    /// As [`and`](Request::and), and when there is no limit.
    pub fn with_limits(
        key: impl Into<Key<'a>>,
        limits: impl IntoIterator<Item = &'a Limit>,
    ) -> Result<Self, RequestError> {
        let key = key.into();
        let mut limits = limits.into_iter();
        let first = limits.next().ok_or(RequestError::NoLimit)?;
        limits.try_fold(Request::new(key.clone(), first), |request, limit| {
            request.and(key.clone(), limit)
        })
    }

    /// Adds a limit that must also admit the request.
    ///
    /// # Errors
    /// When the request has the same key and a limit of that name already, or there are more than
    /// [`MAX_LIMITS`].
    pub fn and(self, key: impl Into<Key<'a>>, limit: &'a Limit) -> Result<Self, RequestError> {
        self.and_entry(RequestEntry::new(key, limit))
    }

    /// Adds a limit with its own cost instead of the request's. A limit with cost 0 admits and is not
    /// changed.
    ///
    /// Check, charge and refund use each limit's own cost. A take grants every limit with a cost above
    /// 0 the same: the least that any of them would grant.
    ///
    /// ```
    /// use tallygate::{Limit, Limiter, Quota, Request};
    ///
    /// let requests = Limit::named("requests", Quota::per_minute(60));
    /// let tokens = Limit::named("tokens", Quota::per_minute(10_000));
    /// let limiter = Limiter::new(requests.clone());
    /// let request = Request::new("user:42", &requests).and_cost("user:42", &tokens, 1_200)?;
    /// let decision = limiter.decide_now(&request);
    /// assert_eq!(decision.verdicts()[0].remaining, 59);
    /// assert_eq!(decision.verdicts()[1].remaining, 8_800);
    /// # Ok::<(), tallygate::RequestError>(())
    /// ```
    ///
    /// # Errors
    /// As [`and`](Request::and).
    pub fn and_cost(
        self,
        key: impl Into<Key<'a>>,
        limit: &'a Limit,
        cost: u32,
    ) -> Result<Self, RequestError> {
        self.and_entry(RequestEntry::new(key, limit).with_cost(cost))
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// As [`and`](Request::and).
    pub fn and_entry(mut self, mut entry: RequestEntry<'a>) -> Result<Self, RequestError> {
        let name = entry.limit.name();
        let mut entries = self.entries.iter();
        if entries.any(|other| other.limit.name() == name && other.key == entry.key) {
            let name = name.to_owned();
            return Err(RequestError::SameCounterTwice { name });
        }
        if self.entries.len() == MAX_LIMITS {
            return Err(RequestError::TooManyLimits);
        }
        if !entry.own_cost {
            entry.cost = self.cost;
        }
        self.entries.push(entry);
        Ok(self)
    }

    /// Sets the cost for every limit without its own cost.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        let shared = self.entries.iter_mut().filter(|entry| !entry.own_cost);
        shared.for_each(|entry| entry.cost = cost);
        self
    }

    /// Sets the verb.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = verb;
        self
    }

    /// A copy that outlives the keys and limits of this one.
    #[cfg(feature = "tokio")]
    pub(crate) fn to_owned(&self) -> OwnedRequest {
        let entries = self.entries.iter().map(|entry| OwnedEntry {
            key: entry.key.clone().into_owned(),
            limit: entry.limit.clone(),
            cost: entry.cost,
            own_cost: entry.own_cost,
            member: entry.member.as_deref().map(Member::to_owned).map(Box::new),
        });
        OwnedRequest {
            entries: entries.collect(),
            verb: self.verb,
            cost: self.cost,
            caller: self.caller.as_deref().map(RequestCaller::to_owned),
        }
    }

    /// Sets the member of every shared limit without its own: a name of weight 1, or a [`Member`].
    /// The member without a name, if none is set.
    #[must_use]
    pub fn member(mut self, member: impl Into<Member<'a>>) -> Self {
        self.caller_mut().member = Some(member.into());
        self
    }

    /// Sets the owner of what concurrency limits hold: whoever asks again as the same owner renews
    /// its hold. The owner without a name, if none is set.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<Key<'a>>) -> Self {
        self.caller_mut().owner = Some(owner.into());
        self
    }

    /// Sets the id of a reservation, for [`Verb::Reserve`] and [`Verb::Settle`]. Without it, a
    /// reserve is a check that nothing remembers, and a settle finds nothing.
    #[must_use]
    pub fn id(mut self, id: impl Into<Key<'a>>) -> Self {
        self.caller_mut().id = Some(id.into());
        self
    }

    /// The verb, the cost, the owner and the id of another request, and the members of its entries.
    pub(crate) fn asked_like(self, other: &'a Request<'_>) -> Self {
        Request {
            entries: self.entries,
            verb: other.verb,
            cost: other.cost,
            caller: other
                .caller
                .as_deref()
                .map(RequestCaller::borrow)
                .map(Box::new),
        }
    }

    fn caller_mut(&mut self) -> &mut RequestCaller<'a> {
        self.caller.get_or_insert_default()
    }

    /// Whether no member, owner or id is set.
    #[inline]
    pub(crate) fn is_nameless(&self) -> bool {
        self.caller.is_none() && self.entries.iter().all(|entry| entry.member.is_none())
    }

    /// The member of an entry: its own, or the request's.
    pub fn member_of<'s>(&'s self, entry: &'s RequestEntry<'a>) -> Option<&'s Member<'a>> {
        let own = entry.member.as_deref();
        own.or_else(|| self.caller.as_ref()?.member.as_ref())
    }

    /// The owner, if one is set.
    pub fn requested_owner(&self) -> Option<&Key<'a>> {
        self.caller.as_ref()?.owner.as_ref()
    }

    /// The id, if one is set.
    pub fn requested_id(&self) -> Option<&Key<'a>> {
        self.caller.as_ref()?.id.as_ref()
    }

    /// Whether the request has no owner although it holds, renews or releases units of a concurrency
    /// limit.
    pub fn lacks_owner(&self) -> bool {
        let mut entries = self.entries.iter();
        self.verb.needs_owner()
            && self.requested_owner().is_none()
            && entries.any(|entry| entry.limit.quota().algorithm().is_concurrent())
    }

    /// Whether a limit remembers what the request takes: it is a reserve with an id.
    pub(crate) fn reserves(&self, entry: &RequestEntry<'_>) -> bool {
        self.verb == Verb::Reserve
            && self.requested_id().is_some()
            && !entry.limit.quota().algorithm().is_concurrent()
    }

    /// The same request for the limits at some positions.
    pub(crate) fn subset(&self, positions: &[usize]) -> Request<'a> {
        let entries = positions.iter().map(|&at| self.entries[at].clone());
        Request {
            entries: entries.collect(),
            verb: self.verb,
            cost: self.cost,
            caller: self.caller.clone(),
        }
    }

    /// Replaces the cost of every limit, also of those that have their own.
    pub(crate) fn each_cost(mut self, cost: u32) -> Self {
        let costs = self.entries.iter_mut().filter(|entry| entry.cost > 0);
        costs.for_each(|entry| entry.cost = cost);
        self
    }

    /// The keys and limits, in order; at least one.
    #[inline]
    pub fn entries(&self) -> &[RequestEntry<'a>] {
        &self.entries
    }

    /// The verb.
    #[inline]
    pub fn requested_verb(&self) -> Verb {
        self.verb
    }

    /// The cost for every limit without [its own](RequestEntry::cost).
    #[inline]
    pub fn requested_cost(&self) -> u32 {
        self.cost
    }
}

/// An entry with its own key and limit.
#[cfg(feature = "tokio")]
#[derive(Clone)]
struct OwnedEntry {
    key: Key<'static>,
    limit: Limit,
    cost: u32,
    own_cost: bool,
    member: Option<Box<Member<'static>>>,
}

/// A request with its own keys and limits.
#[cfg(feature = "tokio")]
#[derive(Clone)]
pub(crate) struct OwnedRequest {
    entries: SmallVec<[OwnedEntry; 2]>,
    verb: Verb,
    cost: u32,
    caller: Option<RequestCaller<'static>>,
}

#[cfg(feature = "tokio")]
impl OwnedRequest {
    pub(crate) fn request(&self) -> Request<'_> {
        let entries = self.entries.iter().map(|entry| RequestEntry {
            key: Key::from(&entry.key),
            limit: &entry.limit,
            cost: entry.cost,
            own_cost: entry.own_cost,
            member: entry.member.as_deref().map(Member::borrow).map(Box::new),
        });
        Request {
            entries: entries.collect(),
            verb: self.verb,
            cost: self.cost,
            caller: self
                .caller
                .as_ref()
                .map(RequestCaller::borrow)
                .map(Box::new),
        }
    }
}

/// Why a request is invalid.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// A counter occurs twice: the decision would depend on the order.
    SameCounterTwice {
        /// The limit's name.
        name: String,
    },
    /// There are more than [`MAX_LIMITS`] limits.
    TooManyLimits,
    /// There is no limit.
    NoLimit,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::SameCounterTwice { name } => write!(
                f,
                "the same key has two limits named `{name}`; rename one of them"
            ),
            RequestError::TooManyLimits => write!(f, "more than {MAX_LIMITS} limits in a request"),
            RequestError::NoLimit => f.write_str("a request without a limit"),
        }
    }
}

debug_is_display!(RequestError);

impl std::error::Error for RequestError {}
