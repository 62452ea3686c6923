//! Writes the explanation as text.

use std::io::{self, Write};

use super::{Explanation, RuleReport};
use crate::format::write_wrapped;

const WIDTH: usize = 80;
const INDENT: usize = 4;

pub(super) fn write(explanation: &Explanation, out: &mut impl Write) -> io::Result<()> {
    let client = explanation.client.as_deref().unwrap_or("an unknown client");
    writeln!(out, "{} from {client}", explanation.request)?;
    for report in &explanation.rules {
        rule(report, out)?;
    }
    for response in &explanation.seen {
        writeln!(out, "\n{}:", response.when)?;
        match response.status {
            Some(status) => writeln!(out, "    HTTP/1.1 {status} {}", response.reason)?,
            None => writeln!(out, "    ({})", response.reason)?,
        }
        for (name, value) in &response.headers {
            writeln!(out, "    {name}: {value}")?;
        }
        if let Some(body) = &response.body {
            writeln!(out)?;
            write_wrapped(body, INDENT, WIDTH - INDENT, out)?;
        }
    }
    Ok(())
}

fn rule(report: &RuleReport, out: &mut impl Write) -> io::Result<()> {
    let mark = if report.applies { "applies" } else { "-" };
    let shadow = if report.shadow { " (shadow mode)" } else { "" };
    writeln!(out, "\n{}  {mark}{shadow}", report.rule)?;
    write_wrapped(&report.why, INDENT, WIDTH - INDENT, out)?;
    for part in &report.key {
        let value = part.value.as_deref().unwrap_or("(missing)");
        writeln!(out, "    key {}: {} = {value}", part.part + 1, part.source)?;
    }
    if let Some(tier) = &report.tier {
        writeln!(out, "    tier: {tier}")?;
    }
    if let Some(cost) = report.cost {
        writeln!(out, "    cost: {cost}")?;
    }
    for limit in &report.limits {
        writeln!(out, "    limit: {}", limit.quota)?;
        writeln!(out, "      counted as \"{}\"", limit.counter)?;
    }
    Ok(())
}
