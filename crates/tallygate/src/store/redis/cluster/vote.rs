//! Chooses a slot map from the replies of several nodes: a node may have a stale one.

use redis::Value;

use crate::store::redis::url::Host;

/// One past the last slot.
pub(super) const SLOTS: u16 = 16_384;

/// The owner of some slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: Host,
}

/// Parses the reply to `CLUSTER SLOTS`; `None` if it is invalid or empty. A missing host name means
/// the server that was queried, and `?` that the server does not know the name.
pub(super) fn parse_slots(reply: Value, queried: &Host) -> Option<Vec<SlotRange>> {
    let Value::Array(rows) = reply else {
        return None;
    };
    let number = |value: &Value| match value {
        Value::Int(n) => u16::try_from(*n).ok(),
        _ => None,
    };
    let mut ranges = Vec::with_capacity(rows.len());
    for row in rows {
        let Value::Array(row) = row else {
            return None;
        };
        let [first, last, Value::Array(master), ..] = &*row else {
            return None;
        };
        let [name, port, ..] = &**master else {
            return None;
        };
        let name = match name {
            Value::Nil => queried.name.clone(),
            Value::BulkString(name) => match &**name {
                b"" => queried.name.clone(),
                b"?" => continue,
                name => String::from_utf8(name.to_vec()).ok()?,
            },
            _ => return None,
        };
        let port = number(port)?;
        let (first, last) = (number(first)?, number(last)?.min(SLOTS - 1));
        if first <= last {
            ranges.push(SlotRange {
                first,
                last,
                owner: Host { name, port },
            });
        }
    }
    ranges.sort_by_key(|range| range.first);
    let ranges = join_adjacent(ranges);
    (!ranges.is_empty()).then_some(ranges)
}

/// Joins adjacent ranges of one owner, so that equal maps compare equal.
pub(super) fn join_adjacent(ranges: impl IntoIterator<Item = SlotRange>) -> Vec<SlotRange> {
    let mut joined: Vec<SlotRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.owner == range.owner && last.last + 1 == range.first => {
                last.last = range.last;
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Whether more than half of `voters` sent the same map as the last reply.
pub(super) fn has_majority(replies: &[Vec<SlotRange>], voters: usize) -> bool {
    let same = replies
        .iter()
        .filter(|&reply| Some(reply) == replies.last());
    same.count() * 2 > voters
}

/// Chooses the owner of every slot by the most votes. On a tie the current owner stays, if it has
/// as many; otherwise the first reply decides.
pub(super) fn elect(replies: &[Vec<SlotRange>], current: &[SlotRange]) -> Vec<SlotRange> {
    let maps = replies.iter().map(Vec::as_slice).chain([current]);
    let bounds = maps
        .flatten()
        .flat_map(|range| [range.first, range.last + 1]);
    let mut bounds: Vec<u16> = bounds.chain([0, SLOTS]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    // No map changes owners between two bounds.
    let elected = bounds.windows(2).filter_map(|bounds| {
        let first = bounds[0];
        let mut votes: Vec<(Option<&Host>, usize)> = Vec::new();
        for reply in replies {
            let owner = owner(reply, first);
            match votes.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, count)) => *count += 1,
                None => votes.push((owner, 1)),
            }
        }
        let most = votes.iter().map(|(_, count)| *count).max()?;
        votes.retain(|(_, count)| *count == most);
        let current = owner(current, first);
        let (first_owner, _) = *votes.first()?;
        let winner = match votes.iter().any(|(owner, _)| *owner == current) {
            true => current,
            false => first_owner,
        };
        Some(SlotRange {
            first,
            last: bounds[1] - 1,
            owner: winner?.clone(),
        })
    });
    join_adjacent(elected)
}

fn owner(ranges: &[SlotRange], slot: u16) -> Option<&Host> {
    let after = ranges.partition_point(|range| range.first <= slot);
    let range = ranges.get(after.checked_sub(1)?)?;
    (slot <= range.last).then_some(&range.owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u16, last: u16, port: u16) -> SlotRange {
        let name = "a".to_owned();
        let owner = Host { name, port };
        SlotRange { first, last, owner }
    }

    fn slots_reply(rows: &[(i64, i64, Value)]) -> Value {
        let row = |(first, last, name): &(i64, i64, Value)| {
            let master = Value::Array(vec![name.clone(), Value::Int(7)]);
            Value::Array(vec![Value::Int(*first), Value::Int(*last), master])
        };
        Value::Array(rows.iter().map(row).collect())
    }

    #[test]
    fn a_missing_name_is_the_queried_host() {
        let queried = Host {
            name: "a".to_owned(),
            port: 1,
        };
        let name = |name: &str| Value::BulkString(name.into());
        for missing in [Value::Nil, name(""), name("a")] {
            let reply = slots_reply(&[(5, 9, missing.clone()), (0, 4, missing)]);
            assert_eq!(parse_slots(reply, &queried), Some(vec![range(0, 9, 7)]));
        }
        let unknown = slots_reply(&[(0, 4, name("?")), (5, 9, name("a"))]);
        assert_eq!(parse_slots(unknown, &queried), Some(vec![range(5, 9, 7)]));
        assert_eq!(parse_slots(slots_reply(&[]), &queried), None);
        assert_eq!(parse_slots(Value::Okay, &queried), None);
    }

    #[test]
    fn the_map_that_most_replies_agree_on_wins() {
        let (new, stale) = (vec![range(0, 9, 1)], vec![range(0, 9, 2)]);
        let replies = [stale.clone(), new.clone(), new.clone()];
        assert_eq!(elect(&replies, &stale), new);
        assert!(has_majority(&replies, 3));
        assert!(!has_majority(&replies, 4));
        assert!(!has_majority(&replies[..2], 2));
    }

    #[test]
    fn each_slot_is_elected_on_its_own() {
        // Three nodes, each without the latest migration of another slot.
        let replies = [
            vec![range(0, 0, 1), range(1, 1, 2), range(2, 2, 2)],
            vec![range(0, 0, 2), range(1, 1, 1), range(2, 2, 2)],
            vec![range(0, 0, 2), range(1, 1, 2), range(2, 2, 1)],
        ];
        assert_eq!(elect(&replies, &[]), vec![range(0, 2, 2)]);
    }

    #[test]
    fn a_tie_keeps_the_current_owner() {
        let replies = [vec![range(0, 9, 1)], vec![range(0, 9, 2)]];
        let current = [range(0, 4, 2), range(5, 7, 3)];
        let elected = elect(&replies, &current);
        assert_eq!(elected, vec![range(0, 4, 2), range(5, 9, 1)]);
        assert_eq!(elect(&[], &current), vec![]);
    }

    #[test]
    fn a_slot_that_most_replies_omit_has_no_owner() {
        let replies = [
            vec![range(0, 9, 1)],
            vec![range(0, 4, 1)],
            vec![range(0, 4, 1)],
        ];
        assert_eq!(elect(&replies, &[]), vec![range(0, 4, 1)]);
    }
}
