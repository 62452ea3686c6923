//! The scripts and how they are called. Knows their text and hash; knows nothing of connections.

use std::sync::{Arc, OnceLock};

use redis::{Cmd, Script};
use tallygate_core::lua::{self, Kinds};

use super::command::Call;

/// A script for each mixture of algorithms, made when it is first wanted.
#[derive(Default)]
pub(super) struct Scripts {
    made: [OnceLock<Made>; Kinds::COUNT],
}

struct Made {
    text: String,
    hash: String,
}

/// Whether a script is called by its hash or sent whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Hash,
    Text,
}

impl Scripts {
    fn made(&self, kinds: Kinds) -> &Made {
        self.made[kinds.index()].get_or_init(|| {
            let text = lua::script(kinds);
            let hash = Script::new(&text).get_hash().to_owned();
            Made { text, hash }
        })
    }

    /// Calls the script that decides these requests, all at one time.
    pub(super) fn command(&self, by: By, calls: &[Arc<Call>]) -> Cmd {
        let kinds = calls.iter().map(|call| call.kinds());
        let made = self.made(kinds.fold(Kinds::default(), Kinds::union));
        let keys: usize = calls.iter().map(|call| call.len()).sum();
        let mut command = Cmd::with_capacity(keys + 6, 128 * keys + 128);
        match by {
            By::Hash => command.arg("EVALSHA").arg(&made.hash),
            By::Text => command.arg("EVAL").arg(&made.text),
        };
        command.arg(keys);
        for name in calls.iter().flat_map(|call| call.names()) {
            command.arg(name);
        }
        let arguments = calls.iter().flat_map(|call| call.arguments());
        command.arg(lua::join_arguments(arguments));
        if let Some(at) = calls.first().and_then(|call| call.at_us()) {
            command.arg(at / 1_000_000).arg(at % 1_000_000);
        }
        command
    }
}
