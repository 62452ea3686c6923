//! The cluster as one node sees it: `CLUSTER NODES`.

use std::ops::RangeInclusive;

use crate::redis::Server;
use crate::resp::Reply;

/// A node, as another sees it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) is_master: bool,
    /// Connected and not marked as failing.
    pub(super) is_healthy: bool,
    /// The configuration epoch: if two nodes claim a slot, the higher one wins.
    pub(super) epoch: u64,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

/// Parses `CLUSTER NODES`: id, address, flags, master, ping, pong, epoch, link, slots.
pub(super) fn view(node: &Server) -> Option<Vec<Member>> {
    let Reply::Bulk(text) = node.try_command(&["CLUSTER", "NODES"]).ok()? else {
        return None;
    };
    let text = String::from_utf8(text).ok()?;
    text.lines().map(member).collect()
}

fn member(line: &str) -> Option<Member> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [id, _, flags, _, _, _, epoch, link, slots @ ..] = fields.as_slice() else {
        return None;
    };
    let flags: Vec<&str> = flags.split(',').collect();
    let unhealthy = ["fail", "fail?", "handshake", "noaddr"];
    Some(Member {
        id: (*id).to_owned(),
        is_master: flags.contains(&"master"),
        is_healthy: *link == "connected" && !flags.iter().any(|flag| unhealthy.contains(flag)),
        epoch: epoch.parse().ok()?,
        // Slots in brackets are being migrated.
        slots: slots.iter().filter_map(|slots| range(slots)).collect(),
    })
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

pub(super) fn knows(view: &[Member], id: &str) -> bool {
    view.iter()
        .any(|member| member.id == id && member.is_healthy)
}

pub(super) fn is_ok(node: &Server) -> bool {
    match node.try_command(&["CLUSTER", "INFO"]) {
        Ok(Reply::Bulk(info)) => String::from_utf8_lossy(&info).contains("cluster_state:ok"),
        Ok(_) | Err(_) => false,
    }
}
