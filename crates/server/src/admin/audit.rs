//! The audit log: one line for every change on the side. Knows who asked by address; keys are
//! shown as a hash that stands for the same key as long as the process runs.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::active_rules::Switch;
use crate::redact::Redactor;
use tallygate::rules::Name;

/// Writes the lines.
pub(super) struct Audit {
    mask: Arc<Redactor>,
}

impl Audit {
    pub(super) fn new(mask: Arc<Redactor>) -> Self {
        Audit { mask }
    }

    /// A short hash that stands for a key.
    pub(super) fn hash<'p>(&self, parts: impl IntoIterator<Item = &'p str>) -> String {
        self.mask.hash(parts)
    }

    pub(super) fn turned(&self, peer: SocketAddr, switch: Switch) {
        let state = switch.name();
        tracing::warn!(target: "audit", %peer, change = "kill-switch", state, "admin change");
    }

    pub(super) fn shaded(&self, peer: SocketAddr, rule: &Name, shadow: Option<bool>) {
        let shadow = shadow.map_or("as in the file", |on| if on { "on" } else { "off" });
        tracing::info!(target: "audit", %peer, change = "shadow", %rule, shadow, "admin change");
    }

    pub(super) fn reset(&self, peer: SocketAddr, key: &str, counters: usize) {
        tracing::info!(target: "audit", %peer, change = "reset", key, counters, "admin change");
    }

    pub(super) fn overridden(
        &self,
        peer: SocketAddr,
        id: u64,
        who: &str,
        action: &str,
        seconds: u64,
    ) {
        tracing::info!(
            target: "audit", %peer, change = "override", id, who, action, seconds, "admin change"
        );
    }

    pub(super) fn ended(&self, peer: SocketAddr, id: u64) {
        tracing::info!(target: "audit", %peer, change = "override ended", id, "admin change");
    }
}
