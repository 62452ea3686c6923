//! The sessions of visitors and their cards, both bounded in number.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, header};
use tallygate::Key;
use tallygate::http::Limits;
use tallygate_core::State;

use crate::random::random_u128;

/// Beyond it, the session idle longest is evicted.
const MAX_SESSIONS: usize = 1_000;
/// Cards per session; beyond it, the card idle longest is evicted.
const MAX_CARDS: usize = 32;
/// Cards per session that may be logs, which store every request.
const MAX_LOG_CARDS: usize = 8;
/// Cards per session that may tell callers apart: each has up to [`MAX_OWNERS`] of them.
const MAX_CALLER_CARDS: usize = 1;
/// Owners are numbers, from 1 to this one.
pub(super) const MAX_OWNERS: u32 = 32;
/// Reservations per session that are not settled; beyond it, the oldest is forgotten and stays
/// charged.
const MAX_RESERVATIONS: usize = 16;
const IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

const COOKIE: &str = "tallygate_visitor";

/// An unguessable id, stored in a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SessionId(u128);

impl SessionId {
    pub(super) fn random() -> Self {
        SessionId(random_u128())
    }

    pub(super) fn from_cookie(headers: &HeaderMap) -> Option<Self> {
        let cookies = headers.get_all(header::COOKIE).iter();
        let mut pairs = cookies
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let (_, text) = pairs.find(|(name, _)| *name == COOKIE)?;
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = (text.len() == 32 && digits).then(|| u128::from_str_radix(text, 16));
        number?.ok().map(SessionId)
    }

    pub(super) fn cookie(self) -> HeaderValue {
        let text = format!("{COOKIE}={:032x}; Path=/; HttpOnly; SameSite=Lax", self.0);
        HeaderValue::try_from(text).expect("hexadecimal digits are a valid header value")
    }

    pub(super) fn key(self, card: &str) -> Key<'static> {
        // The cookie is a credential: stores outside this process get its hash.
        Key::from("play").and_secret(self.0.to_be_bytes()).and(card)
    }
}

/// What its store shall forget.
pub(super) struct Eviction {
    pub(super) key: Key<'static>,
    pub(super) limits: Arc<Limits>,
    pub(super) what: Evicted,
}

pub(super) enum Evicted {
    /// The counter.
    Counter,
    /// The id of a reservation of these units, which stay charged.
    Reservation { id: u32, units: u32 },
}

#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<SessionId, Entry>>);

struct Entry {
    session: Arc<Session>,
    last_used: Instant,
    /// Whether it was used twice. A client without cookies starts a new session each time.
    returned: bool,
}

impl Sessions {
    /// Returns a session, created if necessary, and the evicted counters.
    pub(super) fn get_or_create(&self, id: SessionId) -> (Arc<Session>, Vec<Eviction>) {
        let now = Instant::now();
        let mut entries = lock(&self.0);
        if let Some(entry) = entries.get_mut(&id) {
            entry.last_used = now;
            entry.returned = true;
            return (Arc::clone(&entry.session), Vec::new());
        }
        let is_idle = |_: &_, entry: &mut Entry| now - entry.last_used >= IDLE_TIMEOUT;
        let mut evicted: Vec<Entry> = entries.extract_if(is_idle).map(|(_, e)| e).collect();
        if entries.len() >= MAX_SESSIONS {
            // Clients without cookies cannot evict those with one.
            let rank = |(_, entry): &(_, &Entry)| (entry.returned, entry.last_used);
            let idlest = entries.iter().min_by_key(rank).map(|(id, _)| *id);
            evicted.extend(idlest.and_then(|id| entries.remove(&id)));
        }
        let session = Arc::new(Session {
            id,
            cards: Mutex::default(),
        });
        let entry = Entry {
            session: Arc::clone(&session),
            last_used: now,
            returned: false,
        };
        entries.insert(id, entry);
        let counters = evicted.iter().flat_map(|entry| entry.session.evict(""));
        (session, counters.collect())
    }
}

pub(super) struct Session {
    pub(super) id: SessionId,
    cards: Mutex<Cards>,
}

#[derive(Default)]
pub(super) struct Cards {
    list: Vec<Card>,
    /// Those that are not settled, oldest first.
    reservations: VecDeque<Reservation>,
    /// Increases with every use of a card.
    uses: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The store's; the store has the counter.
    Real,
    /// The page's; the card has the state.
    Supplied,
}

