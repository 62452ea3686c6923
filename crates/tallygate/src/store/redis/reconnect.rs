//! Keeps a connection to one server, whichever that is at the moment. Connects again by itself,
//! in the background, at a jittered pace; callers never do.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{ConnectionInfo, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::connection::Lane;
use super::connector::Settings;
use super::error::Trouble;
use super::url::{Host, Servers};

/// The pause after a first failure to connect, doubled with each, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A connection that did not last so long counts as a failure to connect.
const LASTING: Duration = Duration::from_secs(1);

/// How long a sign of life may take.
const PROBE_WITHIN: Duration = Duration::from_millis(250);
/// How often it is looked whether what was sent is answered.
const WATCHED_EVERY: Duration = Duration::from_millis(250);
/// Refused wherever a script that writes would be; changes nothing. Before version 7 the first
/// line is no Lua, and the error it makes is a sign of life.
const PROBE: &str = "#!lua\nreturn 1";

/// Which server is wanted.
#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// The one that the URL names.
    Named,
    /// A server of a cluster.
    Node(Host),
}

/// A connection that is kept up.
pub(super) struct Link {
    state: watch::Receiver<State>,
}

#[derive(Clone)]
enum State {
    Connecting,
    Up(Arc<Lane>),
    Down(Trouble),
}

impl Link {
    /// Begins to connect.
    pub(super) fn keep(settings: Arc<Settings>, goal: Goal) -> Arc<Self> {
        let (sender, state) = watch::channel(State::Connecting);
        let link = Arc::new(Link { state });
        let runtime = settings.runtime.clone();
        let keeper = Keeper {
            settings,
            goal,
            state: sender,
            alive: Arc::downgrade(&link),
        };
        runtime.spawn(keeper.run());
        link
    }

    /// The connection, once there is one; the trouble, if there is none to be had right now.
    pub(super) async fn lane(&self) -> Result<Arc<Lane>, Trouble> {
        match &*self.state.borrow() {
            State::Up(lane) => return Ok(Arc::clone(lane)),
            State::Down(trouble) => return Err(trouble.clone()),
            State::Connecting => {}
        }
        let mut state = self.state.clone();
        let known = |state: &State| !matches!(state, State::Connecting);
        match state.wait_for(known).await.as_deref() {
            Ok(State::Up(lane)) => Ok(Arc::clone(lane)),
            Ok(State::Down(trouble)) => Err(trouble.clone()),
            Ok(State::Connecting) | Err(_) => Err(Trouble::Down("the store is closed")),
        }
    }

    /// Asks whether the server would take a write, and replaces the connection if it says nothing
    /// or leads to the wrong server.
    pub(super) async fn probe(&self) -> Result<(), Trouble> {
        let lane = self.lane().await?;
        let answer = probe(&lane, PROBE_WITHIN).await;
        if let Err(Trouble::Broken | Trouble::Silent | Trouble::Garbled | Trouble::ReadOnly) =
            answer
        {
            lane.doubt();
        }
        answer
    }

    /// Replaces the connection: it does not answer, or leads to the wrong server.
    pub(super) fn distrust(&self) {
        if let State::Up(lane) = &*self.state.borrow() {
            lane.doubt();
        }
    }
}

async fn probe(lane: &Lane, within: Duration) -> Result<(), Trouble> {
    let answer = timeout(within, takes_writes(lane)).await;
    answer.unwrap_or(Err(Trouble::Silent))
}

/// Asks whether the server would take a write.
pub(super) async fn takes_writes(lane: &Lane) -> Result<(), Trouble> {
    let mut command = redis::cmd("EVAL");
    command.arg(PROBE).arg(0);
    match lane.command(&command).await {
        Ok(_) | Err(Trouble::Refused("ERR")) => Ok(()),
        Err(trouble) => Err(trouble),
    }
}

/// Waits until a connection falls silent: something was sent, nothing came back, and it gives no
/// sign of life. Callers do not find out: they have stopped waiting long before.
async fn silence(lane: &Lane, within: Duration) {
    let (mut sent, mut heard) = lane.traffic();
    loop {
        sleep(WATCHED_EVERY).await;
        let now = lane.traffic();
        if now.0 > sent && now.1 == heard && probe(lane, within).await == Err(Trouble::Silent) {
            return;
        }
        (sent, heard) = lane.traffic();
    }
}

/// What runs in the background for as long as the link lives.
struct Keeper {
    settings: Arc<Settings>,
    goal: Goal,
    state: watch::Sender<State>,
    alive: Weak<Link>,
}

