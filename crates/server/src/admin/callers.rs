//! The members of a shared limit and the holds of a concurrency limit, as JSON. Their names are shown
//! as keys are: stores only know hashes of most of them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tallygate::Key;
use tallygate::rules::{KeyText, Rule, Rules};
use tallygate::store::{CounterState, HoldState, MemberState, Snapshot};
use tokio::time::timeout;

use super::keys::Counter;
use crate::problem::{Code, Problem};
use crate::state::ServerState;

/// Members or holds of a counter that are listed; all are counted.
const MAX_LISTED: usize = 100;
/// For reading up to 20,000 members.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Adds the members or the holds of a counter to its JSON. With `asked`, the name of a member, only
/// that one is listed.
///
/// # Errors
/// When the store does not answer.
pub(super) async fn add(
    state: &ServerState,
    counter: &Counter,
    asked: Option<&str>,
    json: &mut Value,
) -> Result<(), Problem> {
    let algorithm = counter.limit.quota().algorithm();
    if !algorithm.is_shared() && !algorithm.is_concurrent() {
        return Ok(());
    }
    let inspected = state.engine.store().inspect(&counter.key, &counter.limit);
    let Ok(Ok(Snapshot {
        now_us,
        state: shown,
        ..
    })) = timeout(STORE_TIMEOUT, inspected).await
    else {
        let detail = "the store did not answer";
        return Err(Problem::new(Code::StoreUnavailable, detail));
    };
    match shown {
        CounterState::Shared {
            used_milli,
            members,
        } => json["share"] = share(state, counter, asked, used_milli, members),
        CounterState::Holds { holds } => {
            json["holds"] = in_flight(state, counter, now_us, &holds);
        }
        // New: nobody is a member, nothing is held.
        _ if algorithm.is_shared() => json["share"] = share(state, counter, asked, 0, Vec::new()),
        _ => json["holds"] = in_flight(state, counter, now_us, &[]),
    }
    Ok(())
}

fn share(
    state: &ServerState,
    counter: &Counter,
    asked: Option<&str>,
    used_milli: u64,
    mut members: Vec<MemberState>,
) -> Value {
    let rules = state.active_rules.rules();
    let weights = members.iter().map(|member| u64::from(member.weight.get()));
    let mut share = json!({
        "used_milli": used_milli,
        "members": members.len(),
        "weight": weights.sum::<u64>(),
        "borrowing": members.iter().filter(|member| member.borrows()).count(),
    });
    if let Some(asked) = asked {
        let ids = ids(state, counter, &rules, asked);
        members.retain(|member| ids.contains(&member.id));
    }
    let rank = |member: &MemberState| (Reverse(member.borrows()), Reverse(member.used_milli));
    members.sort_by_key(|member| (rank(member), member.id));
    let names = names(state, counter, &rules);
    let listed = members.iter().take(MAX_LISTED).map(|member| {
        json!({
            "member": name(state, counter, &names, member.id),
            "weight": member.weight.get(),
            "used_milli": member.used_milli,
            "most_milli": member.most_milli,
            "borrows": member.borrows(),
        })
    });
    share["listed"] = listed.collect();
    share
}

fn in_flight(state: &ServerState, counter: &Counter, now_us: u64, holds: &[HoldState]) -> Value {
    let names = HashMap::new();
    let units = holds.iter().map(|hold| u64::from(hold.units));
    let listed = holds.iter().take(MAX_LISTED).map(|hold| {
        json!({
            "owner": name(state, counter, &names, hold.id),
            "units": hold.units,
            "ends_after_us": hold.until_us.saturating_sub(now_us),
        })
    });
    json!({
        "units": units.sum::<u64>(),
        "owners": holds.len(),
        "listed": listed.collect::<Vec<Value>>(),
    })
}

/// The ids of the members that a text may mean. Commas separate the parts of a name.
fn ids(state: &ServerState, counter: &Counter, rules: &Rules, text: &str) -> Vec<u64> {
    // As the check API names it.
    let mut keys = vec![Key::from(text.to_owned())];
    if let Some(rule) = counter.rule.as_deref() {
        keys.extend(rules.member_keys(rule, &KeyText::new([text])));
        keys.extend(rules.member_keys(rule, &KeyText::new(text.split(','))));
    }
    keys.iter().map(|key| id(state, counter, key)).collect()
}

fn id(state: &ServerState, counter: &Counter, name: &Key<'_>) -> u64 {
    let store = state.engine.store();
    store.caller_id(&counter.key, &counter.limit, name)
}

/// The members that the rules file names, if keys are shown.
fn names(state: &ServerState, counter: &Counter, rules: &Rules) -> HashMap<u64, String> {
    let redactor = state.top_keys.redactor();
    let Some(rule) = counter.rule.as_deref().filter(|_| redactor.shows_keys()) else {
        return HashMap::new();
    };
    let weights = |known: &Rule| {
        let share = known.share.as_ref()?;
        Some((share.weights.clone(), share.by.len()))
    };
    let weights = state.active_rules.with_rule(rule, weights).flatten();
    let (weights, parts) = weights.unwrap_or_default();
    let named = weights.iter().filter_map(|(text, _)| {
        // Weights apply to the first source.
        let key = rules.member_keys(rule, text).into_iter().next()?;
        let shown = redactor.redact(&key, parts);
        Some((id(state, counter, &key), shown))
    });
    named.collect()
}

/// A name as keys are shown; null for the caller without a name.
fn name(
    state: &ServerState,
    counter: &Counter,
    names: &HashMap<u64, String>,
    caller: u64,
) -> Value {
    if caller == id(state, counter, &Key::from("")) {
        return Value::Null;
    }
    let hash = || state.top_keys.redactor().hash([caller.to_le_bytes()]);
    names.get(&caller).cloned().unwrap_or_else(hash).into()
}
