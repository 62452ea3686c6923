//! The active rules: the rule set of the file, temporary overrides and shadow switches of the admin
//! API, and the kill switch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tallygate::Limit;
use tallygate::http::{Head, JsonPath, Plan, Policy, RuleSettings, Stop, StopReason};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{KILL_SWITCH, Metrics};
use crate::partitions::Partitions;
use tallygate::rules::{
    ListEntry, Name, Override, OverrideAction, Rule, RuleSet, RuleSetError, Rules, SwappableRules,
};

pub(crate) const MAX_OVERRIDES: usize = 1_000;

pub(crate) struct ActiveRules {
    compiled: SwappableRules,
    kill_switch: AtomicU8,
    /// The settings of the rule that a closed kill switch reports.
    closed: Arc<RuleSettings>,
    sources: Mutex<RuleSources>,
    metrics: Arc<Metrics>,
    /// Wakes `expire_overrides` when an override is added, which may expire first.
    added: Notify,
}

/// Takes precedence over every rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KillSwitch {
    #[default]
    Off,
    /// Every request is admitted and none is counted.
    Open,
    /// Every request is refused.
    Closed,
}

struct RuleSources {
    set: RuleSet,
    partitions: Partitions,
    origin: String,
    overrides: Vec<TemporaryOverride>,
    /// The rules whose shadow mode was set by the admin API.
    shadows: BTreeMap<Name, bool>,
    next_id: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct TemporaryOverride {
    pub(crate) id: u64,
    pub(crate) what: Override,
    pub(crate) until: Instant,
}

pub(crate) struct RulesSnapshot {
    pub(crate) origin: String,
    /// The rules, with the shadow modes of the admin API.
    pub(crate) set: RuleSet,
    /// The rules whose shadow mode was set by the admin API.
    pub(crate) switched: Vec<Name>,
}

#[derive(Debug, Error)]
pub(crate) enum OverrideError {
    #[error("there is no such rule")]
    NoRule,
    #[error("the key has another number of parts than the rule's key")]
    Parts,
    #[error("the keys of the rules have different sources; set `rule`")]
    Mixed,
    #[error("there are {MAX_OVERRIDES} overrides")]
    Full,
}

impl ActiveRules {
    /// Compiles the rules of a file.
    ///
    /// # Errors
    /// The first error of the rule set.
    pub(crate) fn new(
        mut set: RuleSet,
        mut partitions: Partitions,
        origin: impl Into<String>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RuleSetError> {
        partitions.assign(&mut set.rules);
        let rules = ActiveRules {
            compiled: SwappableRules::new(Rules::new(set.clone())?),
            kill_switch: AtomicU8::new(KillSwitch::Off as u8),
            closed: Arc::new(RuleSettings::new(KILL_SWITCH)),
            sources: Mutex::new(RuleSources {
                set,
                partitions,
                origin: origin.into(),
                overrides: Vec::new(),
                shadows: BTreeMap::new(),
                next_id: 1,
            }),
            metrics,
            added: Notify::new(),
        };
        rules.sources().apply(&rules)?;
        Ok(rules)
    }

    /// The compiled rules, whatever the kill switch.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.compiled.current()
    }

    /// Plans a request for one rule; `None` if there is no such rule.
    pub(crate) fn plan_rule(&self, rule: &str, head: &Head<'_>) -> Option<Plan> {
        let plan = self.compiled.current().plan_rule(rule, head)?;
        Some(self.kill_switch_plan().unwrap_or(plan))
    }

    /// The plan of every request while the kill switch is open or closed.
    pub(crate) fn kill_switch_plan(&self) -> Option<Plan> {
        let mut plan = Plan::new();
        match self.kill_switch() {
            KillSwitch::Off => return None,
            KillSwitch::Open => {}
            KillSwitch::Closed => plan.stop(Stop {
                settings: Arc::clone(&self.closed),
                reason: StopReason::Closed,
            }),
        }
        Some(plan)
    }

