//! `tallygate demo`: the same bursty traffic through every algorithm, then shares, concurrency limits and
//! reservations, at supplied timestamps.

mod in_flight;
mod reservations;
mod shares;
mod simulation;

use std::io::{self, IsTerminal, Write};

use clap::ColorChoice;
use tallygate_core::Algorithm;

use self::simulation::{LIMIT, PERIOD_US, Simulation, TICK_US, TICKS, TRAFFIC};
use crate::cli::DemoArgs;
use crate::describe;
use crate::error::Failure;
use crate::format::{duration, no_color, write_wrapped};

/// The columns in front of each row, which hold its name.
const MARGIN: usize = 14;

pub(crate) fn run(args: &DemoArgs, out: &mut impl Write) -> Result<(), Failure> {
    let runs: Vec<Simulation> = Algorithm::BASIC.into_iter().map(Simulation::run).collect();
    let colored = match args.color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => io::stdout().is_terminal() && !no_color(),
    };
    Ok(page(&runs, Style { colored }, out)?)
}

#[derive(Clone, Copy)]
struct Style {
    colored: bool,
}

#[derive(Clone, Copy)]
enum Code {
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Cyan = 36,
}

impl Style {
    fn paint(self, code: Code, text: &str) -> String {
        match self.colored {
            true => format!("\x1b[{}m{text}\x1b[0m", code as u8),
            false => text.to_owned(),
        }
    }
}

fn page(runs: &[Simulation], style: Style, out: &mut impl Write) -> io::Result<()> {
    let title = format!("Six ways to allow {LIMIT} requests per second");
    writeln!(out, "{}\n", style.paint(Code::Bold, &title))?;
    let tick = duration(TICK_US);
    writeln!(out, "Six limiters receive the same traffic.")?;
    writeln!(
        out,
        "Each column is {tick}, each digit a number of requests; · means none.\n"
    )?;
    let legend = [
        (style.paint(Code::Green, "admitted"), "by the limiter"),
        (
            style.paint(Code::Cyan, "dequeued"),
            "admitted earlier, leaves the queue now",
        ),
        (
            style.paint(Code::Red, "refused "),
            "by the limiter, at no charge",
        ),
    ];
    for (row, meaning) in legend {
        writeln!(out, "  {row}     {meaning}")?;
    }
    writeln!(out)?;
    ruler(style, out)?;
    row(out, "traffic", &TRAFFIC, style, Code::Bold)?;

    for run in runs {
        let text = describe::demo(run.quota.algorithm());
        let name = run.quota.to_string();
        writeln!(out, "\n{}: {}", style.paint(Code::Bold, &name), text.effect)?;
        row(out, "admitted", &run.admitted, style, Code::Green)?;
        if run.quota.algorithm().is_shaping() {
            row(out, "dequeued", &run.dequeued, style, Code::Cyan)?;
        }
        row(out, "refused", &run.refused, style, Code::Red)?;
        write_wrapped(text.caption, 2, 74, out)?;
    }

    writeln!(out)?;
    table(runs, style, out)?;
    writeln!(out)?;
    shares::draw(style, out)?;
    writeln!(out)?;
    in_flight::draw(style, out)?;
    writeln!(out)?;
    reservations::draw(style, out)?;
    writeln!(
        out,
        "\nNext, see what another quota allows:\n  \
         tallygate explain 'token-bucket 10/s burst 50'\n  \
         tallygate explain 'token-bucket 100/s burst 100 shared 4'"
    )
}

fn ruler(style: Style, out: &mut impl Write) -> io::Result<()> {
    let (mut times, mut marks) = (String::new(), String::new());
    for at_us in (0..TICKS as u64 * TICK_US).step_by(PERIOD_US as usize) {
        let time = match at_us {
            0 => "0 s".to_owned(),
            _ => duration(at_us),
        };
        times += &format!("{time:<10}");
        marks += &format!("{:<10}", '|');
    }
    let margin = " ".repeat(MARGIN);
    writeln!(out, "{margin}{}", style.paint(Code::Dim, times.trim_end()))?;
    writeln!(out, "{margin}{}", style.paint(Code::Dim, marks.trim_end()))
}

fn row(
    out: &mut impl Write,
    name: &str,
    ticks: &[u32; TICKS],
    style: Style,
    code: Code,
) -> io::Result<()> {
    write!(out, "  {name:<width$}", width = MARGIN - 2)?;
    for n in ticks {
        match n {
            0 => write!(out, "·")?,
            1..=9 => write!(out, "{}", style.paint(code, &n.to_string()))?,
            10.. => write!(out, "{}", style.paint(code, "#"))?,
        }
    }
    writeln!(out)
}

fn table(runs: &[Simulation], style: Style, out: &mut impl Write) -> io::Result<()> {
    let sent: u32 = TRAFFIC.iter().sum();
    let period = duration(PERIOD_US);
    let line = |cells: [&str; 6]| {
        let [name, admitted, refused, max, delay, retry] = cells;
        format!("{name:<30}{admitted:>9}{refused:>9}{max:>13}{delay:>9}{retry:>9}")
    };
    let of_sent = format!("of {sent}");
    let any = format!("in any {period}");
    let head = line(["", "admitted", "refused", "maximum", "longest", "longest"]);
    writeln!(out, "{}", style.paint(Code::Dim, &head))?;
    let head = line(["", &of_sent, "", &any, "delay", "retry"]);
    writeln!(out, "{}", style.paint(Code::Dim, &head))?;
    for run in runs {
        let max = run.max_per_period;
        let tenths = max * 10 / u64::from(LIMIT);
        let times = format!("{max} ({}.{}x)", tenths / 10, tenths % 10);
        let text = line([
            &run.quota.to_string(),
            &run.admitted.iter().sum::<u32>().to_string(),
            &run.refused.iter().sum::<u32>().to_string(),
            &times,
            &wait(run.max_delay_us),
            &wait(run.max_retry_us),
        ]);
        writeln!(out, "{text}")?;
    }
    let note = format!(
        "Maximum: the most requests that proceed within any {period} of this traffic, also as a \
         multiple of the limit. Delay: how long an admitted request waits in the queue. Retry: \
         the retry_after of a refused request.",
    );
    writeln!(out)?;
    write_wrapped(&note, 0, 78, out)
}

fn wait(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        us => duration(us),
    }
}
