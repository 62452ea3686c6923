//! From what is written to rules: every value is checked, and everything that is wrong is noted at
//! once. Knows the raw file and the rules; knows nothing of files and of YAML.

mod gateway;
mod key;
mod limits;
mod list;
mod match_fields;
mod rule;
mod settings;
mod value;

use std::collections::HashMap;

use super::deserialize::Meant;
use super::diagnostic::{self, Problem, code};
use super::field::{At, Text};
use super::schema;
use super::source::{Sources, Span};
use tallygate::rules::{Fault, Name, RuleSet};

pub use gateway::GatewaySetting;
pub(super) use rule::RulePlaces;
pub use settings::StoreSetting;

/// The most rules: every request walks past all of them.
const MOST_RULES: usize = 2_000;
/// The most overrides.
const MOST_OVERRIDES: usize = 10_000;

/// What helps where rules leave a request no room.
const CROWDED: &str = "its requests would be turned away; put limits together, or `stop` earlier";

/// What a file says, and where it says it.
pub(super) struct Checked {
    pub(super) set: RuleSet,
    pub(super) store: StoreSetting,
    pub(super) gateway: Option<GatewaySetting>,
    /// Where the parts of each rule stand, in the order of the rules.
    pub(super) places: Vec<RulePlaces>,
    /// Where the file says who may forward requests, if it does.
    pub(super) proxies: Option<Span>,
}

/// Checks the main file and those it includes, in order. None of it can be used if there is an
/// error among the problems.
pub(super) fn check(
    files: &[schema::File],
    sources: &Sources,
    meant: &[Meant],
    problems: &mut Vec<Problem>,
) -> Checked {
    let mut checker = Checker {
        sources,
        meant,
        problems,
    };
    let mut names = HashMap::new();
    let mut set = RuleSet::default();
    let mut places = Vec::new();
    let mut store = StoreSetting::default();
    let mut gateway = None;
    let mut proxies = None;
    let mut usual = rule::Usual::default();
    for (index, file) in files.iter().enumerate() {
        checker.version(file);
        if index == 0 {
            store = checker.store(file);
            gateway = checker.gateway(file);
            set.client = checker.client(file);
            proxies = file.trusted_proxies.as_ref().map(|at| at.span);
            usual = checker.usual(file);
        } else {
            checker.only_rules(file);
        }
        for raw in list_of(file.rules.as_ref()) {
            let Some(rule) = raw.get() else { continue };
            checker.unique(&rule.name, &mut names);
            if let Some((rule, place)) = checker.rule(rule, raw.span, &usual) {
                set.rules.push(rule);
                places.push(place);
            }
        }
    }
    let listed = list::Listed::of(&set.rules, &names);
    for file in files {
        for raw in list_of(file.overrides.as_ref()) {
            let over = raw.get();
            let over = over.and_then(|over| checker.over(over, raw.span, &listed));
            set.overrides.extend(over);
        }
    }
    checker.not_too_many(files);
    Checked {
        set,
        store,
        gateway,
        places,
        proxies,
    }
}

impl Checked {
    /// What is wrong between rules that are right by themselves.
    pub(super) fn faults(&self) -> Vec<Problem> {
        let main = Span::start_of(0);
        let place = |fault: &Fault| match fault {
            Fault::SameName { rule, .. }
            | Fault::TooManyParts { rule }
            | Fault::NoParameter { rule, .. }
            | Fault::ListedKey { rule, .. }
            | Fault::Cost { rule }
            | Fault::TooManyLimits { rule } => self.places[*rule].name,
            Fault::NoRule { .. } | Fault::OverrideKey { .. } | Fault::OverrideMixed { .. } => main,
        };
        let problem = |fault: Fault| {
            let code = match fault {
                Fault::TooManyLimits { .. } => code::TOO_MANY,
                Fault::SameName { .. }
                | Fault::TooManyParts { .. }
                | Fault::NoParameter { .. }
                | Fault::ListedKey { .. }
                | Fault::Cost { .. }
                | Fault::NoRule { .. }
                | Fault::OverrideKey { .. }
                | Fault::OverrideMixed { .. } => code::CONTRADICTION,
            };
            let problem = Problem::error(code, place(&fault), fault.to_string());
            match fault {
                Fault::TooManyLimits { .. } => problem.help(CROWDED),
                Fault::SameName { .. }
                | Fault::TooManyParts { .. }
                | Fault::NoParameter { .. }
                | Fault::ListedKey { .. }
                | Fault::Cost { .. }
                | Fault::NoRule { .. }
                | Fault::OverrideKey { .. }
                | Fault::OverrideMixed { .. } => problem,
            }
        };
        self.set.faults().into_iter().map(problem).collect()
    }
}

fn list_of<T>(list: Option<&At<Vec<At<T>>>>) -> &[At<T>] {
    list.and_then(At::get).map_or(&[], Vec::as_slice)
}

/// Checks values and notes what is wrong with them.
struct Checker<'a> {
    sources: &'a Sources,
    /// Fields that were probably meant where unknown ones are.
    meant: &'a [Meant],
    problems: &'a mut Vec<Problem>,
}

/// The names of rules and where they are given, those of rules that cannot be used included.
type Names = HashMap<String, Span>;

impl Checker<'_> {
    fn note(&mut self, problem: Problem) {
        diagnostic::note(self.problems, problem);
    }

    /// Notes an error, and that there is no value.
    fn refuse<T>(&mut self, problem: Problem) -> Option<T> {
        self.note(problem);
        None
    }

    /// Whether something was probably meant in a mapping, so that what it lacks has been said.
    fn meant_in(&self, span: Span) -> bool {
        self.meant.iter().any(|(mapping, _)| *mapping == span)
    }

    /// Notes a rule's name, unless another rule has it.
    fn unique(&mut self, name: &At<Text>, names: &mut Names) {
        let Some(text) = name.get() else { return };
        if let Some(&first) = names.get(&text.text) {
            let message = format!("two rules are called {}", text.shown());
            let problem = Problem::error(code::DUPLICATE_NAME, name.span, message);
            let problem = problem.label("again here").other(first, "first here");
            self.note(problem.help("counters and metrics go by the name; give one another"));
            return;
        }
        names.insert(text.text.clone(), name.span);
    }

    fn name(&mut self, at: &At<Text>) -> Option<Name> {
        if at.get().is_some_and(|text| !text.is_public()) {
            let message = "a name takes no variables";
            let problem = Problem::error(code::VARIABLE, at.span, message);
            return self.refuse(problem.help("counters and metrics go by it, for all to see"));
        }
        self.parsed(code::NAME, at)
    }

    fn not_too_many(&mut self, files: &[schema::File]) {
        let mut number = 0;
        for raw in files.iter().flat_map(|file| list_of(file.rules.as_ref())) {
            number += 1;
            if number > MOST_RULES {
                let message = format!("more than {MOST_RULES} rules");
                return self.note(Problem::error(code::TOO_MANY, raw.span, message));
            }
        }
        let mut number = 0;
        for raw in files
            .iter()
            .flat_map(|file| list_of(file.overrides.as_ref()))
        {
            number += 1;
            if number > MOST_OVERRIDES {
                let message = format!("more than {MOST_OVERRIDES} overrides");
                return self.note(Problem::error(code::TOO_MANY, raw.span, message));
            }
        }
    }
}