    pub(crate) fn kill_switch(&self) -> KillSwitch {
        let state = self.kill_switch.load(Ordering::Relaxed);
        KillSwitch::ALL[usize::from(state)]
    }

    pub(crate) fn set_kill_switch(&self, switch: KillSwitch) {
        self.kill_switch.store(switch as u8, Ordering::Relaxed);
    }

    /// Replaces the rules of the file. Temporary overrides and shadow modes stay if they still fit.
    ///
    /// # Errors
    /// The first error of the rule set; the previous rules then stay active.
    pub(crate) fn replace(&self, mut set: RuleSet) -> Result<(), RuleSetError> {
        let mut sources = self.sources();
        let mut partitions = sources.partitions.clone();
        partitions.assign(&mut set.rules);
        let previous = std::mem::replace(&mut sources.set, set);
        let result = sources.apply(self);
        match result {
            Ok(()) => sources.partitions = partitions,
            Err(_) => sources.set = previous,
        }
        result
    }

    /// Adds an override and returns its id.
    ///
    /// # Errors
    /// When it fits no rule, or there are too many.
    pub(crate) fn add_override(
        &self,
        what: Override,
        until: Instant,
    ) -> Result<u64, OverrideError> {
        let mut sources = self.sources();
        sources.fits(&what)?;
        sources.expire();
        if sources.overrides.len() >= MAX_OVERRIDES {
            return Err(OverrideError::Full);
        }
        let id = sources.next_id;
        sources.next_id += 1;
        // The first override that lists a client applies: the newest takes precedence.
        sources
            .overrides
            .insert(0, TemporaryOverride { id, what, until });
        sources.apply_change(self);
        self.added.notify_one();
        Ok(id)
    }

    pub(crate) fn remove_override(&self, id: u64) -> bool {
        let mut sources = self.sources();
        let before = sources.overrides.len();
        sources.overrides.retain(|one| one.id != id);
        let removed = sources.overrides.len() < before;
        if removed {
            sources.apply_change(self);
        }
        removed
    }

    /// Sets the shadow mode of a rule, or with `None` resets it to that of the file.
    ///
    /// # Errors
    /// When there is no such rule.
    pub(crate) fn set_shadow(
        &self,
        rule: &Name,
        shadow: Option<bool>,
    ) -> Result<(), OverrideError> {
        let mut sources = self.sources();
        if !sources.set.rules.iter().any(|known| known.name == *rule) {
            return Err(OverrideError::NoRule);
        }
        match shadow {
            Some(shadow) => sources.shadows.insert(rule.clone(), shadow),
            None => sources.shadows.remove(rule),
        };
        sources.apply_change(self);
        Ok(())
    }

    /// Newest first.
    pub(crate) fn overrides(&self) -> Vec<TemporaryOverride> {
        self.sources().overrides.clone()
    }

    pub(crate) fn snapshot(&self) -> RulesSnapshot {
        let sources = self.sources();
        let mut set = sources.set.clone();
        sources.apply_shadows(&mut set);
        RulesSnapshot {
            origin: sources.origin.clone(),
            set,
            switched: sources.shadows.keys().cloned().collect(),
        }
    }

    pub(crate) fn origin(&self) -> String {
        self.sources().origin.clone()
    }

    /// Calls a function with each rule and its shadow mode, without cloning the rules.
    pub(crate) fn for_each_rule(&self, mut each: impl FnMut(&Rule, bool)) {
        let sources = self.sources();
        for rule in &sources.set.rules {
            let shadow = sources.shadows.get(&rule.name);
            each(rule, *shadow.unwrap_or(&rule.shadow));
        }
    }

    /// How many parts of a rule's key are configured; a further one is internal. `None` if there is no
    /// such rule.
    pub(crate) fn key_parts(&self, rule: &str) -> Option<usize> {
        self.with_rule(rule, |rule| rule.key.len())
    }

    /// Calls a function with a rule; `None` if there is no such rule.
    pub(crate) fn with_rule<T>(&self, rule: &str, read: impl FnOnce(&Rule) -> T) -> Option<T> {
        let sources = self.sources();
        let mut rules = sources.set.rules.iter();
        let rule = rules.find(|known| known.name.as_str() == rule)?;
        Some(read(rule))
    }

