//! `tallygate explain`: describes a quota with a summary, figures, a chart and a comparison.

mod chart;
mod comparison;
mod facts;

use std::io::{self, Write};

use tallygate_core::Quota;

use self::facts::Facts;
use crate::cli::ExplainArgs;
use crate::describe;
use crate::error::Failure;
use crate::format::{bytes, count, duration, wrap, write_wrapped};

/// The width of a paragraph; the page is 80 columns wide.
const WIDTH: usize = 76;

pub(crate) fn run(args: &ExplainArgs, out: &mut impl Write) -> Result<(), Failure> {
    let quota: Quota = args.quota.join(" ").parse()?;
    match args.json {
        true => Ok(facts::write_json(&quota, out)?),
        false => Ok(page(&quota, out)?),
    }
}

fn page(quota: &Quota, out: &mut impl Write) -> io::Result<()> {
    let facts = Facts::new(quota);
    writeln!(out, "{quota}\n")?;
    write_wrapped(&describe::summary(quota), 2, WIDTH, out)?;
    writeln!(out)?;
    for (name, text) in entries(quota, &facts) {
        let mut name = name;
        for line in text.lines().flat_map(|line| wrap(line, WIDTH - 18)) {
            writeln!(out, "  {name:<18}{line}")?;
            name = "";
        }
    }
    writeln!(out)?;
    chart::draw(quota, out)?;
    writeln!(out)?;
    comparison::draw(quota, out)
}

fn entries(quota: &Quota, facts: &Facts) -> Vec<(&'static str, String)> {
    let limit = u64::from(quota.limit());
    let capacity = count(quota.capacity().into());
    let period_us = quota.period_us();

    let mut sustained = describe::rate(quota);
    if limit > 1 && limit <= period_us {
        let nearest = (2 * period_us + limit) / (2 * limit);
        let every = duration(nearest);
        let exact = period_us.is_multiple_of(limit) && !every.starts_with('~');
        let about = if exact { "" } else { "about " };
        sustained += &format!(", {about}one every {}", every.trim_start_matches('~'));
    }
    let worst = format!(
        "{} in any {}, {} in any {}\n{}",
        count(facts.worst_case.one_period),
        describe::period(quota),
        count(facts.worst_case.ten_periods),
        duration(10 * period_us),
        describe::worst_case_formula(quota.algorithm()),
    );
    let one = duration(facts.after_refusal.one_fits_after_us);
    let refusal = if quota.capacity() == 1 {
        format!("one more fits within {one}\na cost above 1 never fits")
    } else {
        let all = duration(facts.after_refusal.capacity_fits_after_us);
        format!(
            "one more fits within {one}, all {capacity} within {all}\na cost above {capacity} \
             never fits"
        )
    };
    let mut entries = vec![
        ("Sustained rate", sustained),
        (
            "Largest burst",
            format!(
                "{capacity} at once, and again after {} without requests",
                duration(facts.after_refusal.capacity_fits_after_us)
            ),
        ),
        ("Worst case", worst),
        ("After a refusal", refusal),
    ];
    if quota.algorithm().is_shaping() {
        let max = duration(facts.longest_delay_us);
        let text = format!("at most {max} for a request of cost 1");
        entries.push(("Queue delay", text));
    }
    let least = facts.memory.bytes_a_key;
    let memory = if facts.memory.most_bytes_a_key > least {
        format!(
            "about {least} bytes while the log is short,\nup to {} with {} entries",
            bytes(facts.memory.most_bytes_a_key),
            count(limit)
        )
    } else {
        format!("about {least} bytes in the memory store")
    };
    entries.push(("Memory per key", memory));
    let expiry = duration(facts.forgotten_after_us);
    entries.push((
        "Key expiry",
        format!("at most {expiry} after the last request"),
    ));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every algorithm, and the ends of every range.
    pub(super) const QUOTAS: [&str; 20] = [
        "100/min",
        "fixed-window 100/min",
        "fixed-window 1/366d",
        "fixed-window 1000000000/ms",
        "fixed-window 999999999/365d23h59min59s999ms",
        "sliding-window-log 1/ms",
        "sliding-window-log 100000/366d",
        "sliding-window-counter 1/ms",
        "sliding-window-counter 1000000000/366d",
        "token-bucket 10/s burst 50",
        "token-bucket 7/min burst 3",
        "token-bucket 1/366d burst 142",
        "token-bucket 1000000000/30d burst 1000000",
        "token-bucket 1000000000/ms burst 1",
        "leaky-bucket 10/s burst 20",
        "leaky-bucket 3/s burst 1000000000",
        "leaky-bucket 10/s queue 20",
        "leaky-bucket 10/s queue 1",
        "leaky-bucket 1/366d queue 142",
        "leaky-bucket 1000000000/ms queue 1000000000",
    ];

    #[test]
    fn every_page_fits_in_eighty_columns() {
        for text in QUOTAS {
            let mut bytes = Vec::new();
            page(&text.parse().unwrap(), &mut bytes).unwrap();
            for line in String::from_utf8(bytes).unwrap().lines() {
                assert!(line.chars().count() <= 80, "{text}: {line}");
                assert_eq!(line.trim_end(), line, "{text}");
            }
        }
    }
}
