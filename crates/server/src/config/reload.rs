//! Rules that follow their file: read again when told to, put in force if they are right, and left
//! as they were if not. Knows nothing of who tells it, or when.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tallygate::Limit;

use super::load::{Loaded, load};
use super::report::Report;
use tallygate::rules::{Live, RuleSet, Rules};

/// Rules in force, and the file they come from.
#[derive(Debug)]
pub struct Reloader {
    path: PathBuf,
    live: Arc<Live>,
    loaded: Loaded,
}

/// What came of reading the rules again.
#[derive(Debug)]
pub enum Reloaded {
    /// The file says what it said before.
    Same,
    /// The new rules are in force.
    Changed {
        /// What was in force until now, for `changes` to tell the difference.
        before: Box<RuleSet>,
        /// Whether the file names another store, which takes a restart.
        other_store: bool,
    },
}

impl Reloader {
    /// Reads a file and puts its rules in force.
    ///
    /// # Errors
    /// Everything that is wrong with it, if anything is.
    pub fn new(path: &Path) -> Result<Self, Report> {
        let loaded = load(path)?;
        Ok(Reloader {
            path: path.to_owned(),
            live: Arc::new(Live::new(ready(&loaded))),
            loaded,
        })
    }

    /// The rules in force, whatever comes of later files.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// What the file in force says.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Reads the file again. Requests go on meanwhile; a limit that keeps its rule's name, its
    /// behaviour and its period keeps its counts.
    ///
    /// No limiter hears of the new limits: that takes [`reload_with`](Self::reload_with).
    ///
    /// # Errors
    /// Everything that is wrong with it, if anything is. Then the rules that were in force still
    /// are.
    pub fn reload(&mut self) -> Result<Reloaded, Report> {
        self.reload_with(|_| {})
    }

    /// Reads the file again, and tells of every new limit before the first request can come before
    /// it, for a limiter to [prepare](tallygate::Limiter::prepare).
    ///
    /// # Errors
    /// Everything that is wrong with it, if anything is. Then the rules that were in force still
    /// are.
    pub fn reload_with(&mut self, prepare: impl FnMut(&Limit)) -> Result<Reloaded, Report> {
        let loaded = load(&self.path)?;
        let before = std::mem::replace(&mut self.loaded, loaded);
        let other_store = before.store != self.loaded.store;
        if before.rules == self.loaded.rules && !other_store {
            return Ok(Reloaded::Same);
        }
        let rules = ready(&self.loaded);
        rules.limits().for_each(prepare);
        self.live.swap(rules);
        Ok(Reloaded::Changed {
            before: Box::new(before.rules),
            other_store,
        })
    }
}

fn ready(loaded: &Loaded) -> Rules {
    Rules::new(loaded.rules.clone()).expect("a loaded file has no faults")
}
