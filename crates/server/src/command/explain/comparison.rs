//! The same limit over every behaviour, side by side. Knows the columns; knows no formula.

use std::io::{self, Write};

use tallygate_core::{Algorithm, Quota};

use super::facts::{Facts, under};
use crate::describe;
use crate::format::{bytes, count, duration, wrap};

pub(super) fn draw(quota: &Quota, out: &mut impl Write) -> io::Result<()> {
    let span = |us: u64, otherwise: &str| {
        let text = format!("any {}", duration(us));
        if text.chars().count() <= otherwise.len() {
            text
        } else {
            otherwise.to_owned()
        }
    };
    let rate = describe::rate(quota);
    writeln!(out, "  The same limit, {rate}, under every behaviour\n")?;
    writeln!(
        out,
        "  {:<23}{:─^32}{:>13}{:>9}",
        "", " most let in ", "next one", "bytes"
    )?;
    writeln!(
        out,
        "  {:<23}{:>9}{:>11}{:>12}{:>13}{:>9}",
        "",
        "at once",
        span(quota.period_us(), "any period"),
        span(10 * quota.period_us(), "ten periods"),
        "fits in",
        "a key"
    )?;
    for algorithm in Algorithm::ALL {
        let mark = if algorithm == quota.algorithm() {
            '>'
        } else {
            ' '
        };
        let name = algorithm.behaviour();
        let Ok(sibling) = under(quota, algorithm) else {
            let most = count(algorithm.max_limit().into());
            writeln!(out, "{mark} {name:<23} only for limits up to {most}")?;
            continue;
        };
        let facts = Facts::of(&sibling);
        writeln!(
            out,
            "{mark} {name:<23}{:>9}{:>11}{:>12}{:>13}{:>9}",
            count(facts.capacity.into()),
            count(facts.worst_case.one_period),
            count(facts.worst_case.ten_periods),
            duration(facts.after_refusal.one_fits_after_us),
            memory(&facts),
        )?;
    }
    writeln!(out)?;
    let notes = format!(
        "The > marks this quota. The bounds hold for any span, wherever it starts, however hard a \
         client tries. What leaves the shaping queue is steadier than what enters it: requests of \
         cost 1 leave one by one, at most {} in any {}.",
        count(u64::from(quota.limit()) + 1),
        describe::period(quota)
    );
    for line in wrap(&notes, super::WIDTH) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

fn memory(facts: &Facts) -> String {
    let most = bytes(facts.memory.most_bytes_a_key);
    let most = most.trim_end_matches(" bytes");
    if facts.memory.most_bytes_a_key == facts.memory.bytes_a_key {
        most.to_owned()
    } else {
        format!("≤ {most}")
    }
}
