//! A table of the same limit with every algorithm.

use std::io::{self, Write};

use tallygate_core::{Algorithm, Quota};

use super::facts::{Facts, with_algorithm};
use crate::describe;
use crate::format::{bytes, count, duration, write_wrapped};

pub(super) fn draw(quota: &Quota, out: &mut impl Write) -> io::Result<()> {
    let span = |us: u64, fallback: &str| {
        let text = format!("any {}", duration(us));
        if text.chars().count() <= fallback.len() {
            text
        } else {
            fallback.to_owned()
        }
    };
    let rate = describe::rate(quota);
    writeln!(out, "  The same limit, {rate}, with every algorithm\n")?;
    writeln!(
        out,
        "  {:<23}{:─^32}{:>13}{:>9}",
        "", " most admitted ", "next one", "bytes"
    )?;
    writeln!(
        out,
        "  {:<23}{:>9}{:>11}{:>12}{:>13}{:>9}",
        "",
        "at once",
        span(quota.period_us(), "any period"),
        span(10 * quota.period_us(), "ten periods"),
        "fits in",
        "per key"
    )?;
    for algorithm in Algorithm::BASIC {
        let mark = match algorithm == quota.algorithm() {
            true => '>',
            false => ' ',
        };
        let name = algorithm.behaviour();
        let Ok(other) = with_algorithm(quota, algorithm) else {
            let max = count(algorithm.max_limit().into());
            writeln!(out, "{mark} {name:<23} only for limits up to {max}")?;
            continue;
        };
        row(mark, name, &Facts::new(&other), out)?;
    }
    if quota.algorithm().is_shared() {
        let name = format!("{}, shared", quota.algorithm().name());
        row('>', &name, &Facts::new(quota), out)?;
    }
    writeln!(out)?;
    let notes = format!(
        "The > marks this quota. The bounds hold for any span and any traffic. Requests of cost 1 \
         leave the shaping queue one by one, at most {} in any {}.",
        count(u64::from(quota.limit()) + 1),
        describe::period(quota)
    );
    write_wrapped(&notes, 2, super::WIDTH, out)
}

fn row(mark: char, name: &str, facts: &Facts, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{mark} {name:<23}{:>9}{:>11}{:>12}{:>13}{:>9}",
        count(facts.capacity.into()),
        count(facts.worst_case.one_period),
        count(facts.worst_case.ten_periods),
        duration(facts.after_refusal.one_fits_after_us),
        memory(facts),
    )
}

fn memory(facts: &Facts) -> String {
    let max = bytes(facts.memory.most_bytes_a_key);
    let max = max.trim_end_matches(" bytes");
    if facts.memory.most_bytes_a_key == facts.memory.bytes_a_key {
        max.to_owned()
    } else {
        format!("≤ {max}")
    }
}
