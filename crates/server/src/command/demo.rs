//! `tallygate demo`: the same bursty traffic through every behaviour, on supplied time. Draws what
//! the lanes measured; decides nothing.

mod simulation;
mod style;
mod traffic;

use std::io::{self, Write};

use tallygate_core::Algorithm;

use self::simulation::Lane;
use self::style::Ink;
use self::traffic::{LIMIT, TICK_US, TICKS, TICKS_A_PERIOD, TRAFFIC, ticks};
use crate::cli::DemoArgs;
use crate::describe;
use crate::error::Failure;
use crate::format::{duration, wrap};

/// The margin in which rows are named.
const MARGIN: usize = 14;

pub(crate) fn run(args: &DemoArgs, out: &mut impl Write) -> Result<(), Failure> {
    let ink = Ink::choose(args.color);
    let lanes: Vec<Lane> = Algorithm::ALL.into_iter().map(Lane::drive).collect();
    page(&lanes, ink, out)
        .and_then(|()| out.flush())
        .map_err(Failure::writing)
}

fn page(lanes: &[Lane], ink: Ink, out: &mut impl Write) -> io::Result<()> {
    let title = format!("Six ways to allow {LIMIT} requests a second");
    writeln!(out, "{}\n", ink.strong(&title))?;
    let tick = duration(TICK_US);
    writeln!(out, "The same traffic meets six limiters.")?;
    writeln!(
        out,
        "Each column is {tick}, each digit a number of requests; · is none.\n"
    )?;
    let legend = [
        (ink.good("let in "), "passed by the limiter"),
        (
            ink.late("leaves "),
            "let in earlier, and done waiting in the queue",
        ),
        (ink.bad("refused"), "turned away, and charged nothing"),
    ];
    for (row, meaning) in legend {
        writeln!(out, "  {row}     {meaning}")?;
    }
    writeln!(out)?;
    ruler(ink, out)?;
    row(out, "traffic", &TRAFFIC, |digit| ink.strong(digit))?;

    for lane in lanes {
        let part = describe::part(lane.quota.algorithm());
        let name = lane.quota.to_string();
        writeln!(out, "\n{}: {}", ink.strong(&name), part.effect)?;
        row(out, "let in", &lane.let_in, |digit| ink.good(digit))?;
        if lane.quota.algorithm().is_shaping() {
            row(out, "leaves", &lane.leaves, |digit| ink.late(digit))?;
        }
        row(out, "refused", &lane.refused, |digit| ink.bad(digit))?;
        for line in wrap(part.caption, 74) {
            writeln!(out, "  {line}")?;
        }
    }

    writeln!(out)?;
    table(lanes, ink, out)?;
    writeln!(
        out,
        "\nNext, what a quota of your own allows:\n  \
         tallygate explain 'token-bucket 10/s burst 50'"
    )
}

/// The seconds above the columns.
fn ruler(ink: Ink, out: &mut impl Write) -> io::Result<()> {
    let mut times = String::new();
    let mut marks = String::new();
    for (tick, at_us) in ticks() {
        let whole = at_us.is_multiple_of(TICK_US * TICKS_A_PERIOD);
        marks.push(if whole { '|' } else { ' ' });
        if whole {
            times.extend(std::iter::repeat_n(' ', tick - times.chars().count()));
            times += &match at_us {
                0 => "0 s".to_owned(),
                later => duration(later),
            };
        }
    }
    let margin = " ".repeat(MARGIN);
    writeln!(out, "{margin}{}", ink.quiet(&times))?;
    writeln!(out, "{margin}{}", ink.quiet(marks.trim_end()))
}

fn row(
    out: &mut impl Write,
    name: &str,
    ticks: &[u32; TICKS],
    paint: impl Fn(&str) -> String,
) -> io::Result<()> {
    write!(out, "  {name:<width$}", width = MARGIN - 2)?;
    for n in ticks {
        match n {
            0 => write!(out, "·")?,
            1..=9 => write!(out, "{}", paint(&n.to_string()))?,
            10.. => write!(out, "{}", paint("#"))?,
        }
    }
    writeln!(out)
}

fn table(lanes: &[Lane], ink: Ink, out: &mut impl Write) -> io::Result<()> {
    let sent: u32 = TRAFFIC.iter().sum();
    let period = duration(TICK_US * TICKS_A_PERIOD);
    let line = |cells: [&str; 6]| {
        let [name, let_in, refused, most, wait, retry] = cells;
        format!("{name:<30}{let_in:>7}{refused:>9}{most:>14}{wait:>9}{retry:>10}")
    };
    let of_sent = format!("of {sent}");
    let any = format!("any {period}");
    let head = line([
        "",
        "let in",
        "refused",
        "most through",
        "longest",
        "longest",
    ]);
    writeln!(out, "{}", ink.quiet(&head))?;
    let head = line(["", &of_sent, "", &any, "wait", "retry"]);
    writeln!(out, "{}", ink.quiet(&head))?;
    for lane in lanes {
        let most = lane.most_in_a_period();
        let tenths = most * 10 / u64::from(LIMIT);
        let times = format!("{most} ({}.{}x)", tenths / 10, tenths % 10);
        let text = line([
            &lane.quota.to_string(),
            &lane.let_in.iter().sum::<u32>().to_string(),
            &lane.refused.iter().sum::<u32>().to_string(),
            &times,
            &wait(lane.longest_wait_us),
            &wait(lane.longest_retry_us),
        ]);
        writeln!(out, "{text}")?;
    }
    let note = format!(
        "Most through: measured over every {period} of this traffic, wherever it starts, as a \
         multiple of the limit. Wait: how long somebody let in was held. Retry: how long somebody \
         refused was told to wait.",
    );
    writeln!(out)?;
    for line in wrap(&note, 78) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn wait(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        us => duration(us),
    }
}
