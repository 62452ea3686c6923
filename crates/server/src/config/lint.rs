//! What is allowed and yet probably not meant: warnings with stable codes, documented in
//! docs/rules.md. Knows rules and their places; changes nothing.

mod binding;
mod reach;
mod trust;

use tallygate::MAX_LIMITS;

use super::diagnostic::Problem;
use super::source::Span;
use super::validate::{Checked, RulePlaces};
use tallygate::rules::{Cost, Limits, Quotas, Rule};

pub(super) const INCLUDES_NOTHING: &str = "rules::includes-nothing";
pub(super) const UNUSUAL_METHOD: &str = "rules::unusual-method";
pub(super) const TRUSTS_EVERYBODY: &str = "rules::trusts-everybody";
pub(super) const IPV6_ROTATION: &str = "rules::ipv6-rotation";
const NO_RULES: &str = "rules::no-rules";
const NEVER_REACHED: &str = "rules::never-reached";
const SPOOFABLE_KEY: &str = "rules::spoofable-key";
const SPOOFABLE_STOP: &str = "rules::spoofable-stop";
const UNTRUSTED_PROXY: &str = "rules::untrusted-proxy";
const NEVER_FITS: &str = "rules::never-fits";
const NEVER_BINDS: &str = "rules::never-binds";
const CONTRADICTORY: &str = "rules::contradictory-limits";
const LOGIN_FAILS_OPEN: &str = "rules::login-fails-open";
const COLON_PARAMETER: &str = "rules::colon-parameter";
const NO_ROOM: &str = "rules::no-room";
const COST_ZERO: &str = "rules::cost-zero";

/// Segments of a path where whoever guesses passwords knocks.
const LOGIN_WORDS: [&str; 18] = [
    "login",
    "logon",
    "signin",
    "sign-in",
    "sign_in",
    "auth",
    "authenticate",
    "oauth",
    "oauth2",
    "token",
    "tokens",
    "password",
    "passwords",
    "otp",
    "2fa",
    "mfa",
    "reset-password",
    "forgot-password",
];

/// Looks for what is questionable.
pub(super) fn lint(checked: &Checked, problems: &mut Vec<Problem>) {
    if checked.set.rules.is_empty() {
        let message = "there is no rule, so every request passes";
        let problem = Problem::warning(NO_RULES, Span::start_of(0), message);
        problems.push(problem.help("such as `rules: [{ name: all, key: ip, limits: 100/min }]`"));
    }
    for (rule, places) in checked.rules() {
        problems.extend(login_fails_open(rule, places));
        problems.extend(colon_parameter(rule, places));
        problems.extend(cost_zero(rule, places));
        binding::within(rule, places, problems);
    }
    reach::never_reached(checked, problems);
    problems.extend(no_room(checked));
    binding::between(checked, problems);
    trust::spoofable_keys(checked, problems);
    trust::spoofable_stops(checked, problems);
    trust::untrusted_proxy(checked, problems);
}

impl Checked {
    /// The rules that are switched on, and their places.
    fn rules(&self) -> impl Iterator<Item = (&Rule, &RulePlaces)> {
        let rules = self.set.rules.iter().zip(&self.places);
        rules.filter(|(rule, _)| rule.enabled)
    }
}

/// The quotas of a rule, tier by tier, and their places.
fn quotas<'r>(rule: &'r Rule, places: &'r RulePlaces) -> Vec<(&'r Quotas, &'r [Span])> {
    let lists: Vec<&Quotas> = match &rule.limits {
        Limits::Same(quotas) => vec![quotas],
        Limits::Tiered(tiers) => tiers.tiers().iter().map(|(_, quotas)| quotas).collect(),
    };
    let places = places.quotas.iter().map(Vec::as_slice);
    lists.into_iter().zip(places).collect()
}

fn no_room(checked: &Checked) -> Option<Problem> {
    let number = checked.set.short_of_room()?;
    let message =
        format!("clients of the largest tiers come before more than {MAX_LIMITS} limits at once");
    let problem = Problem::warning(NO_ROOM, checked.places.get(number)?.name, message);
    Some(problem.help("such requests are turned away (503); give the tiers fewer limits"))
}

fn login_fails_open(rule: &Rule, places: &RulePlaces) -> Option<Problem> {
    if rule.shadow || !matches!(rule.on_failure, tallygate::OnFailure::Open) {
        return None;
    }
    let is_login = |path: &str| {
        let mut segments = path.split('/').map(str::to_ascii_lowercase);
        segments.any(|segment| LOGIN_WORDS.contains(&segment.as_str()))
    };
    let paths = rule.when.paths.iter().zip(&places.paths);
    let (_, span) = paths
        .into_iter()
        .find(|(path, _)| is_login(path.as_str()))?;
    let message = "this looks like a login, and is open while the store is down";
    let place = places.on_failure.unwrap_or(*span);
    let problem = Problem::warning(LOGIN_FAILS_OPEN, place, message);
    Some(problem.help("passwords can be guessed then; `on_failure: closed`, or `local`"))
}

fn colon_parameter(rule: &Rule, places: &RulePlaces) -> Option<Problem> {
    let odd = |path: &str| {
        let mut segments = path.split('/');
        segments.any(|segment| segment.len() > 1 && segment.starts_with([':', '<']))
    };
    let mut paths = rule.when.paths.iter().zip(&places.paths);
    let (_, span) = paths.find(|(path, _)| odd(path.as_str()))?;
    let message = "a segment that begins with `:` or `<` stands for itself here";
    let problem = Problem::warning(COLON_PARAMETER, *span, message);
    Some(problem.help("a parameter is written `{id}`"))
}

fn cost_zero(rule: &Rule, places: &RulePlaces) -> Option<Problem> {
    let span = places.cost?;
    let zero = matches!(rule.cost, Cost::Constant(0));
    let message = "a cost of 0 is always admitted, so this rule limits nothing";
    zero.then(|| Problem::warning(COST_ZERO, span, message).help("leave `cost` out for 1"))
}
