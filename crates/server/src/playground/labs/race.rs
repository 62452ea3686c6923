//! `tallygate race` in the server's store.

use serde::Deserialize;
use serde_json::json;

use super::{LabResult, check_range, failed};
use crate::command::race::{Field, Round, over};
use crate::store::Counters;

/// The result depends on scheduling; the worst round is reported.
const ROUNDS: u32 = 5;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    clients: u32,
    limit: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            clients: 32,
            limit: 10,
        }
    }
}

pub(super) async fn run(settings: Settings, counters: &Counters) -> LabResult {
    let Settings { clients, limit } = settings;
    check_range("clients", clients, 2..=64)?;
    check_range("limit", limit, 1..=64)?;
    let field = Field {
        clients,
        limit,
        rounds: ROUNDS,
    };
    let rounds = over(counters, field).await;
    let rounds = rounds.map_err(|failure| failed(failure.text().unwrap_or_default()))?;
    let worst = |way: fn(&Round) -> u32| {
        let admitted = rounds.iter().map(way).max().unwrap_or_default();
        json!({"admitted": admitted, "over": admitted.saturating_sub(limit)})
    };
    Ok(json!({
        "store": counters.kind(),
        "clients": clients,
        "limit": limit,
        "rounds": ROUNDS,
        "naive": worst(|round| round.read_check_write),
        "atomic": worst(|round| round.atomic),
    }))
}
