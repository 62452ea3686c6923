//! Greedy tenants and light ones on one token bucket, with fair shares and without.

use std::sync::Arc;

use serde_json::{Value, json};
use tallygate::store::{CounterState, MemberState};
use tallygate::{Key, Limit, ManualClock, Member, MemoryStore, Quota, Request};

use super::{LabResult, failed, on_own_thread};

const SECONDS: u32 = 30;
const PLAIN: &str = "token-bucket 100/s burst 100";
const SHARED: &str = "token-bucket 100/s burst 100 shared 4";
const LIGHT: u32 = 95;
/// The mean time between requests of a member: 200 per second, and one in two seconds.
const GREEDY_INTERVAL_MS: u32 = 5;
const LIGHT_INTERVAL_MS: u32 = 2_000;
/// The same traffic each time.
const SEED: u64 = 7;
const START_US: u64 = 1_000_000_000_000;

settings! {
    greedy: 5 in 1..=20,
}

pub(super) async fn run(json: &[u8]) -> LabResult {
    let Settings { greedy } = Settings::parse(json)?;
    on_own_thread(move || async move {
        let traffic = Traffic::new(greedy);
        Ok(json!({
            "greedy": greedy,
            "light": LIGHT,
            "seconds": SECONDS,
            "without": compete(&traffic, PLAIN)?,
            "with": compete(&traffic, SHARED)?,
        }))
    })
    .await
}

/// All requests, at random times and independent of each other.
struct Traffic {
    greedy: u32,
    /// The time and the member, in order.
    requests: Vec<(u64, usize)>,
}

impl Traffic {
    fn new(greedy: u32) -> Self {
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut requests = Vec::new();
        for member in 0..greedy + LIGHT {
            let interval_ms = match member < greedy {
                true => GREEDY_INTERVAL_MS,
                false => LIGHT_INTERVAL_MS,
            };
            for slot in 0..u64::from(SECONDS) * 1_000 {
                if random.u32(..interval_ms) == 0 {
                    let at = START_US + slot * 1_000 + random.u64(..1_000);
                    requests.push((at, member as usize));
                }
            }
        }
        requests.sort_unstable();
        Traffic { greedy, requests }
    }
}

/// What each member sent and was admitted, and whether it borrows in the end.
fn compete(traffic: &Traffic, quota: &str) -> LabResult {
    let clock = Arc::new(ManualClock::at(START_US));
    let store = MemoryStore::builder()
        .capacity(1_000)
        .clock(Arc::clone(&clock));
    let store = store.build();
    let limit = Limit::from(quota.parse::<Quota>().map_err(failed)?);
    let key = Key::from("all");
    let members = traffic.greedy + LIGHT;
    let names: Vec<String> = (0..members).map(|member| member.to_string()).collect();
    let mut counts = vec![(0_u32, 0_u32); names.len()];
    for &(at, member) in &traffic.requests {
        clock.set(at);
        let request = Request::new(&key, &limit).member(Member::new(&names[member]));
        let (sent, admitted) = &mut counts[member];
        *sent += 1;
        *admitted += u32::from(store.decide(&request).allowed());
    }
    let shares = match store.inspect(&key, &limit).state {
        CounterState::Shared { members, .. } => members,
        _ => Vec::new(),
    };
    let each = names.iter().zip(counts).enumerate();
    let each = each.map(|(at, (name, (sent, admitted)))| {
        let id = store.caller_id(&key, &limit, &Key::from(name));
        let share = shares.iter().find(|share| share.id == id);
        json!({
            "greedy": at < traffic.greedy as usize,
            "sent": sent,
            "admitted": admitted,
            "borrows": share.map(MemberState::borrows),
        })
    });
    Ok(json!({"quota": quota, "members": each.collect::<Vec<Value>>()}))
}
