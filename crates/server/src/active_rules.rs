//! The rules in force: what the file says, what was changed on the side for a while, and the
//! switch that overrules them all. Knows nothing of files, stores and who asks for a change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tallygate::Limit;
use tallygate::http::{Head, Plan, Policy, RuleSettings, Stop, StopReason};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{KILL_SWITCH, Metrics};
use tallygate::rules::{
    ListEntry, Name, Override, OverrideAction, Rule, RuleSet, RuleSetError, Rules, SwappableRules,
};

/// The most overrides on the side.
pub(crate) const MOST_OVERRIDES: usize = 1_000;

/// The rules in force.
pub(crate) struct Force {
    live: SwappableRules,
    switch: AtomicU8,
    closed: Arc<RuleSettings>,
    made_of: Mutex<MadeOf>,
    metrics: Arc<Metrics>,
    /// An override may end sooner than the one that is waited for.
    changed: Notify,
}

/// What overrules every rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Nothing.
    #[default]
    Off,
    /// Everything passes, and nothing is counted.
    Open,
    /// Nothing passes.
    Closed,
}

/// What the rules in force are made of.
struct MadeOf {
    set: RuleSet,
    origin: String,
    overrides: Vec<Temporary>,
    /// Rules that were switched to shadow, or out of it.
    shadows: BTreeMap<Name, bool>,
    next: u64,
}

/// An override that ends.
#[derive(Clone, Debug)]
pub(crate) struct Temporary {
    /// Its number, for whoever wants it to end sooner.
    pub(crate) id: u64,
    /// What holds.
    pub(crate) what: Override,
    /// Until when.
    pub(crate) until: Instant,
}

/// Rules in force, for people.
pub(crate) struct View {
    /// Where they come from.
    pub(crate) origin: String,
    /// The rules, with what was changed on the side.
    pub(crate) set: RuleSet,
    /// The rules whose shadow was switched on the side.
    pub(crate) switched: Vec<Name>,
}

/// StopReason something cannot be put in force on the side.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// There is no such rule.
    NoRule,
    /// No rule it is about has a key of as many parts.
    Parts,
    /// Rules find such a key in different places, and none is named.
    Mixed,
    /// There are [`MOST_OVERRIDES`] already.
    Full,
}

impl Force {
    /// Puts rules in force.
    ///
    /// # Errors
    /// The first fault of the rules.
    pub(crate) fn new(
        set: RuleSet,
        origin: impl Into<String>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RuleSetError> {
        let live = SwappableRules::new(Rules::new(set.clone())?);
        let force = Force {
            live,
            switch: AtomicU8::new(Switch::Off as u8),
            closed: Arc::new(RuleSettings::new(KILL_SWITCH)),
            made_of: Mutex::new(MadeOf {
                set,
                origin: origin.into(),
                overrides: Vec::new(),
                shadows: BTreeMap::new(),
                next: 1,
            }),
            metrics,
            changed: Notify::new(),
        };
        force.made_of().apply(&force)?;
        Ok(force)
    }

    /// The rules themselves, whatever the switch says.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.live.current()
    }

    /// What a request has to pass of one rule; none if there is no such rule.
    pub(crate) fn plan_of(&self, rule: &str, head: &Head<'_>) -> Option<Plan> {
        let plan = self.live.current().plan_rule(rule, head)?;
        Some(self.overruled().unwrap_or(plan))
    }

    /// What every request has to pass while the switch is on.
    pub(crate) fn overruled(&self) -> Option<Plan> {
        let mut plan = Plan::new();
        match self.switch() {
            Switch::Off => return None,
            Switch::Open => {}
            Switch::Closed => plan.stop(Stop {
                settings: Arc::clone(&self.closed),
                reason: StopReason::Closed,
            }),
        }
        Some(plan)
    }

    /// How the switch stands.
    pub(crate) fn switch(&self) -> Switch {
        let at = self.switch.load(Ordering::Relaxed);
        let all = [Switch::Off, Switch::Open, Switch::Closed];
        all.into_iter()
            .find(|switch| *switch as u8 == at)
            .unwrap_or_default()
    }

    /// Turns the switch, for every request from now on.
    pub(crate) fn turn(&self, switch: Switch) {
        self.switch.store(switch as u8, Ordering::Relaxed);
    }

    /// Puts other rules in force under what was changed on the side, as far as that still fits.
    ///
    /// # Errors
    /// The first fault of the rules; then those that were in force still are.
    pub(crate) fn replace(&self, set: RuleSet) -> Result<(), RuleSetError> {
        let mut made_of = self.made_of();
        let before = std::mem::replace(&mut made_of.set, set);
        let applied = made_of.apply(self);
        if applied.is_err() {
            made_of.set = before;
        }
        applied
    }

    /// Adds an override, and tells its number.
    ///
    /// # Errors
    /// When it fits no rule, or there are too many.
    pub(crate) fn add(&self, what: Override, until: Instant) -> Result<u64, Unfit> {
        let mut made_of = self.made_of();
        made_of.fits(&what)?;
        made_of.expire();
        if made_of.overrides.len() >= MOST_OVERRIDES {
            return Err(Unfit::Full);
        }
        let id = made_of.next;
        made_of.next += 1;
        // The latest goes first: it is what somebody wants now.
        made_of.overrides.insert(0, Temporary { id, what, until });
        made_of.apply_again(self);
        self.changed.notify_one();
        Ok(id)
    }

    /// Ends an override, and tells whether there was one.
    pub(crate) fn remove(&self, id: u64) -> bool {
        let mut made_of = self.made_of();
        let before = made_of.overrides.len();
        made_of.overrides.retain(|one| one.id != id);
        let removed = made_of.overrides.len() < before;
        if removed {
            made_of.apply_again(self);
        }
        removed
    }

