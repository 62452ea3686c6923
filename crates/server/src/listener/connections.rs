//! The connections of a listener: bounded in all and for each client. At a bound, idle connections
//! are closed to make room, the idlest first.

use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntGauge;
use tallygate::http::canonical_address;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// How many connections are closed at a time to make room for others, at most: finding the idlest
/// visits all of them.
const MAX_CLOSED_AT_ONCE: usize = 32;
/// When a full listener closes idle connections again, if none of those before has ended.
const EVICTION_INTERVAL: Duration = Duration::from_millis(100);
/// How many connections of a client may be about to close, beyond its bound.
const MAX_CLOSING_PER_CLIENT: usize = 32;

/// From when on a connection counts as idle whose next request has not arrived completely.
const REQUEST_GRACE: Duration = Duration::from_secs(1);

/// Tells some peers from others, such as trusted ones.
pub(crate) type PeerTest = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

pub(crate) struct ConnectionLimits {
    /// Further connections wait in the accept queue until one ends.
    pub(crate) max: usize,
    /// A client's further connections replace its idlest one, or are closed. 0: no bound.
    pub(crate) max_per_client: usize,
    /// Which peers have no such bound.
    pub(crate) is_exempt: PeerTest,
    /// Counts the open connections.
    pub(crate) gauge: IntGauge,
}

impl fmt::Debug for ConnectionLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionLimits")
            .field("max", &self.max)
            .field("max_per_client", &self.max_per_client)
            .finish_non_exhaustive()
    }
}

/// The open connections of a listener.
pub(super) struct Connections {
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
    max: u32,
}

struct Shared {
    clients: Mutex<Clients>,
    max_per_client: usize,
    is_exempt: PeerTest,
    started: Instant,
    gauge: IntGauge,
}

/// Has an entry for each client with a connection, so as many as there may be connections at most.
type Clients = HashMap<Client, Vec<Arc<Activity>>, foldhash::fast::RandomState>;

/// Who connections are counted for: an IPv4 address, or a network of 64 bits. A site has one of
/// these at least, so more of the address would count nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        match canonical_address(address) {
            IpAddr::V4(address) => Client::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Client::V6([a, b, c, d])
            }
        }
    }
}

/// Whether a connection is idle, and since when. The listener closes idle ones at its bounds.
#[derive(Debug)]
pub(crate) struct Activity {
    /// When the listener started.
    epoch: Instant,
    /// In microseconds since then, plus one; 0: busy. May be in the future.
    idle_since: AtomicU64,
    /// Whether the client may have sent something that was not read: closing would discard the
    /// last response.
    has_unread_input: AtomicBool,
    is_closing: AtomicBool,
    close: Notify,
    /// Its place in the list of its client's connections.
    index: AtomicUsize,
}

impl Activity {
    fn new(epoch: Instant) -> Self {
        let activity = Activity {
            epoch,
            idle_since: AtomicU64::new(0),
            has_unread_input: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            close: Notify::new(),
            index: AtomicUsize::new(0),
        };
        activity.expect_request();
        activity
    }

    /// Records that a request may be on its way: for a moment the connection is not idle.
    pub(crate) fn expect_request(&self) {
        let idle_since = micros(self.epoch.elapsed() + REQUEST_GRACE);
        self.idle_since.store(idle_since, Relaxed);
    }

    pub(crate) fn set_busy(&self) {
        self.idle_since.store(0, Relaxed);
    }

    pub(crate) fn set_idle(&self) {
        self.idle_since.store(micros(self.epoch.elapsed()), Relaxed);
    }

    pub(crate) fn set_unread_input(&self, unread: bool) {
        self.has_unread_input.store(unread, Relaxed);
    }

    pub(crate) fn has_unread_input(&self) -> bool {
        self.has_unread_input.load(Relaxed)
    }

