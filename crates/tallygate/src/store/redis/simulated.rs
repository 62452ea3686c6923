//! A process and a server of a simulated fleet. The process is the machines of this store, driven by
//! events instead of tasks, timers and sockets; the server decides with the core.

mod link;
mod process;
mod server;

use tallygate_core::{Quota, StateSize};

use super::batch::CallResult;
use super::command::RepeatedCall;
use crate::decision::Decision;
pub(crate) use process::{Process, ProcessSettings};
pub(crate) use server::Server;

/// The number of a request, unique in its fleet.
pub(crate) type RequestId = u64;

/// Fixes that are switched off, to show what they are worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defects {
    /// A missed deadline counts as a failure, although the server still answers.
    pub(crate) overload_is_failure: bool,
    /// All servers of a process share one breaker.
    pub(crate) one_breaker: bool,
    /// A request of which a part failed is decided by policy, although another part refuses.
    pub(crate) forgotten_refusals: bool,
}

/// What a process asks of its surroundings.
pub(crate) enum Effect {
    Send {
        server: usize,
        message: Message,
    },
    /// The timer is due after so many microseconds of the process' clock.
    After {
        us: u64,
        timer: Timer,
    },
    Answer(Answer),
}

/// The answer to a request.
pub(crate) struct Answer {
    pub(crate) id: RequestId,
    pub(crate) decision: Decision,
    pub(crate) by: DecidedBy,
    /// When a server counted it.
    pub(crate) counted_at: Option<Instant>,
}

/// What decided a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecidedBy {
    Servers,
    Leases,
    RefusalCache,
    /// The policy for failures, for some limits at least.
    Failure,
    /// The policy for overload, for some limits at least.
    Overload,
}

/// A time of the simulation, which no process and no server knows.
pub(crate) type Instant = u64;

/// What a process sends to a server.
pub(crate) struct Message {
    connection: u32,
    body: Body,
}

enum Body {
    Connect,
    Batch {
        number: u64,
        calls: Vec<RepeatedCall>,
    },
    Probe(Probing),
    Heartbeat {
        process: u64,
        sent_us: u64,
    },
}

/// Why a server is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probing {
    /// The breaker is open.
    Breaker,
    /// It has been silent.
    Silence,
}

/// What a server replies.
pub(crate) struct Reply {
    connection: u32,
    body: ReplyBody,
    at: Instant,
}

enum ReplyBody {
    Connected,
    Batch {
        number: u64,
        results: Vec<CallResult>,
    },
    Probed(Probing),
    Counted {
        sent_us: u64,
        processes: u32,
    },
}

/// A timer of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The next batch may be sent.
    Batch {
        server: usize,
        connection: u32,
    },
    /// A batch has waited for its reply too long.
    ResponseTimeout {
        server: usize,
        batch: u64,
    },
    /// Is the server silent?
    Silence {
        server: usize,
        connection: u32,
    },
    Probe {
        server: usize,
    },
    ProbeTimeout {
        server: usize,
        round: u32,
    },
    SilenceTimeout {
        server: usize,
        connection: u32,
    },
    Connect {
        server: usize,
    },
    ConnectTimeout {
        server: usize,
        connection: u32,
    },
    Heartbeat,
    HeartbeatTimeout {
        sent_us: u64,
    },
    /// Leases may have ended.
    LeaseTick,
}

/// Why a quota cannot be simulated, if so.
pub(crate) fn unsupported(quota: &Quota) -> Option<&'static str> {
    let algorithm = quota.algorithm();
    if algorithm.is_shaping() {
        return Some("nobody waits for its delays");
    }
    let tells_callers_apart = algorithm.state_size() == StateSize::Callers;
    tells_callers_apart.then_some("its requests have no members and no owners")
}