    /// Switches a rule to shadow or out of it; with none, it is as its file says.
    ///
    /// # Errors
    /// When there is no such rule.
    pub(crate) fn shadow(&self, rule: &Name, shadow: Option<bool>) -> Result<(), Unfit> {
        let mut made_of = self.made_of();
        if !made_of.set.rules.iter().any(|known| known.name == *rule) {
            return Err(Unfit::NoRule);
        }
        match shadow {
            Some(shadow) => made_of.shadows.insert(rule.clone(), shadow),
            None => made_of.shadows.remove(rule),
        };
        made_of.apply_again(self);
        Ok(())
    }

    /// The overrides on the side, the latest first.
    pub(crate) fn overrides(&self) -> Vec<Temporary> {
        self.made_of().overrides.clone()
    }

    /// The rules in force, for people.
    pub(crate) fn view(&self) -> View {
        let made_of = self.made_of();
        let mut set = made_of.set.clone();
        made_of.shade(&mut set);
        View {
            origin: made_of.origin.clone(),
            set,
            switched: made_of.shadows.keys().cloned().collect(),
        }
    }

    /// Where the rules come from.
    pub(crate) fn origin(&self) -> String {
        self.made_of().origin.clone()
    }

    /// Looks at each rule in force, with its shadow as it is; for those who only want a few words
    /// of each.
    pub(crate) fn each_rule(&self, mut each: impl FnMut(&Rule, bool)) {
        let made_of = self.made_of();
        for rule in &made_of.set.rules {
            let shadow = made_of.shadows.get(&rule.name);
            each(rule, *shadow.unwrap_or(&rule.shadow));
        }
    }

    /// Ends overrides when their time is up, for as long as it is polled.
    pub(crate) async fn keep_time(&self) {
        loop {
            let next = self.made_of().overrides.iter().map(|one| one.until).min();
            let changed = self.changed.notified();
            match next {
                Some(next) => tokio::select! {
                    () = tokio::time::sleep_until(next) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
            let mut made_of = self.made_of();
            if made_of.expire() {
                made_of.apply_again(self);
            }
        }
    }

    fn made_of(&self) -> MutexGuard<'_, MadeOf> {
        // What it holds is whole between any two statements.
        self.made_of
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl MadeOf {
    /// Whether an override is about anybody.
    fn fits(&self, what: &Override) -> Result<(), Unfit> {
        let named = |name: &Name| what.rule.as_ref().is_none_or(|rule| rule == name);
        let mut rules = self.set.rules.iter().filter(|rule| named(&rule.name));
        match &what.client {
            ListEntry::Network(_) => rules.next().map(|_| ()).ok_or(Unfit::NoRule),
            ListEntry::Key(key) => {
                let mut rules = rules.peekable();
                if rules.peek().is_none() {
                    return Err(Unfit::NoRule);
                }
                let mut rules = rules.filter(|rule| rule.key.len() == key.parts());
                let first = rules.next().ok_or(Unfit::Parts)?;
                match rules.all(|rule| first.same_key_sources(rule)) {
                    true => Ok(()),
                    false => Err(Unfit::Mixed),
                }
            }
        }
    }

    /// Forgets what has ended, and tells whether anything has.
    fn expire(&mut self) -> bool {
        let now = Instant::now();
        let before = self.overrides.len();
        self.overrides.retain(|one| one.until > now);
        self.overrides.len() < before
    }

    fn shade(&self, set: &mut RuleSet) {
        for rule in &mut set.rules {
            if let Some(shadow) = self.shadows.get(&rule.name) {
                rule.shadow = *shadow;
            }
        }
    }

    fn apply(&self, force: &Force) -> Result<(), RuleSetError> {
        let mut set = self.set.clone();
        self.shade(&mut set);
        let fitting = self.overrides.iter().map(|one| &one.what);
        let fitting = fitting.filter(|what| self.fits(what).is_ok()).cloned();
        set.overrides.splice(0..0, fitting);
        let names: Vec<&str> = self
            .set
            .rules
            .iter()
            .map(|rule| rule.name.as_str())
            .collect();
        let rules = Rules::new(set)?;
        force.metrics.set_rules(&names);
        force.live.swap(rules);
        Ok(())
    }

    /// Applies a change on the side, each of which was checked by itself.
    fn apply_again(&self, force: &Force) {
        if let Err(fault) = self.apply(force) {
            tracing::error!(%fault, "a change is not in force");
        }
    }
}

impl Policy for Force {
    fn plan(&self, head: &Head<'_>) -> Plan {
        self.overruled().unwrap_or_else(|| self.live.plan(head))
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        Rules::limits(&self.live.current()).for_each(each);
    }
}

impl Switch {
    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Switch::Off => "off",
            Switch::Open => "open",
            Switch::Closed => "closed",
        }
    }

    /// What a word means.
    pub(crate) fn named(word: &str) -> Option<Self> {
        let all = [Switch::Off, Switch::Open, Switch::Closed];
        all.into_iter().find(|switch| switch.name() == word)
    }
}

impl Temporary {
    /// What holds, in a word.
    pub(crate) fn action(&self) -> &'static str {
        match self.what.action {
            OverrideAction::Limits(_) => "limits",
            OverrideAction::Allow => "allow",
            OverrideAction::Deny => "deny",
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::NoRule => f.write_str("there is no such rule"),
            Unfit::Parts => f.write_str("the key has another number of parts than the rule's key"),
            Unfit::Mixed => f.write_str("rules find such a key in different places; name the rule"),
            Unfit::Full => write!(f, "there are {MOST_OVERRIDES} overrides already"),
        }
    }
}

impl fmt::Debug for Force {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Force")
            .field("switch", &self.switch())
            .finish_non_exhaustive()
    }
}
