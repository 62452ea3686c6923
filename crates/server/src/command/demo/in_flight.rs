//! Requests that take a while, under a concurrency limit; one process crashes.

use std::io::{self, Write};

use tallygate_core::{Algorithm, Caller, Quota, State, Verb, evaluate_by};

use super::simulation::{START_US, TICK_US, TICKS};
use super::{Code, Style, row, ruler};
use crate::describe;
use crate::format::{duration, write_wrapped};

const QUOTA: &str = "concurrent 4 for 2s";
/// How long a request takes.
const TICKS_OF_ONE: usize = 5;
/// At this tick a process crashes, and releases nothing of what it holds.
const CRASH: usize = 20;

const TRAFFIC: [u32; TICKS] = [
    0, 0, 1, 1, 0, 0, 1, 0, 3, 3, 0, 0, 0, 0, 2, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0,
    0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 3, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
];

struct Run {
    admitted: [u32; TICKS],
    refused: [u32; TICKS],
    in_flight: [u32; TICKS],
}

fn run(quota: &Quota) -> Run {
    let mut run = Run {
        admitted: [0; TICKS],
        refused: [0; TICKS],
        in_flight: [0; TICKS],
    };
    let mut state = State::New;
    let mut started: Vec<(usize, u64)> = Vec::new();
    let mut next_owner = 1;
    for (tick, requests) in TRAFFIC.into_iter().enumerate() {
        let now = START_US + tick as u64 * TICK_US;
        let mut ask = |owner, verb| {
            let caller = Caller {
                owner,
                ..Caller::NONE
            };
            evaluate_by(quota, &mut state, &caller, verb, 1, now)
        };
        if tick == CRASH {
            started.clear();
        }
        for (_, owner) in started.extract_if(.., |(at, _)| *at + TICKS_OF_ONE <= tick) {
            ask(owner, Verb::Release);
        }
        for _ in 0..requests {
            if ask(next_owner, Verb::Check).allowed() {
                run.admitted[tick] += 1;
                started.push((tick, next_owner));
            } else {
                run.refused[tick] += 1;
            }
            next_owner += 1;
        }
        run.in_flight[tick] = quota.limit() - ask(0, Verb::Peek).remaining;
    }
    run
}

pub(super) fn draw(style: Style, out: &mut impl Write) -> io::Result<()> {
    let each = duration(TICKS_OF_ONE as u64 * TICK_US);
    let title = format!("In flight: requests that take {each} each, and one process that crashes");
    writeln!(out, "{}\n", style.paint(Code::Bold, &title))?;
    ruler(style, out)?;
    row(out, "traffic", &TRAFFIC, style, Code::Bold)?;
    let quota: Quota = QUOTA.parse().expect("the demo's quota is valid");
    let text = describe::demo(Algorithm::Concurrent);
    let Run {
        admitted,
        refused,
        in_flight,
    } = run(&quota);
    writeln!(out, "\n{}: {}", style.paint(Code::Bold, QUOTA), text.effect)?;
    row(out, "admitted", &admitted, style, Code::Green)?;
    row(out, "held", &in_flight, style, Code::Cyan)?;
    row(out, "refused", &refused, style, Code::Red)?;
    let crash = duration(CRASH as u64 * TICK_US);
    let hold = duration(quota.period_us());
    let crash = format!(
        "At {crash} the process crashes, and others go on with what is left. What it held is free \
         {hold} after it was taken."
    );
    write_wrapped(&format!("{} {crash}", text.caption), 2, 74, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_reached_never_passed_and_free_again_after_the_crash() {
        let run = run(&QUOTA.parse().unwrap());
        assert_eq!(run.in_flight.iter().max(), Some(&4));
        assert!(run.in_flight[CRASH..CRASH + 15].iter().all(|n| *n > 0));
        assert_eq!(run.in_flight[TICKS - 1], 0);
        let sum = |ticks: &[u32; TICKS]| ticks.iter().sum::<u32>();
        assert_eq!(sum(&run.admitted) + sum(&run.refused), sum(&TRAFFIC));
    }
}
