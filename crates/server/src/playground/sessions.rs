//! Who visits, and what cards each has: a bounded number of both. Knows cookies and states on
//! supplied time; knows nothing of where other counters are.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, header};
use tallygate::Key;
use tallygate::http::Limits;
use tallygate_core::State;

/// The most visitors; the one who has been idle longest is forgotten for another.
const MOST_VISITORS: usize = 1_000;
/// The most cards of a visitor; the one that was idle longest is forgotten for another.
const MOST_CARDS: usize = 32;
/// How many of those may be logs, which remember every request.
const MOST_LOGS: usize = 8;
/// When a visitor who does nothing is forgotten, at the next chance.
const IDLE: Duration = Duration::from_secs(3_600);

const COOKIE: &str = "tallygate_visitor";

/// What a visitor is known by: nobody can guess another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id(u128);

impl Id {
    /// One that nobody has, from the system's randomness by way of the standard library.
    pub(super) fn random() -> Self {
        let half = || u128::from(RandomState::new().hash_one(0));
        Id(half() << 64 | half())
    }

    /// The one that a request says.
    pub(super) fn said(headers: &HeaderMap) -> Option<Self> {
        let cookies = headers.get_all(header::COOKIE).iter();
        let mut pairs = cookies
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let (_, text) = pairs.find(|(name, _)| *name == COOKIE)?;
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = (text.len() == 32 && digits).then(|| u128::from_str_radix(text, 16));
        number?.ok().map(Id)
    }

    /// The cookie by which the browser says it.
    pub(super) fn cookie(self) -> HeaderValue {
        let text = format!("{COOKIE}={:032x}; Path=/; HttpOnly; SameSite=Lax", self.0);
        HeaderValue::try_from(text).expect("digits are a header's value")
    }

    /// Who is limited, of this visitor's.
    pub(super) fn key(self, card: &str) -> Key<'static> {
        // It stands in a cookie: no store outside this process keeps it in clear.
        Key::from("play").and_secret(self.0.to_be_bytes()).and(card)
    }
}

/// A card's counter that nobody will ask again.
pub(super) struct Gone {
    pub(super) key: Key<'static>,
    pub(super) limits: Arc<Limits>,
}

/// Everybody who visits.
#[derive(Default)]
pub(super) struct Visitors {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    visitors: HashMap<Id, Kept>,
    swept: Option<Instant>,
}

struct Kept {
    visitor: Arc<Visitor>,
    seen: Instant,
    /// Whether it ever came again. Who does not keep the cookie is a new visitor each time.
    returned: bool,
}

impl Visitors {
    /// A visitor, known or new, and the cards of those who had to make room.
    pub(super) fn visitor(&self, id: Id) -> (Arc<Visitor>, Vec<Gone>) {
        let now = Instant::now();
        let mut known = locked(&self.known);
        if let Some(kept) = known.visitors.get_mut(&id) {
            kept.seen = now;
            kept.returned = true;
            return (Arc::clone(&kept.visitor), Vec::new());
        }
        let mut gone = known.sweep(now);
        if known.visitors.len() >= MOST_VISITORS {
            // Those who keep no cookie cannot push out those who do.
            let visitors = known.visitors.iter();
            let idlest = visitors.min_by_key(|(_, kept)| (kept.returned, kept.seen));
            let idlest = idlest.map(|(id, _)| *id);
            let kept = idlest.and_then(|id| known.visitors.remove(&id));
            gone.extend(kept.into_iter().flat_map(|kept| kept.visitor.forget()));
        }
        let visitor = Arc::new(Visitor {
            id,
            cards: Mutex::default(),
        });
        let kept = Kept {
            visitor: Arc::clone(&visitor),
            seen: now,
            returned: false,
        };
        known.visitors.insert(id, kept);
        (visitor, gone)
    }

    #[cfg(test)]
    fn number(&self) -> usize {
        locked(&self.known).visitors.len()
    }
}

impl Known {
    /// Forgets those who do nothing, now and then.
    fn sweep(&mut self, now: Instant) -> Vec<Gone> {
        let idle = |since: Instant| now.saturating_duration_since(since) >= IDLE;
        let swept = *self.swept.get_or_insert(now);
        if !idle(swept) {
            return Vec::new();
        }
        self.swept = Some(now);
        let left = self.visitors.extract_if(|_, kept| idle(kept.seen));
        left.flat_map(|(_, kept)| kept.visitor.forget()).collect()
    }
}

/// One visitor.
pub(super) struct Visitor {
    pub(super) id: Id,
    cards: Mutex<Cards>,
}

/// The cards of a visitor.
#[derive(Default)]
pub(super) struct Cards {
    list: Vec<Card>,
    turns: u64,
}

/// Which clock a card goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// That of the store, which keeps the counter.
    Real,
    /// The page's own; the counter is kept here.
    Supplied,
}

struct Card {
    name: String,
    limits: Arc<Limits>,
    clock: Clock,
    /// On supplied time only.
    state: State,
    /// When it was last used, in turns.
    used: u64,
}

