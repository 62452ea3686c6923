//! `tallygate race` in the server's store.

use serde_json::json;

use super::{LabResult, failed};
use crate::command::race::{Race, Round, over};
use crate::store::ServerStore;

/// The result depends on scheduling; the worst round is reported.
const ROUNDS: u32 = 5;

settings! {
    clients: 32 in 2..=64,
    limit: 10 in 1..=64,
}

pub(super) async fn run(json: &[u8], counters: &ServerStore) -> LabResult {
    let Settings { clients, limit } = Settings::parse(json)?;
    let race = Race {
        clients,
        limit,
        rounds: ROUNDS,
    };
    let rounds = over(counters, race).await;
    let rounds = rounds.map_err(|failure| failed(failure.text().unwrap_or_default()))?;
    let worst = |count: fn(&Round) -> u32| {
        let admitted = rounds.iter().map(count).max().unwrap_or_default();
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