    /// Removes overrides when they expire. Never returns.
    pub(crate) async fn expire_overrides(&self) {
        loop {
            let next = self.sources().overrides.iter().map(|one| one.until).min();
            let added = self.added.notified();
            match next {
                Some(next) => tokio::select! {
                    () = tokio::time::sleep_until(next) => {}
                    () = added => {}
                },
                None => added.await,
            }
            let mut sources = self.sources();
            if sources.expire() {
                sources.apply_change(self);
            }
        }
    }

    fn sources(&self) -> MutexGuard<'_, RuleSources> {
        // A panic leaves the sources consistent.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RuleSources {
    fn fits(&self, what: &Override) -> Result<(), OverrideError> {
        let named = |name: &Name| what.rule.as_ref().is_none_or(|rule| rule == name);
        let rules = self.set.rules.iter().filter(|rule| named(&rule.name));
        let mut rules = rules.peekable();
        rules.peek().ok_or(OverrideError::NoRule)?;
        match &what.client {
            ListEntry::Network(_) => Ok(()),
            ListEntry::Key(key) => {
                let mut rules = rules.filter(|rule| rule.key.len() == key.parts());
                let first = rules.next().ok_or(OverrideError::Parts)?;
                match rules.all(|rule| first.same_key_sources(rule)) {
                    true => Ok(()),
                    false => Err(OverrideError::Mixed),
                }
            }
        }
    }

    /// Returns whether any override expired.
    fn expire(&mut self) -> bool {
        let now = Instant::now();
        let before = self.overrides.len();
        self.overrides.retain(|one| one.until > now);
        self.overrides.len() < before
    }

    fn apply_shadows(&self, set: &mut RuleSet) {
        for rule in &mut set.rules {
            if let Some(shadow) = self.shadows.get(&rule.name) {
                rule.shadow = *shadow;
            }
        }
    }

    fn apply(&self, rules: &ActiveRules) -> Result<(), RuleSetError> {
        let mut set = self.set.clone();
        self.apply_shadows(&mut set);
        let fitting = self.overrides.iter().map(|one| &one.what);
        let fitting = fitting.filter(|what| self.fits(what).is_ok()).cloned();
        set.overrides.splice(0..0, fitting);
        let names: Vec<&str> = self
            .set
            .rules
            .iter()
            .map(|rule| rule.name.as_str())
            .collect();
        let compiled = Rules::new(set)?;
        rules.metrics.set_rules(&names);
        rules.compiled.swap(compiled);
        Ok(())
    }

    /// Applies a change that was checked by itself.
    fn apply_change(&self, rules: &ActiveRules) {
        if let Err(error) = self.apply(rules) {
            tracing::error!(%error, "a change of the rules could not be applied");
        }
    }
}

impl Policy for ActiveRules {
    fn plan(&self, head: &Head<'_>) -> Plan {
        self.kill_switch_plan()
            .unwrap_or_else(|| self.compiled.plan(head))
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        Rules::limits(&self.compiled.current()).for_each(each);
    }

    fn json_paths(&self, head: &Head<'_>) -> Vec<JsonPath> {
        match self.kill_switch() {
            KillSwitch::Off => self.compiled.json_paths(head),
            KillSwitch::Open | KillSwitch::Closed => Vec::new(),
        }
    }
}

impl KillSwitch {
    /// In the order of the discriminants.
    const ALL: [Self; 3] = [KillSwitch::Off, KillSwitch::Open, KillSwitch::Closed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            KillSwitch::Off => "off",
            KillSwitch::Open => "open",
            KillSwitch::Closed => "closed",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|switch| switch.name() == name)
    }
}

impl TemporaryOverride {
    pub(crate) fn action(&self) -> &'static str {
        match self.what.action {
            OverrideAction::Limits(_) => "limits",
            OverrideAction::Allow => "allow",
            OverrideAction::Deny => "deny",
        }
    }
}
