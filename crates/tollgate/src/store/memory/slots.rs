//! What the counters of one bucket take up: their tags, when each may be forgotten, their states.

use std::mem;

use tollgate_core::{Log, Packed, Quota, State, Verdict, apply, apply_packed};

use super::Ask;

/// Tags have this many bits; no tag is 0.
const TAG_BITS: u32 = 57;
/// Later than any counter may be forgotten: the slot is claimed.
const CLAIMED: u64 = (1 << 54) - 1;

/// Makes a tag of a hash.
#[inline]
pub(super) fn tag(hash: u64) -> u64 {
    (hash >> (64 - TAG_BITS)).max(1)
}

/// A few places for counters, by number; all vacant at first.
pub(super) trait Slots: Default + Send {
    /// How many there are.
    const LEN: usize;

    /// Whose counter it is; 0 when vacant.
    fn tag(&self, at: usize) -> u64;

    /// From this time on the slot may be used for another.
    fn forget_at(&self, at: usize) -> u64;

    /// Decides on the counter of that tag, which is new if the slot is not its own yet.
    fn decide(&mut self, at: usize, tag: u64, quota: &Quota, ask: Ask) -> Verdict;

    /// Takes the state out and keeps the slot from being used for another until one is stored.
    fn claim(&mut self, at: usize, tag: u64, quota: &Quota) -> State;

    /// Puts a state in; a new one vacates the slot.
    fn store(&mut self, at: usize, tag: u64, quota: &Quota, state: State);

    /// Moves a counter over.
    fn move_to(&mut self, at: usize, there: &mut Self, to: usize);

    #[inline]
    fn is_claimed(&self, at: usize) -> bool {
        self.forget_at(at) == CLAIMED
    }

    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        (0..Self::LEN).find(|&at| self.tag(at) == tag)
    }

    #[inline]
    fn vacancy(&self, now: u64) -> Option<usize> {
        (0..Self::LEN).find(|&at| self.forget_at(at) <= now)
    }
}

/// States of fixed size: 57 bits of tag, 54 of time, 53 and 60 of state, fitted together in 28
/// bytes, so that four of them, their lock and their bookkeeping fill two cache lines.
#[derive(Default)]
pub(super) struct Flat {
    /// The tag, and 7 bits of `a`.
    tags: [u64; 4],
    /// When to forget, and 10 bits of `a`.
    times: [u64; 4],
    /// `b`, and 4 bits of `a`.
    bs: [u64; 4],
    /// The low 32 bits of `a`.
    lows: [u32; 4],
}

impl Flat {
    #[inline]
    fn packed(&self, at: usize) -> Packed {
        let (x, y, z) = (self.tags[at], self.times[at], self.bs[at]);
        let high = (z & 0xf) | (y & 0x3ff) << 4 | (x & 0x7f) << 14;
        Packed {
            forget_at_us: y >> 10,
            a: u64::from(self.lows[at]) | high << 32,
            b: z >> 4,
        }
    }

    #[inline]
    fn set(&mut self, at: usize, tag: u64, packed: Packed) {
        let high = packed.a >> 32;
        self.tags[at] = tag << 7 | (high >> 14 & 0x7f);
        self.times[at] = packed.forget_at_us << 10 | (high >> 4 & 0x3ff);
        self.bs[at] = packed.b << 4 | (high & 0xf);
        self.lows[at] = packed.a as u32;
    }

    #[inline]
    fn put(&mut self, at: usize, tag: u64, packed: Option<Packed>) {
        match packed {
            Some(packed) => self.set(at, tag, packed),
            None => self.set(at, 0, Packed::default()),
        }
    }
}

impl Slots for Flat {
    const LEN: usize = 4;

    #[inline]
    fn tag(&self, at: usize) -> u64 {
        self.tags[at] >> 7
    }

    #[inline]
    fn forget_at(&self, at: usize) -> u64 {
        self.times[at] >> 10
    }

    #[inline]
    fn decide(&mut self, at: usize, tag: u64, quota: &Quota, ask: Ask) -> Verdict {
        let packed = (self.tag(at) == tag).then(|| self.packed(at));
        let (verdict, packed) = apply_packed(quota, packed, ask.verb, ask.cost, ask.now);
        self.put(at, tag, packed);
        verdict
    }

    fn claim(&mut self, at: usize, tag: u64, quota: &Quota) -> State {
        let state = if self.tag(at) == tag {
            State::unpack(quota, self.packed(at))
        } else {
            State::New
        };
        let claimed = Packed {
            forget_at_us: CLAIMED,
            ..Packed::default()
        };
        self.set(at, tag, claimed);
        state
    }

    fn store(&mut self, at: usize, tag: u64, quota: &Quota, state: State) {
        self.put(at, tag, state.pack(quota));
    }

    fn move_to(&mut self, at: usize, there: &mut Self, to: usize) {
        there.set(to, self.tag(at), self.packed(at));
        self.put(at, 0, None);
    }
}

/// Logs, whose entries are elsewhere.
#[derive(Default)]
pub(super) struct Logs {
    slots: [Logged; 5],
}

#[derive(Default)]
struct Logged {
    tag: u64,
    forget_at: u64,
    log: Log,
}

impl Logged {
    fn load(&mut self, tag: u64) -> State {
        let log = mem::take(&mut self.log);
        if self.tag == tag {
            State::Log(log)
        } else {
            State::New
        }
    }
}

impl Slots for Logs {
    const LEN: usize = 5;

    #[inline]
    fn tag(&self, at: usize) -> u64 {
        self.slots[at].tag
    }

    #[inline]
    fn forget_at(&self, at: usize) -> u64 {
        self.slots[at].forget_at
    }

    #[inline]
    fn decide(&mut self, at: usize, tag: u64, quota: &Quota, ask: Ask) -> Verdict {
        let mut state = self.slots[at].load(tag);
        let verdict = apply(quota, &mut state, ask.verb, ask.cost, ask.now);
        self.store(at, tag, quota, state);
        verdict
    }

    fn claim(&mut self, at: usize, tag: u64, _: &Quota) -> State {
        let state = self.slots[at].load(tag);
        self.slots[at] = Logged {
            tag,
            forget_at: CLAIMED,
            log: Log::default(),
        };
        state
    }

    #[inline]
    fn store(&mut self, at: usize, tag: u64, quota: &Quota, state: State) {
        self.slots[at] = match state {
            State::Log(log) => Logged {
                tag,
                forget_at: log.forget_at_us(quota),
                log,
            },
            _ => Logged::default(),
        };
    }

    fn move_to(&mut self, at: usize, there: &mut Self, to: usize) {
        there.slots[to] = mem::take(&mut self.slots[at]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_packed_state_comes_back() {
        for bit in 0..54 {
            let packed = Packed {
                forget_at_us: 1 << bit,
                a: 1 << (bit % 53),
                b: 1 << (bit + 6),
            };
            let mut slots = Flat::default();
            slots.set(3, 1 << (bit + 3), packed);
            assert_eq!(slots.packed(3), packed);
            assert_eq!(slots.tag(3), 1 << (bit + 3));
            assert_eq!(slots.forget_at(3), 1 << bit);
        }
    }
}
