//! A cost that is known only later: reserved, then settled.

use std::collections::HashMap;
use std::io::{self, Write};

use tallygate_core::{Entry, Quota, Retry, State, Verb, Verdict, evaluate_all};

use super::{Code, Style};
use crate::format::{count, duration, write_wrapped};

const QUOTA: &str = "fixed-window 1000/min";
/// The start of a window.
const START_US: u64 = 1_700_000_040_000_000;

/// The second, the verb, the id, the cost.
const STEPS: [(u64, Verb, &str, u32); 7] = [
    (0, Verb::Reserve, "a", 800),
    (1, Verb::Reserve, "b", 400),
    (2, Verb::Settle, "a", 350),
    (2, Verb::Reserve, "b", 400),
    (3, Verb::Reserve, "b", 400),
    (9, Verb::Settle, "b", 600),
    (10, Verb::Settle, "b", 600),
];

/// Each step's request, what was answered, and what is left.
fn run(quota: &Quota) -> Vec<(String, String, u32)> {
    let mut state = State::New;
    let mut reserved = HashMap::new();
    let mut left = quota.limit();
    let mut lines = Vec::new();
    for (second, verb, id, cost) in STEPS {
        let known = reserved.get(id).copied();
        let mut limits = [Entry {
            reservation: known,
            ..Entry::new(quota, &mut state, cost)
        }];
        let decision = evaluate_all(&mut limits, verb, START_US + second * 1_000_000);
        match limits[0].reservation {
            Some(reservation) => reserved.insert(id, reservation),
            None => reserved.remove(id),
        };
        let verdict = decision.verdict();
        let request = match verb {
            Verb::Settle => format!("settle {id}: {cost}"),
            _ => format!("reserve {cost} as {id}"),
        };
        let answer = match verb {
            Verb::Settle => settled(left, verdict.remaining),
            _ => reserved_answer(verdict, known.is_some()),
        };
        left = verdict.remaining;
        lines.push((format!("{second:>4} s  {request}"), answer, left));
    }
    lines
}

fn reserved_answer(verdict: &Verdict, was_known: bool) -> String {
    match verdict.retry() {
        Some(Retry::After(us) | Retry::AtMost(us)) => {
            format!("refused, retry after {}", duration(us.get()))
        }
        Some(Retry::Never) => "refused".to_owned(),
        None if was_known => "admitted already, not charged again".to_owned(),
        None => "admitted".to_owned(),
    }
}

fn settled(before: u32, after: u32) -> String {
    if after > before {
        format!("{} given back", after - before)
    } else if before > after {
        format!("{} more charged", before - after)
    } else {
        "settled already, no change".to_owned()
    }
}

pub(super) fn draw(style: Style, out: &mut impl Write) -> io::Result<()> {
    let title = "Reserve and settle: a cost that is known only when the answer is there";
    writeln!(out, "{}\n", style.paint(Code::Bold, title))?;
    let quota: Quota = QUOTA.parse().expect("the demo's quota is valid");
    writeln!(out, "{}", style.paint(Code::Bold, QUOTA))?;
    let head = format!("{:<28}{:<38}{:>8}", "", "answer", "left");
    writeln!(out, "{}", style.paint(Code::Dim, &head))?;
    for (request, answer, left) in run(&quota) {
        let code = match answer.starts_with("refused") {
            true => Code::Red,
            false => Code::Green,
        };
        let answer = style.paint(code, &format!("{answer:<38}"));
        writeln!(out, "{request:<28}{answer}{:>8}", count(left.into()))?;
    }
    write_wrapped(
        "An estimate is charged at once, under an id. The actual cost settles it: less is given back, \
         more is charged. Repeating a call changes nothing. Works with every rate.",
        2,
        74,
        out,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_in_the_end_is_the_limit_less_the_actual_costs() {
        let lines = run(&QUOTA.parse().unwrap());
        assert_eq!(lines.last().unwrap().2, 1_000 - 350 - 600);
    }
}