    /// Whether the connection is to end after the requests in flight.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Relaxed)
    }

    /// Resolves once, when `is_closing` becomes true.
    pub(crate) async fn closing(&self) {
        self.close.notified().await;
    }

    fn close(&self) {
        self.is_closing.store(true, Relaxed);
        self.close.notify_one();
    }

    /// When it became idle; `None` if it is busy or closing.
    fn idle_since(&self, now: u64) -> Option<u64> {
        let since = self.idle_since.load(Relaxed);
        ((1..=now).contains(&since) && !self.is_closing()).then_some(since)
    }
}

/// A time since the start of a listener, never 0.
fn micros(since_epoch: Duration) -> u64 {
    u64::try_from(since_epoch.as_micros()).map_or(u64::MAX, |micros| micros.saturating_add(1))
}

/// An open connection. Counts until dropped.
pub(crate) struct OpenConnection {
    activity: Arc<Activity>,
    client: Client,
    connections: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for OpenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConnection")
            .field("activity", &self.activity)
            .finish_non_exhaustive()
    }
}

impl OpenConnection {
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Counts the connection for the client that its peer, a proxy, names; if that client is at its
    /// bound, closes its idlest connection.
    pub(super) fn reassign(&mut self, client: IpAddr) -> Result<(), ClientAtBound> {
        let mut clients = self.connections.lock();
        self.connections.make_room_for(client, &clients)?;
        remove(&mut clients, self.client, &self.activity);
        self.client = Client::from(client);
        insert(&mut clients, self.client, &self.activity);
        Ok(())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.gauge.dec();
        remove(&mut self.connections.lock(), self.client, &self.activity);
    }
}

fn insert(clients: &mut Clients, client: Client, activity: &Arc<Activity>) {
    let list = clients.entry(client).or_default();
    activity.index.store(list.len(), Relaxed);
    list.push(Arc::clone(activity));
}

fn remove(clients: &mut Clients, client: Client, activity: &Activity) {
    let Some(list) = clients.get_mut(&client) else {
        return;
    };
    let index = activity.index.load(Relaxed);
    list.swap_remove(index);
    if let Some(moved) = list.get(index) {
        moved.index.store(index, Relaxed);
    }
    if list.is_empty() {
        clients.remove(&client);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the client's idlest connection if it is at its bound.
    fn make_room_for(&self, peer: IpAddr, clients: &Clients) -> Result<(), ClientAtBound> {
        let now = micros(self.started.elapsed());
        let list = clients.get(&Client::from(peer));
        let list = list.filter(|list| self.max_per_client > 0 && list.len() >= self.max_per_client);
        let Some(list) = list.filter(|_| !(self.is_exempt)(peer)) else {
            return Ok(());
        };
        let closing = list.iter().filter(|activity| activity.is_closing()).count();
        if list.len() - closing < self.max_per_client {
            return Ok(());
        }
        let idle = list
            .iter()
            .filter_map(|activity| Some((activity.idle_since(now)?, activity)));
        let idlest = idle.min_by_key(|(since, _)| *since);
        match idlest.filter(|_| closing < MAX_CLOSING_PER_CLIENT) {
            Some((_, activity)) => {
                activity.close();
                Ok(())
            }
            None => Err(ClientAtBound),
        }
    }
}

/// A client has as many connections as it may, and none of them is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientAtBound;

impl Connections {
    pub(super) fn new(limits: &ConnectionLimits) -> Self {
        let max = limits.max.min(Semaphore::MAX_PERMITS);
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        Connections {
            shared: Arc::new(Shared {
                clients: Mutex::default(),
                max_per_client: limits.max_per_client,
                is_exempt: Arc::clone(&limits.is_exempt),
                started: Instant::now(),
                gauge: limits.gauge.clone(),
            }),
            permits: Arc::new(Semaphore::new(max as usize)),
            max,
        }
    }

    /// Counts a connection. Waits while the listener is full and no connection is idle.
    pub(super) async fn open(&self, peer: IpAddr) -> Result<OpenConnection, ClientAtBound> {
        self.shared.make_room_for(peer, &self.shared.lock())?;
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                break permit;
            }
            self.close_idlest();
            // An HTTP/1 connection ends at once, an HTTP/2 connection when its client says so.
            let permit = Arc::clone(&self.permits).acquire_owned();
            if let Ok(permit) = timeout(EVICTION_INTERVAL, permit).await {
                break permit.expect("the semaphore is never closed");
            }
        };
        Ok(self.insert(peer, permit))
    }

    /// Counts a connection, unless the listener is full.
    pub(super) fn try_open(&self, peer: IpAddr) -> Option<OpenConnection> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(self.insert(peer, permit))
    }

    fn insert(&self, peer: IpAddr, permit: OwnedSemaphorePermit) -> OpenConnection {
        let client = Client::from(peer);
        let activity = Arc::new(Activity::new(self.shared.started));
        insert(&mut self.shared.lock(), client, &activity);
        self.shared.gauge.inc();
        OpenConnection {
            activity,
            client,
            connections: Arc::clone(&self.shared),
            _permit: permit,
        }
    }

    /// Closes an eighth of the idle connections, the idlest ones, within bounds.
    pub(super) fn close_idlest(&self) {
        let now = micros(self.shared.started.elapsed());
        let clients = self.shared.lock();
        let mut count = 0;
        // The last is the least idle one.
        let mut idlest: BinaryHeap<Idle<'_>> = BinaryHeap::with_capacity(MAX_CLOSED_AT_ONCE + 1);
        for activity in clients.values().flatten() {
            let Some(since) = activity.idle_since(now) else {
                continue;
            };
            count += 1;
            if idlest.len() == MAX_CLOSED_AT_ONCE
                && idlest.peek().is_some_and(|least| least.since <= since)
            {
                continue;
            }
            idlest.push(Idle { since, activity });
            if idlest.len() > MAX_CLOSED_AT_ONCE {
                idlest.pop();
            }
        }
        let number = (count / 8).clamp(1, MAX_CLOSED_AT_ONCE);
        for idle in idlest.into_sorted_vec().into_iter().take(number) {
            idle.activity.close();
        }
    }

    /// How many connections are open.
    pub(super) fn count(&self) -> usize {
        self.max as usize - self.permits.available_permits()
    }

    /// Waits until no connection is open.
    pub(super) async fn closed(&self) {
        // Fails only if the semaphore is closed, which it never is.
        let _ = self.permits.acquire_many(self.max).await;
    }
}

