//! An event as plain text, for pipes and files.

use std::fmt::Write as _;

use super::event::{Event, TopKey, count, latency, rate};

pub(super) fn text(event: &Event) -> String {
    let all = event.per_second();
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}  admitted {}/s  refused {}/s  would refuse {}/s  delayed {}/s  degraded {}/s",
        event.time(),
        rate(all.admitted),
        rate(all.refused),
        rate(all.shadow_refused),
        rate(all.delayed),
        rate(all.degraded()),
    );
    let store = &event.store;
    let _ = writeln!(
        text,
        "store {}  breaker {}  median {}  p99 {}  errors {}  keys {}  kill switch {}",
        store.kind,
        store.breaker,
        latency(store.p50_us),
        latency(store.p99_us),
        count(store.errors),
        count(event.keys),
        event.kill_switch,
    );
    let head = [
        "RULE",
        "ADMITTED/S",
        "REFUSED/S",
        "WOULD REFUSE/S",
        "DELAYED/S",
        "DEGRADED/S",
        "TOTAL",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for rule in &event.rules {
        let now = &rule.per_second;
        rows.push([
            format!("{}{}", rule.name(), rule.flag()),
            rate(now.admitted),
            rate(now.refused),
            rate(now.shadow_refused),
            rate(now.delayed),
            rate(now.degraded()),
            count(rule.total.sum() as u64),
        ]);
    }
    table(&mut text, &rows);
    for (title, keys) in [
        ("MOST REFUSED KEY", &event.top.refused),
        ("MOST FREQUENT KEY", &event.top.hottest),
    ] {
        if keys.is_empty() {
            continue;
        }
        let mut rows = vec![[title, "RULE", "COUNT"].map(str::to_owned)];
        let row = |top: &TopKey| [top.key.clone(), top.origin(), count(top.count)];
        rows.extend(keys.iter().map(row));
        table(&mut text, &rows);
    }
    text.push('\n');
    text
}

/// Columns as wide as they need to be; the first is aligned to the left.
fn table<const N: usize>(text: &mut String, rows: &[[String; N]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
}
