//! Finds a client on a list. Knows networks and keys; knows nothing of what the list is for.

use std::collections::HashMap;

use crate::Key;
use crate::http::Network;

use super::extract::{Drawing, Drawn};
use super::request_view::{Asked, Client};
use super::{Entry, KeyText};

/// A list of clients, each with a number.
#[derive(Debug, Default)]
pub(super) struct Who {
    networks: Vec<(Network, usize)>,
    keys: HashMap<Key<'static>, usize>,
}

impl Who {
    pub(super) fn new<'e>(
        entries: impl IntoIterator<Item = (&'e Entry, usize)>,
        drawing: &Drawing,
        client: &Client,
    ) -> Self {
        let mut who = Who::default();
        for (entry, number) in entries {
            match entry {
                Entry::Network(network) => who.networks.push((*network, number)),
                Entry::Key(key) => who.add_key(key, number, drawing, client),
            }
        }
        who
    }

    pub(super) fn add_key(
        &mut self,
        text: &KeyText,
        number: usize,
        drawing: &Drawing,
        client: &Client,
    ) {
        if let Some(key) = drawing.listed(text, client) {
            self.keys.entry(key).or_insert(number);
        }
    }

    /// The smallest number that a client has on the list.
    pub(super) fn find(&self, asked: &Asked<'_>, drawn: &Drawn) -> Option<usize> {
        let network = match self.networks.is_empty() {
            true => None,
            false => asked.exact_client().and_then(|ip| {
                let mut networks = self.networks.iter();
                networks.find(|(network, _)| network.contains(ip))
            }),
        };
        let key = match drawn.own && !self.keys.is_empty() {
            true => self.keys.get(&drawn.key).copied(),
            false => None,
        };
        network
            .map(|(_, number)| *number)
            .into_iter()
            .chain(key)
            .min()
    }
}
