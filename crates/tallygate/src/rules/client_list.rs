//! Finds a client in a list of networks and keys.

use std::collections::HashMap;

use super::extract::{ExtractedKey, listed_key};
use super::request_view::RequestView;
use super::{KeyText, ListEntry, Part};
use crate::http::{ClientAddress, Network};
use crate::key::Key;

/// A list of clients, each with a number.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientList {
    networks: Vec<(Network, usize)>,
    keys: HashMap<Key<'static>, usize>,
}

impl ClientList {
    pub(super) fn new<'e>(
        entries: impl IntoIterator<Item = (&'e ListEntry, usize)>,
        parts: &[Part],
        client: &ClientAddress,
    ) -> Self {
        let mut list = ClientList::default();
        for (entry, number) in entries {
            match entry {
                ListEntry::Network(network) => list.networks.push((*network, number)),
                ListEntry::Key(key) => list.add_key(key, number, parts, client),
            }
        }
        list
    }

    pub(super) fn add_key(
        &mut self,
        text: &KeyText,
        number: usize,
        parts: &[Part],
        client: &ClientAddress,
    ) {
        if let Some(key) = listed_key(parts, text, client) {
            self.keys.entry(key).or_insert(number);
        }
    }

    /// The smallest number that a client has in the list.
    pub(super) fn find(&self, view: &RequestView<'_>, extracted: &ExtractedKey) -> Option<usize> {
        let network = match self.networks.is_empty() {
            true => None,
            false => view.client_ip().and_then(|ip| {
                let mut networks = self.networks.iter();
                networks.find(|(network, _)| network.contains(ip))
            }),
        };
        let key = match extracted.primary && !self.keys.is_empty() {
            true => self.keys.get(&extracted.key).copied(),
            false => None,
        };
        let network = network.map(|(_, number)| *number);
        network.into_iter().chain(key).min()
    }
}