struct Card {
    name: String,
    limits: Arc<Limits>,
    clock: Clock,
    /// For `Clock::Supplied` only.
    state: State,
    last_use: u64,
}

struct Reservation {
    card: String,
    limits: Arc<Limits>,
    id: u32,
    units: u32,
}

impl Reservation {
    fn is_of(&self, card: &str, limits: &Limits) -> bool {
        self.card == card && self.limits[0].name() == limits[0].name()
    }

    fn evict(self, id: SessionId) -> Eviction {
        Eviction {
            key: id.key(&self.card),
            limits: self.limits,
            what: Evicted::Reservation {
                id: self.id,
                units: self.units,
            },
        }
    }
}

impl Session {
    pub(super) fn cards(&self) -> MutexGuard<'_, Cards> {
        lock(&self.cards)
    }

    /// Removes the cards on the real clock whose name starts with `prefix`.
    pub(super) fn evict(&self, prefix: &str) -> Vec<Eviction> {
        let mut cards = self.cards();
        let matches = |card: &mut Card| card.clock == Clock::Real && card.name.starts_with(prefix);
        let removed: Vec<Card> = cards.list.extract_if(.., matches).collect();
        let removed = removed.into_iter();
        let evicted = removed.flat_map(|card| cards.evict(card, self.id));
        evicted.collect()
    }

    /// Marks a card on the real clock as used, and returns what is evicted for it.
    pub(super) fn touch(&self, name: &str, limits: &Arc<Limits>) -> Vec<Eviction> {
        let mut cards = self.cards();
        let (_, evicted) = cards.card(name, limits, Clock::Real);
        evicted.map_or_else(Vec::new, |card| cards.evict(card, self.id))
    }

    /// Remembers a reservation on a card, and returns the one evicted for it.
    pub(super) fn reserved(
        &self,
        card: &str,
        limits: &Arc<Limits>,
        id: u32,
        units: u32,
    ) -> Option<Eviction> {
        let mut cards = self.cards();
        let mut known = cards.reservations.iter();
        if known.any(|one| one.id == id && one.is_of(card, limits)) {
            return None;
        }
        cards.reservations.push_back(Reservation {
            card: card.to_owned(),
            limits: Arc::clone(limits),
            id,
            units,
        });
        let is_full = cards.reservations.len() > MAX_RESERVATIONS;
        let oldest = is_full.then(|| cards.reservations.pop_front()).flatten();
        oldest.map(|reservation| reservation.evict(self.id))
    }

    /// Forgets a reservation that is settled.
    pub(super) fn settled(&self, card: &str, limits: &Limits, id: u32) {
        let reservations = &mut self.cards().reservations;
        reservations.retain(|one| one.id != id || !one.is_of(card, limits));
    }
}

impl Cards {
    /// Returns the state of a card on supplied time, and the card evicted for it.
    pub(super) fn state(
        &mut self,
        id: SessionId,
        name: &str,
        limits: &Arc<Limits>,
    ) -> (&mut State, Vec<Eviction>) {
        let (at, evicted) = self.card(name, limits, Clock::Supplied);
        let evicted = evicted.map_or_else(Vec::new, |card| self.evict(card, id));
        (&mut self.list[at].state, evicted)
    }

    /// What the store shall forget of a removed card.
    fn evict(&mut self, card: Card, id: SessionId) -> Vec<Eviction> {
        if card.clock == Clock::Supplied {
            return Vec::new();
        }
        let reservations = mem::take(&mut self.reservations);
        let (open, others) = reservations
            .into_iter()
            .partition::<VecDeque<_>, _>(|one| one.is_of(&card.name, &card.limits));
        self.reservations = others;
        let mut evicted: Vec<Eviction> = open.into_iter().map(|one| one.evict(id)).collect();
        evicted.push(Eviction {
            key: id.key(&card.name),
            limits: card.limits,
            what: Evicted::Counter,
        });
        evicted
    }