impl Visitor {
    /// The visitor's cards, for as long as they are held.
    pub(super) fn cards(&self) -> MutexGuard<'_, Cards> {
        locked(&self.cards)
    }

    /// Forgets every card; gives those that a store keeps.
    pub(super) fn forget(&self) -> Vec<Gone> {
        let cards = std::mem::take(&mut self.cards().list);
        let kept = cards.into_iter().filter_map(|card| card.gone(self.id));
        kept.collect()
    }

    /// Forgets the cards on the real clock whose name begins so.
    pub(super) fn forget_named(&self, start: &str) -> Vec<Gone> {
        let mut cards = self.cards();
        let named = |card: &mut Card| card.clock == Clock::Real && card.name.starts_with(start);
        let gone: Vec<Card> = cards.list.extract_if(.., named).collect();
        gone.into_iter()
            .filter_map(|card| card.gone(self.id))
            .collect()
    }

    /// Notes that a card on the real clock is used; gives the one that had to make room.
    pub(super) fn uses(&self, name: &str, limits: &Arc<Limits>) -> Option<Gone> {
        let (_, gone) = self.cards().card(name, limits, Clock::Real);
        gone.and_then(|card| card.gone(self.id))
    }
}

impl Cards {
    /// The state of a card on supplied time, and one on the real clock that had to make room.
    pub(super) fn state(
        &mut self,
        id: Id,
        name: &str,
        limits: &Arc<Limits>,
    ) -> (&mut State, Option<Gone>) {
        let (at, gone) = self.card(name, limits, Clock::Supplied);
        let gone = gone.and_then(|card| card.gone(id));
        (&mut self.list[at].state, gone)
    }

    /// Where a card is, and the one that had to make room for it.
    fn card(&mut self, name: &str, limits: &Arc<Limits>, clock: Clock) -> (usize, Option<Card>) {
        self.turns += 1;
        let used = self.turns;
        // As in a store: a counter goes by its key and its limit's name.
        let is = |card: &Card| {
            card.name == name && card.clock == clock && card.limits[0].name() == limits[0].name()
        };
        if let Some(at) = self.list.iter().position(is) {
            let card = &mut self.list[at];
            card.limits = Arc::clone(limits);
            card.used = used;
            return (at, None);
        }
        let logs = |card: &Card| card.limits[0].quota().algorithm().is_log();
        let card = Card {
            name: name.to_owned(),
            limits: Arc::clone(limits),
            clock,
            state: State::New,
            used,
        };
        let crowded_logs =
            logs(&card) && self.list.iter().filter(|card| logs(card)).count() >= MOST_LOGS;
        let idlest = |among: &dyn Fn(&Card) -> bool| {
            let each = self.list.iter().enumerate();
            let each = each.filter(|(_, card)| among(card));
            each.min_by_key(|(_, card)| card.used).map(|(at, _)| at)
        };
        let leaves = if crowded_logs {
            idlest(&logs)
        } else if self.list.len() >= MOST_CARDS {
            idlest(&|_| true)
        } else {
            None
        };
        let gone = leaves.map(|at| self.list.swap_remove(at));
        self.list.push(card);
        (self.list.len() - 1, gone)
    }
}

impl Card {
    /// What a store has to forget with it.
    fn gone(self, id: Id) -> Option<Gone> {
        match self.clock {
            Clock::Real => Some(Gone {
                key: id.key(&self.name),
                limits: self.limits,
            }),
            Clock::Supplied => None,
        }
    }
}

/// Whoever panicked while holding it left nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tallygate::{Limit, Quota};

    use super::*;

    fn limits(quota: &str) -> Arc<Limits> {
        let quota: Quota = quota.parse().unwrap();
        Arc::new(Limits::new([Limit::from(quota)]).unwrap())
    }

    #[test]
    fn a_cookie_says_who_it_is_and_nothing_else_does() {
        let id = Id::random();
        let cookie = id.cookie();
        let cookie = cookie.to_str().unwrap();
        let pair = cookie.split(';').next().unwrap();
        let said = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, text.parse().unwrap());
            Id::said(&headers)
        };
        assert!(said(pair) == Some(id));
        assert!(said(&format!("a=b; {pair}; c=d")) == Some(id));
        for wrong in [
            "",
            "tallygate_visitor",
            "tallygate_visitor=",
            "tallygate_visitor=12",
            "tallygate_visitor=+0000000000000000000000000000000",
            "tallygate_visitor=g0000000000000000000000000000000",
            "other=00000000000000000000000000000000",
        ] {
            assert!(said(wrong).is_none(), "{wrong}");
        }
        assert!(Id::random() != Id::random());
    }

    #[test]
    fn the_idlest_visitor_makes_room_and_their_counters_are_given_back() {
        let visitors = Visitors::default();
        let first = Id(0);
        let (visitor, _) = visitors.visitor(first);
        visitor.uses("a", &limits("10/s"));
        for number in 1..MOST_VISITORS {
            let (_, gone) = visitors.visitor(Id(number as u128));
            assert!(gone.is_empty());
        }
        let (_, gone) = visitors.visitor(Id(u128::MAX));
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].key, first.key("a"));
        assert_eq!(visitors.number(), MOST_VISITORS);
    }

    #[test]
    fn a_visitor_has_so_many_cards_and_fewer_logs() {
        let (visitor, _) = Visitors::default().visitor(Id(1));
        let (window, log) = (limits("10/s"), limits("sliding-window-log 10/s"));
        let gone = |limits| (0..100).filter_map(move |i| visitor.uses(&format!("{i}"), limits));
        let logs = gone(&log).count();
        assert_eq!(logs, 100 - MOST_LOGS);
        let (visitor, _) = Visitors::default().visitor(Id(1));
        let gone = |i: usize| visitor.uses(&format!("{i}"), &window);
        assert_eq!((0..MOST_CARDS).filter_map(gone).count(), 0);
        // The first was used again, so the second goes.
        assert!(visitor.uses("0", &window).is_none());
        assert!(visitor.uses("x", &window).unwrap().key == visitor.id.key("1"));
    }
}
