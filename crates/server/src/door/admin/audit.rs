//! The audit log: one line for every change on the side. Knows who asked by address; keys are
//! shown as a hash that stands for the same key as long as the process runs.

use std::net::SocketAddr;

use sha2::{Digest, Sha256};

use crate::force::Switch;
use crate::rules::Name;

/// Writes the lines.
pub(super) struct Audit {
    /// Mixed into every hash: without it, likely keys could be tried out.
    salt: [u8; 16],
}

impl Audit {
    pub(super) fn new() -> Self {
        let mut salt = [0; 16];
        fastrand::Rng::new().fill(&mut salt);
        Audit { salt }
    }

    /// A short hash that stands for a key.
    pub(super) fn hash<'p>(&self, parts: impl IntoIterator<Item = &'p str>) -> String {
        let mut hasher = Sha256::new_with_prefix(self.salt);
        for part in parts {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        let hash = hasher.finalize();
        let digits = hash.iter().take(6).map(|byte| format!("{byte:02x}"));
        format!("#{}", digits.collect::<String>())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_keys_apart_and_shows_none() {
        let audit = Audit::new();
        assert_eq!(audit.hash(["a", "b"]), audit.hash(["a", "b"]));
        assert_ne!(audit.hash(["a", "b"]), audit.hash(["ab"]));
        assert_ne!(audit.hash(["a"]), Audit::new().hash(["a"]));
        assert_eq!(audit.hash(["a"]).len(), 13);
    }
}
