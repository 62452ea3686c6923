//! The audit log: one line per change at run time, with the peer's address. Keys are hashed.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::active_rules::KillSwitch;
use crate::redact::Redactor;
use tallygate::rules::Name;

pub(super) struct Audit {
    redactor: Arc<Redactor>,
}

impl Audit {
    pub(super) fn new(redactor: Arc<Redactor>) -> Self {
        Audit { redactor }
    }

    pub(super) fn hash<'p>(&self, parts: impl IntoIterator<Item = &'p str>) -> String {
        self.redactor.hash(parts)
    }

    pub(super) fn kill_switch(&self, peer: SocketAddr, switch: KillSwitch) {
        let state = switch.name();
        tracing::warn!(target: "audit", %peer, change = "kill-switch", state, "admin change");
    }

    pub(super) fn shadow(&self, peer: SocketAddr, rule: &Name, shadow: Option<bool>) {
        let shadow = shadow.map_or("as in the file", |on| if on { "on" } else { "off" });
        tracing::info!(target: "audit", %peer, change = "shadow", %rule, shadow, "admin change");
    }

    pub(super) fn reset(&self, peer: SocketAddr, key: &str, counters: usize) {
        tracing::info!(target: "audit", %peer, change = "reset", key, counters, "admin change");
    }

    pub(super) fn override_added(
        &self,
        peer: SocketAddr,
        id: u64,
        client: &str,
        action: &str,
        seconds: u64,
    ) {
        tracing::info!(
            target: "audit", %peer, change = "override", id, who = client, action, seconds, "admin change"
        );
    }

    pub(super) fn override_removed(&self, peer: SocketAddr, id: u64) {
        tracing::info!(target: "audit", %peer, change = "override ended", id, "admin change");
    }
}
