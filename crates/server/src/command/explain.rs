//! `tallygate explain`: describes a quota with a summary, figures, a chart and a comparison.

mod chart;
mod comparison;
mod facts;

use std::io::{self, Write};

use tallygate_core::Quota;

use self::facts::{BYTES_PER_MEMBER, BYTES_PER_OWNER, Facts, Share};
use crate::cli::ExplainArgs;
use crate::describe;
use crate::error::Failure;
use crate::format::{bytes, count, duration, wrap, write_wrapped};

/// The width of a paragraph; the page is 80 columns wide.
const WIDTH: usize = 76;

/// The longest epoch of a shared bucket, unless a full drain is longer.
const DAY_US: u64 = 86_400_000_000;

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
    if quota.algorithm().is_concurrent() {
        return write_entries(in_flight_entries(quota, &facts), out);
    }
    write_entries(entries(quota, &facts), out)?;
    writeln!(out)?;
    chart::draw(quota, out)?;
    writeln!(out)?;
    comparison::draw(quota, out)
}

type Entries = Vec<(&'static str, String)>;

fn write_entries(entries: Entries, out: &mut impl Write) -> io::Result<()> {
    for (mut name, text) in entries {
        for line in text.lines().flat_map(|line| wrap(line, WIDTH - 18)) {
            writeln!(out, "  {name:<18}{line}")?;
            name = "";
        }
    }
    Ok(())
}

fn entries(quota: &Quota, facts: &Facts) -> Entries {
    let limit = u64::from(quota.limit());
    let capacity = count(quota.capacity().into());

    let mut sustained = describe::rate(quota);
    if let Some(every) = one_every(quota.period_us(), limit) {
        sustained += &format!(", {every}");
    }
    let worst = format!(
        "{} in any {}, {} in any {}\n{}",
        count(facts.worst_case.one_period),
        describe::period(quota),
        count(facts.worst_case.ten_periods),
        duration(10 * quota.period_us()),
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
    if let Some(share) = &facts.share {
        entries.extend(share_entries(quota, share));
    }
    if quota.algorithm().is_shaping() {
        let max = duration(facts.longest_delay_us);
        let text = format!("at most {max} for a request of cost 1");
        entries.push(("Queue delay", text));
    }
    let least = facts.memory.bytes_a_key;
    let memory = if let Some(share) = &facts.share {
        format!(
            "about {least} bytes with one member, {BYTES_PER_MEMBER} for each more\n\
             at most {} members, of two epochs",
            count((2 * share.max_members).into())
        )
    } else if facts.memory.most_bytes_a_key > least {
        format!(
            "about {least} bytes while the log is short,\nup to {} with {} entries",
            bytes(facts.memory.most_bytes_a_key),
            count(limit)
        )
    } else {
        format!("about {least} bytes in the memory store")
    };
    entries.push(("Memory per key", memory));
    let (name, mut expiry) = expiry(facts, "request");
    let longest_us = 2 * quota.span_us().max(DAY_US);
    if facts.share.is_some() && facts.forgotten_after_us < longest_us {
        let longest = duration(longest_us);
        expiry = format!("{expiry} of one member, {longest} of very many");
    }
    entries.push((name, expiry));
    entries
}

/// `one every 10 ms`, if that is at least a microsecond and not every period anyway.
fn one_every(period_us: u64, limit: u64) -> Option<String> {
    if limit <= 1 || limit > period_us {
        return None;
    }
    let every = duration((2 * period_us + limit) / (2 * limit));
    let is_exact = period_us.is_multiple_of(limit) && !every.starts_with('~');
    let about = if is_exact { "" } else { "about " };
    Some(format!(
        "{about}one every {}",
        every.trim_start_matches('~')
    ))
}

fn expiry(facts: &Facts, what: &str) -> (&'static str, String) {
    let expiry = duration(facts.forgotten_after_us);
    (
        "Key expiry",
        format!("at most {expiry} after the last {what}"),
    )
}

/// What a member gets, alone and among others.
fn share_entries(quota: &Quota, share: &Share) -> Entries {
    let least = count(share.least_at_once.into());
    let reserve = count(share.reserve.into());
    let max_members = count(share.max_members.into());
    let equal = share.equal_members.iter().map(|equal| {
        let n = u64::from(equal.members);
        let limit = u64::from(quota.limit());
        let rate = match limit.is_multiple_of(n) {
            true => describe::every_period(limit / n, quota),
            false => format!("one every {}", duration(equal.one_every_us)),
        };
        let at_once = count(equal.at_once.into());
        format!("{} members: {rate} each, {at_once} at once\n", count(n))
    });
    let equal: String = equal.collect();
    vec![
        (
            "A member alone",
            "has the whole quota, as if it were not shared".to_owned(),
        ),
        ("Equal members", equal),
        (
            "Weights",
            "a member of weight w gets w of the sum of the weights of all members that were \
             admitted lately"
                .to_owned(),
        ),
        (
            "At least",
            format!("{least} at once for each unit of its weight, however many members there are"),
        ),
        (
            "Borrowing",
            format!(
                "what others leave, but for a reserve of {reserve}: it is kept for members within \
                 their share"
            ),
        ),
        (
            "Members",
            format!("{max_members} at a time have a share, more only borrow"),
        ),
        (
            "Not promised",
            "who gets what is left: first come, first served\n\
             a cost above a member's share at once: it is only borrowed\n\
             fair shares at once: the more members are greedy, the longer they take\n\
             anything against invented members: each gets a share"
                .to_owned(),
        ),
    ]
}

fn in_flight_entries(quota: &Quota, facts: &Facts) -> Entries {
    let limit = count(quota.limit().into());
    let hold = duration(quota.period_us());
    let least = facts.memory.bytes_a_key;
    vec![
        (
            "In flight",
            format!("{limit} at once, however fast they come and go: this is no rate"),
        ),
        (
            "Hold",
            format!(
                "an owner's units count until it releases them, or for {hold}; a renewal starts \
                 the {hold} anew, and so does asking again, which never counts twice"
            ),
        ),
        (
            "After a crash",
            format!("what a process held is free within {hold} of its last renewal"),
        ),
        (
            "Worst case",
            format!(
                "{limit} at once\n\
                 + what still runs in processes that were silent for {hold}: they are not stopped\n\
                 + what a fail-over of the store lost"
            ),
        ),
        (
            "After a refusal",
            format!(
                "one fits within {}, and sooner if an owner releases: over HTTP Retry-After is 1 s\n\
                 a cost above {limit} never fits",
                duration(facts.after_refusal.one_fits_after_us)
            ),
        ),
        (
            "With a rate",
            format!("in one request, all or nothing:\nlimits: [100/min, {quota}]"),
        ),
        (
            "Memory per key",
            format!("about {least} bytes with one owner, {BYTES_PER_OWNER} for each more"),
        ),
        expiry(facts, "renewal"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every algorithm, and the ends of every range.
    pub(super) const QUOTAS: [&str; 28] = [
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
        "token-bucket 100/s burst 100 shared 4",
        "token-bucket 1000000/d burst 1000000 shared 1000",
        "token-bucket 4/366d burst 4 shared 1",
        "token-bucket 1000000000/ms burst 1000000000 shared 250000000",
        "leaky-bucket 7/min burst 1000 shared 250",
        "concurrent 1 for 1s",
        "concurrent 10 for 30s",
        "concurrent 10000 for 24h",
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