    /// Returns the index of a card, created if necessary, and the card removed for it.
    fn card(&mut self, name: &str, limits: &Arc<Limits>, clock: Clock) -> (usize, Option<Card>) {
        self.uses += 1;
        // As in a store, a counter is identified by its key and the limit's name.
        let is_same = |card: &Card| {
            card.name == name && card.clock == clock && card.limits[0].name() == limits[0].name()
        };
        if let Some(at) = self.list.iter().position(is_same) {
            let card = &mut self.list[at];
            card.limits = Arc::clone(limits);
            card.last_use = self.uses;
            return (at, None);
        }
        let card = Card {
            name: name.to_owned(),
            limits: Arc::clone(limits),
            clock,
            state: State::New,
            last_use: self.uses,
        };
        let class = card.class();
        let peers = self.list.iter().filter(|card| card.class() == class);
        let class_full = peers.count() >= class.max();
        let mut evicted = None;
        if class_full || self.list.len() >= MAX_CARDS {
            let cards = self.list.iter().enumerate();
            let candidates = cards.filter(|(_, card)| !class_full || card.class() == class);
            let idlest = candidates.min_by_key(|(_, card)| card.last_use);
            let idlest = idlest.map(|(at, _)| at);
            evicted = idlest.map(|at| self.list.swap_remove(at));
        }
        self.list.push(card);
        (self.list.len() - 1, evicted)
    }
}

/// Cards by the memory that they may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Small,
    Log,
    Callers,
}

impl Class {
    /// The number of cards of a session.
    fn max(self) -> usize {
        match self {
            Class::Small => MAX_CARDS,
            Class::Log => MAX_LOG_CARDS,
            Class::Callers => MAX_CALLER_CARDS,
        }
    }
}

impl Card {
    fn class(&self) -> Class {
        let algorithm = self.limits[0].quota().algorithm();
        if algorithm.is_log() {
            Class::Log
        } else if algorithm.is_concurrent() || algorithm.is_shared() {
            Class::Callers
        } else {
            Class::Small
        }
    }
}

/// A panic cannot leave the data inconsistent, so poisoning is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tallygate::{Limit, Quota};

    use super::*;

    #[test]
    fn the_cookie_holds_the_id() {
        let id = SessionId::random();
        let cookie = id.cookie();
        let cookie = cookie.to_str().unwrap();
        let pair = cookie.split(';').next().unwrap();
        let parse = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, text.parse().unwrap());
            SessionId::from_cookie(&headers)
        };
        assert!(parse(pair) == Some(id));
        assert!(parse(&format!("a=b; {pair}; c=d")) == Some(id));
        for bad in [
            "",
            "tallygate_visitor",
            "tallygate_visitor=",
            "tallygate_visitor=12",
            "tallygate_visitor=+0000000000000000000000000000000",
            "tallygate_visitor=g0000000000000000000000000000000",
            "other=00000000000000000000000000000000",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
        assert!(SessionId::random() != SessionId::random());
    }

    #[test]
    fn logs_of_a_session_are_bounded() {
        let (session, _) = Sessions::default().get_or_create(SessionId(1));
        let log: Quota = "sliding-window-log 10/s".parse().unwrap();
        let log = Arc::new(Limits::new([Limit::from(log)]).unwrap());
        let touch = |i: usize| session.touch(&i.to_string(), &log);
        assert_eq!((0..100).flat_map(touch).count(), 100 - MAX_LOG_CARDS);
    }

    #[test]
    fn an_evicted_card_takes_its_reservations_with_it_and_they_are_bounded() {
        let (session, _) = Sessions::default().get_or_create(SessionId(1));
        let limits = |text: &str| {
            let quota: Quota = text.parse().unwrap();
            Arc::new(Limits::new([Limit::from(quota)]).unwrap())
        };
        let bucket = limits("token-bucket 10/s burst 1000");
        let evicted = |evictions: &[Eviction]| -> Vec<Option<u32>> {
            let id = |one: &Eviction| match one.what {
                Evicted::Counter => None,
                Evicted::Reservation { id, .. } => Some(id),
            };
            evictions.iter().map(id).collect()
        };
        session.touch("a", &bucket);
        for id in 0..20 {
            let forgotten: Vec<Eviction> =
                session.reserved("a", &bucket, id, 5).into_iter().collect();
            let oldest = (id >= 16).then(|| Some(id - 16));
            assert_eq!(evicted(&forgotten), Vec::from_iter(oldest));
            assert!(session.reserved("a", &bucket, id, 5).is_none());
        }
        session.settled("a", &bucket, 7);
        session.settled("b", &bucket, 8);
        let all = evicted(&session.evict(""));
        let open = (4..20).filter(|id| *id != 7).map(Some);
        assert_eq!(all, open.chain([None]).collect::<Vec<_>>());
        let holds = limits("concurrent 10 for 10s");
        assert!(session.touch("x", &holds).is_empty());
        assert_eq!(evicted(&session.touch("y", &holds)), [None]);
    }
}
