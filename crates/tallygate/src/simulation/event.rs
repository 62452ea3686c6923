//! The queue of events, by time and then by the order in which they were added.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

pub(super) struct EventQueue<E> {
    heap: BinaryHeap<Scheduled<E>>,
    added: u64,
}

struct Scheduled<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> EventQueue<E> {
    pub(super) fn new() -> Self {
        EventQueue {
            heap: BinaryHeap::new(),
            added: 0,
        }
    }

    pub(super) fn push(&mut self, at: u64, event: E) {
        let number = self.added;
        self.added += 1;
        self.heap.push(Scheduled { at, number, event });
    }

    /// When the next event is due.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|next| next.at)
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        self.heap.pop().map(|next| next.event)
    }
}

impl<E> Scheduled<E> {
    fn order(&self) -> (u64, u64) {
        (self.at, self.number)
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    /// The earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.order().cmp(&self.order())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_they_were_added() {
        let mut queue = EventQueue::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b'), (5, 'e')] {
            queue.push(at, event);
        }
        assert_eq!(queue.next_at(), Some(1));
        let events: String = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(events, "abcde");
    }
}
