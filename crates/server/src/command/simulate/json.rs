//! The results as JSON.

use serde_json::{Value, json};
use tallygate::simulation::{CheckedBound, Point, Results, ShardLoad, WorstCase};

/// All figures of a simulation; times in microseconds.
pub(super) fn results(results: &Results) -> Value {
    let answers = &results.answers;
    let leases = &results.leases;
    let latency = |thousandths| results.latency.at(thousandths);
    json!({
        "title": results.title,
        "seed": results.seed,
        "nodes": results.nodes,
        "duration_us": results.duration_us,
        "requests": results.requests,
        "admitted": results.admitted,
        "refused": results.refused,
        "unanswered": results.unanswered,
        "exact": { "admitted": results.exact_admitted, "refused": results.exact_refused() },
        "decided_by": {
            "servers": answers.servers,
            "leases": answers.leases,
            "refusal_cache": answers.refusal_cache,
            "failure_policy": answers.failure,
            "overload_policy": answers.overload,
        },
        "calls": results.calls,
        "calls_per_decision": results.calls_per_decision(),
        "steps": results.steps,
        "steps_per_decision": results.steps_per_decision(),
        "latency_us": {
            "p50": latency(500),
            "p90": latency(900),
            "p99": latency(990),
            "p999": latency(999),
            "max": latency(1_000),
        },
        "leases": {
            "taken": leases.taken,
            "returned": leases.returned,
            "stranded": leases.stranded,
        },
        "healthy": results.healthy,
        "shards": results.shards.iter().map(shard).collect::<Vec<_>>(),
        "worst": results.worst.iter().map(worst).collect::<Vec<_>>(),
        "bounds": results.bounds.iter().map(bound).collect::<Vec<_>>(),
        "series": results.series.iter().map(point).collect::<Vec<_>>(),
    })
}

fn shard(shard: &ShardLoad) -> Value {
    json!({ "busy": shard.busy, "calls": shard.calls })
}

fn worst(worst: &WorstCase) -> Value {
    json!({
        "limit": worst.limit,
        "admitted": worst.admitted,
        "worst_case": worst.bound,
        "span_us": worst.span_us,
        "ratio": worst.ratio(),
    })
}

fn bound(bound: &CheckedBound) -> Value {
    json!({ "bound": bound.bound, "found": bound.found, "holds": bound.holds })
}

fn point(point: &Point) -> Value {
    json!({
        "at_us": point.at_us,
        "requests": point.requests,
        "admitted": point.admitted,
        "exact_admitted": point.exact_admitted,
        "degraded": point.degraded,
        "calls": point.calls,
        "p50_us": point.latency.p50_us,
        "p99_us": point.latency.p99_us,
    })
}
