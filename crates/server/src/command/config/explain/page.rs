//! The explanation for people. Knows no rule.

use std::io::{self, Write};

use super::{Explained, Told};
use crate::format::wrap;

const WIDTH: usize = 80;
const INDENT: usize = 4;

pub(super) fn write(explained: &Explained, out: &mut impl Write) -> io::Result<()> {
    let client = explained.client.as_deref().unwrap_or("nobody knows whom");
    writeln!(out, "{} from {client}", explained.request)?;
    for told in &explained.rules {
        rule(told, out)?;
    }
    for seen in &explained.seen {
        writeln!(out, "\n{}:", seen.when)?;
        match seen.status {
            Some(status) => writeln!(out, "    HTTP/1.1 {status} {}", seen.reason)?,
            None => writeln!(out, "    ({})", seen.reason)?,
        }
        for (name, value) in &seen.headers {
            writeln!(out, "    {name}: {value}")?;
        }
        if let Some(body) = &seen.body {
            writeln!(out)?;
            for line in wrap(body, WIDTH - INDENT) {
                writeln!(out, "    {line}")?;
            }
        }
    }
    Ok(())
}

fn rule(told: &Told, out: &mut impl Write) -> io::Result<()> {
    let mark = if told.applies { "applies" } else { "-" };
    let shadow = if told.shadow { " (only watches)" } else { "" };
    writeln!(out, "\n{}  {mark}{shadow}", told.rule)?;
    for line in wrap(&told.why, WIDTH - INDENT) {
        writeln!(out, "    {line}")?;
    }
    for part in &told.key {
        let value = part.value.as_deref().unwrap_or("(not there)");
        writeln!(out, "    key {}: {} = {value}", part.part + 1, part.source)?;
    }
    if let Some(tier) = &told.tier {
        writeln!(out, "    tier: {tier}")?;
    }
    if let Some(cost) = told.cost {
        writeln!(out, "    cost: {cost}")?;
    }
    for limit in &told.limits {
        writeln!(out, "    limit: {}", limit.quota)?;
        writeln!(out, "      counted as \"{}\"", limit.counter)?;
    }
    Ok(())
}