impl Keeper {
    async fn run(self) {
        let mut pause = FIRST_PAUSE;
        while self.alive.strong_count() > 0 {
            let trouble = match self.connect().await {
                Ok(lane) => {
                    let (lane, since) = (Arc::new(lane), Instant::now());
                    self.state.send_replace(State::Up(Arc::clone(&lane)));
                    let is_silent = tokio::select! {
                        () = lane.doubted() => false,
                        () = silence(&lane, self.settings.answer_within) => true,
                        () = self.state.closed() => return,
                    };
                    let lasted = since.elapsed() >= LASTING;
                    if lasted {
                        pause = FIRST_PAUSE;
                    }
                    // Whoever comes now may wait for the next one, unless that may take long.
                    self.state.send_replace(if is_silent || !lasted {
                        State::Down(Trouble::Down("the last one is no good any more"))
                    } else {
                        State::Connecting
                    });
                    lane.close();
                    if lasted {
                        continue;
                    }
                    Trouble::Down("the last one was lost at once")
                }
                Err(trouble) => trouble,
            };
            self.state.send_replace(State::Down(trouble));
            tokio::select! {
                () = sleep(jittered(pause)) => {}
                () = self.state.closed() => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> Result<Lane, Trouble> {
        let address = &self.settings.address;
        let info = match (&self.goal, &address.servers) {
            (Goal::Node(host), _) | (Goal::Named, Servers::Single(host)) => address.info(host),
            (Goal::Named, Servers::Socket(path)) => address.socket_info(path),
            (Goal::Named, Servers::Sentinel { sentinels, master }) => {
                let host = self.master(sentinels, master).await?;
                address.info(&host)
            }
            (Goal::Named, Servers::Cluster(_)) => {
                Err(super::RedisError::url("a cluster has no one server"))
            }
        };
        let info = info.map_err(|_| Trouble::Refused("ERR"))?;
        let doubt = Arc::new(Notify::new());
        let connection = self.settings.connect(info, Arc::clone(&doubt)).await?;
        let by_slot = matches!(self.goal, Goal::Node(_));
        let lane = Lane::new(connection, &self.settings, by_slot, doubt);
        if matches!(address.servers, Servers::Sentinel { .. }) {
            master_only(&lane).await?;
        }
        Ok(lane)
    }

    /// Asks the sentinels, one after another, which server is the master.
    async fn master(&self, sentinels: &[Host], name: &str) -> Result<Host, Trouble> {
        let mut trouble = Trouble::Down("no sentinel answers");
        for sentinel in sentinels {
            let info = self.settings.address.sentinel_info(sentinel);
            let info: ConnectionInfo = info.map_err(|_| Trouble::Refused("ERR"))?;
            match self.ask_sentinel(info, name).await {
                Ok(host) => return Ok(host),
                Err(Trouble::Down(_)) => {}
                Err(other) => trouble = other,
            }
        }
        Err(trouble)
    }

    async fn ask_sentinel(&self, info: ConnectionInfo, name: &str) -> Result<Host, Trouble> {
        let connection = self.settings.connect(info, Arc::default()).await?;
        let lane = Lane::new(connection, &self.settings, false, Arc::default());
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        let reply = match lane.command(&command).await {
            Err(Trouble::Refused("ERR")) => return Err(Trouble::Refused("SENTINEL")),
            other => other?,
        };
        match reply {
            Value::Array(parts) => {
                let mut text = parts.into_iter().map(redis::from_redis_value::<String>);
                let (Some(Ok(name)), Some(Ok(port))) = (text.next(), text.next()) else {
                    return Err(Trouble::Garbled);
                };
                let port = port.parse().map_err(|_| Trouble::Garbled)?;
                Ok(Host { name, port })
            }
            Value::Nil => Err(Trouble::Refused("MASTER")),
            _ => Err(Trouble::Garbled),
        }
    }
}

/// Half to one and a half of a pause: servers that lost it together do not come back together.
fn jittered(pause: Duration) -> Duration {
    pause / 2 + pause * fastrand::u32(..1_000) / 1_000
}

/// A sentinel may still name the old master while the servers have moved on.
async fn master_only(lane: &Lane) -> Result<(), Trouble> {
    let role = lane.command(&redis::cmd("ROLE")).await?;
    let first = match role {
        Value::Array(parts) => parts.into_iter().next(),
        _ => None,
    };
    match first.map(redis::from_redis_value::<String>) {
        Some(Ok(role)) if role == "master" => Ok(()),
        Some(Ok(_)) => Err(Trouble::Down("the sentinels still name the old master")),
        Some(Err(_)) | None => Err(Trouble::Garbled),
    }
}
