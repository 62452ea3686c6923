//! What the gateway and the check API set out for.

use super::contender::Contender;
use super::scenario::{Asked, CPU, RATE, Scenario, Workers};
use crate::table::{Table, short};
use crate::target::Target;

/// Holds every target against a table.
pub fn targets(table: &Table) -> Vec<Target> {
    [
        (Asked::Proxied, CPU, Contender::Bare, Bound::AtMost(1.3)),
        (Asked::Proxied, CPU, Contender::Nginx, Bound::AtMost(2.0)),
        (Asked::Refused, RATE, Contender::Nginx, Bound::AtLeast(0.8)),
        (Asked::Checked, RATE, Contender::Bare, Bound::AtLeast(0.5)),
    ]
    .map(|(asked, figure, peer, bound)| held(table, asked, figure, peer, bound))
    .into()
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

fn held(table: &Table, asked: Asked, figure: &str, peer: Contender, bound: Bound) -> Target {
    let scenario = Scenario {
        asked,
        workers: Workers::One,
    };
    let row = scenario.row(figure);
    let ratio = table.ratio((&row, Contender::Tallygate.name()), (&row, peer.name()));
    let reached = |ratio: f64| match bound {
        Bound::AtMost(most) => ratio <= most,
        Bound::AtLeast(least) => ratio >= least,
    };
    Target {
        what: row.clone(),
        measured: ratio.map(|ratio| {
            let text = format!("{}x {}", short(ratio), peer.name());
            (text, reached(ratio))
        }),
        wanted: match bound {
            Bound::AtMost(most) => format!("at most {most}x"),
            Bound::AtLeast(least) => format!("at least {least}x"),
        },
    }
}