struct Idle<'a> {
    since: u64,
    activity: &'a Activity,
}

impl Ord for Idle<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.since.cmp(&other.since)
    }
}

impl PartialOrd for Idle<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Idle<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.since == other.since
    }
}

impl Eq for Idle<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connections of a listener that has run for a while.
    fn running(max: usize, max_per_client: usize) -> Connections {
        let mut connections = Connections::new(&ConnectionLimits {
            max,
            max_per_client,
            is_exempt: Arc::new(|peer| peer == IpAddr::from([10, 0, 0, 1])),
            gauge: IntGauge::new("open", "Open connections.").unwrap(),
        });
        let shared = Arc::get_mut(&mut connections.shared).unwrap();
        shared.started -= Duration::from_secs(1);
        connections
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_a_network_of_64_bits() {
        let client = |text: &str| Client::from(address(text));
        for same in ["::ffff:192.0.2.1", "64:ff9b::192.0.2.1"] {
            assert_eq!(client(same), client("192.0.2.1"));
        }
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_ne!(client("64:ff9b::192.0.2.1"), client("64:ff9b::192.0.2.2"));
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:0:0:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
    }

    #[tokio::test]
    async fn a_client_at_its_bound_loses_its_idlest_connection_or_is_refused() {
        let connections = running(100, 2);
        let client = address("192.0.2.1");
        let first = connections.open(client).await.unwrap();
        let second = connections.open(client).await.unwrap();
        first.activity.idle_since.store(7, Relaxed);
        second.activity.idle_since.store(5, Relaxed);
        let third = connections.open(client).await.unwrap();
        assert!(second.activity.is_closing() && !first.activity.is_closing());
        first.activity.set_busy();
        third.activity.set_busy();
        drop(second);
        assert_eq!(connections.open(client).await.unwrap_err(), ClientAtBound);
        // Others are not affected.
        connections.open(address("192.0.2.2")).await.unwrap();
        drop(first);
        connections.open(client).await.unwrap();
    }

    #[tokio::test]
    async fn a_client_with_slow_ends_stays_within_a_bound() {
        let connections = running(1_000, 2);
        let client = address("192.0.2.1");
        let mut open = Vec::new();
        while let Ok(connection) = connections.open(client).await {
            connection.activity.set_idle();
            open.push(connection);
        }
        assert_eq!(open.len(), 2 + MAX_CLOSING_PER_CLIENT);
    }

    #[tokio::test]
    async fn a_connection_of_a_proxy_counts_for_the_client_it_names() {
        let connections = running(100, 2);
        let (proxy, client) = (address("10.0.0.1"), address("192.0.2.1"));
        let mut open = Vec::new();
        for _ in 0..4 {
            open.push(connections.open(proxy).await.unwrap());
        }
        for connection in &open {
            connection.activity.set_busy();
        }
        open[0].reassign(client).unwrap();
        open[1].reassign(client).unwrap();
        assert_eq!(open[2].reassign(client), Err(ClientAtBound));
        // It is still the proxy's.
        open[2].reassign(address("192.0.2.2")).unwrap();
        open[0].activity.idle_since.store(1, Relaxed);
        open[3].reassign(client).unwrap();
        assert!(open[0].activity.is_closing());
        // To the same one.
        open.truncate(3);
        open[1].reassign(client).unwrap();
        open.clear();
        assert!(connections.shared.lock().is_empty());
        assert_eq!(connections.count(), 0);
    }

    #[tokio::test]
    async fn proxies_are_exempt_and_0_is_no_bound() {
        let connections = running(100, 2);
        let mut open = Vec::new();
        for _ in 0..10 {
            open.push(connections.open(address("10.0.0.1")).await.unwrap());
        }
        let unbounded = running(100, 0);
        for _ in 0..10 {
            open.push(unbounded.open(address("192.0.2.1")).await.unwrap());
        }
        assert!(
            open.iter()
                .all(|connection| !connection.activity.is_closing())
        );
    }

    #[tokio::test]
    async fn a_full_listener_closes_the_idlest_and_forgets_clients_that_left() {
        let connections = running(64, 0);
        let mut open = Vec::new();
        for i in 0..64_u8 {
            let connection = connections
                .open(IpAddr::from([192, 0, 2, i]))
                .await
                .unwrap();
            let idle_since = u64::from(i.reverse_bits());
            connection.activity.idle_since.store(idle_since, Relaxed);
            open.push(connection);
        }
        // The one that is busy is not closed.
        assert_eq!(open[0].activity.idle_since(u64::MAX), None);
        connections.close_idlest();
        let closing = |connection: &&OpenConnection| connection.activity.is_closing();
        assert_eq!(open.iter().filter(closing).count(), 63 / 8);
        let latest = |closing: bool| {
            let found = open
                .iter()
                .filter(move |open| open.activity.is_closing() == closing);
            found
                .map(|open| open.activity.idle_since.load(Relaxed))
                .filter(|since| *since > 0)
        };
        assert!(latest(true).max() < latest(false).min());
        assert_eq!(connections.count(), 64);
        open.clear();
        assert_eq!(connections.count(), 0);
        assert!(connections.shared.lock().is_empty());
    }

    #[tokio::test]
    async fn lists_stay_complete_in_any_order_of_closing() {
        let connections = running(1_000, 0);
        let client = address("192.0.2.1");
        let mut open = Vec::new();
        for _ in 0..50 {
            open.push(connections.open(client).await.unwrap());
        }
        for index in [49, 0, 10, 10, 46, 3] {
            drop(open.remove(index.min(open.len() - 1)));
            let clients = connections.shared.lock();
            let list = &clients[&Client::from(client)];
            assert_eq!(list.len(), open.len());
            for (index, activity) in list.iter().enumerate() {
                assert_eq!(activity.index.load(Relaxed), index);
            }
        }
    }
}
