//! The targets of the gateway and the check API.

use super::contender::Contender;
use super::scenario::{CPU, RATE, Scenario, Workers, Workload};
use crate::table::{Table, short};
use crate::target::Target;

/// Evaluates every target.
pub fn targets(table: &Table) -> Vec<Target> {
    [
        (Workload::Proxied, CPU, Contender::Bare, Bound::AtMost(1.3)),
        (Workload::Proxied, CPU, Contender::Nginx, Bound::AtMost(2.0)),
        (
            Workload::Refused,
            RATE,
            Contender::Nginx,
            Bound::AtLeast(0.8),
        ),
        (
            Workload::Checked,
            RATE,
            Contender::Bare,
            Bound::AtLeast(0.5),
        ),
    ]
    .map(|(workload, metric, peer, bound)| evaluate(table, workload, metric, peer, bound))
    .into_iter()
    .chain([settled(table)])
    .collect()
}

/// What reading the actual cost of a stream adds.
fn settled(table: &Table) -> Target {
    let [plain, settled] = [Workload::Streamed, Workload::Settled].map(|workload| {
        let workers = Workers::One;
        Scenario { workload, workers }.row(CPU)
    });
    let column = Contender::Tallygate.name();
    let ratio = table.ratio((&settled, column), (&plain, column));
    Target {
        what: settled,
        measured: ratio.map(|ratio| (format!("{ratio:.2}x without"), ratio <= 1.05)),
        wanted: "at most 1.05x".to_owned(),
    }
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

fn evaluate(
    table: &Table,
    workload: Workload,
    metric: &str,
    peer: Contender,
    bound: Bound,
) -> Target {
    let scenario = Scenario {
        workload,
        workers: Workers::One,
    };
    let row = scenario.row(metric);
    let ratio = table.ratio((&row, Contender::Tallygate.name()), (&row, peer.name()));
    let reached = |ratio: f64| match bound {
        Bound::AtMost(max) => ratio <= max,
        Bound::AtLeast(min) => ratio >= min,
    };
    Target {
        what: row.clone(),
        measured: ratio.map(|ratio| {
            let text = format!("{}x {}", short(ratio), peer.name());
            (text, reached(ratio))
        }),
        wanted: match bound {
            Bound::AtMost(max) => format!("at most {max}x"),
            Bound::AtLeast(min) => format!("at least {min}x"),
        },
    }
}
