//! The migration of a slot from one master to another.

use super::{Cluster, assert_ok};
use crate::resp::Reply;

/// Keys per `MIGRATE`.
const BATCH: &str = "100";

/// A slot in migration. Dropping it does not end the migration.
#[derive(Debug)]
pub struct Migration<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) slot: u16,
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Migration<'_> {
    /// The node that still owns the slot.
    #[must_use]
    pub fn from(&self) -> usize {
        self.from
    }

    /// The node that will own it.
    #[must_use]
    pub fn to(&self) -> usize {
        self.to
    }

    /// Migrates one key. Returns false if the source does not have it.
    pub fn move_key(&self, key: &str) -> bool {
        self.migrate(&[key.as_bytes().to_vec()])
    }

    /// Migrates all keys of the slot. Returns how many.
    pub fn move_keys(&self) -> usize {
        let source = &self.cluster.nodes[self.from];
        let slot = self.slot.to_string();
        let mut moved = 0;
        loop {
            let reply = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, BATCH]);
            let name = |key: &Reply| match key {
                Reply::Bulk(name) => name.clone(),
                other => panic!("not a key: {other:?}"),
            };
            let keys: Vec<Vec<u8>> = reply.array().iter().map(name).collect();
            if keys.is_empty() {
                return moved;
            }
            self.migrate(&keys);
            moved += keys.len();
        }
    }

    /// Ends the migration: assigns the slot on every master and waits until every node knows the
    /// owner. Otherwise the next migration could claim the slot with an epoch in use, and nodes
    /// would disagree permanently.
    pub fn end(self) {
        let owner = ["NODE", &self.cluster.ids[self.to]];
        // The new owner first: otherwise the slot has no owner for a moment.
        self.set(self.to, &owner);
        self.set(self.from, &owner);
        for master in self.cluster.masters() {
            if master != self.to && master != self.from && self.cluster.nodes[master].is_awake() {
                self.set(master, &owner);
            }
        }
        self.cluster.wait_for_owner(self.slot, self.to);
    }

    /// Cancels the migration: the slot stays on its node, without the keys that were migrated.
    pub fn cancel(self) {
        self.set(self.to, &["STABLE"]);
        self.set(self.from, &["STABLE"]);
    }

    pub(super) fn set(&self, node: usize, arguments: &[&str]) {
        let slot = self.slot.to_string();
        let command = [&["CLUSTER", "SETSLOT", &slot], arguments].concat();
        assert_ok(&self.cluster.nodes[node].command(&command));
    }

    fn migrate(&self, keys: &[Vec<u8>]) -> bool {
        let port = self.cluster.nodes[self.to].port().to_string();
        let command = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000"].into_iter();
        let mut command: Vec<&[u8]> = command.map(str::as_bytes).collect();
        let login = self.cluster.nodes[self.to].password();
        if let Some(password) = login {
            command.extend([&b"AUTH"[..], password.as_bytes()]);
        }
        command.push(b"KEYS");
        command.extend(keys.iter().map(Vec::as_slice));
        let reply = self.cluster.nodes[self.from].command(&command);
        assert_ok(&reply);
        reply.text() == "OK"
    }
}
