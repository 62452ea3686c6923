//! Numbers, durations, paragraphs and JSON as text. Numbers in whole-number arithmetic.

use std::io::{self, Write};

use serde::Serialize;

const MS: u64 = 1_000;
const S: u64 = 1_000 * MS;
const MIN: u64 = 60 * S;
const H: u64 = 60 * MIN;
const D: u64 = 24 * H;

/// A count with thousands separators; from ten million on in millions.
pub(crate) fn count(n: u64) -> String {
    const MILLION: u64 = 1_000_000;
    if n < 10 * MILLION {
        return thousands(n);
    }
    let tenths = n.saturating_add(MILLION / 20) / (MILLION / 10);
    let approx = if tenths * (MILLION / 10) == n {
        ""
    } else {
        "~"
    };
    match tenths % 10 {
        0 => format!("{approx}{} M", thousands(tenths / 10)),
        tenth => format!("{approx}{}.{tenth} M", thousands(tenths / 10)),
    }
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 rule`, `2 rules`.
pub(crate) fn plural(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// A size in bytes, rounded up from 10 kB on.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{} bytes", thousands(n)),
        10_000..1_000_000 => format!("{} kB", n.div_ceil(1_000)),
        1_000_000.. => {
            let tenths = n.div_ceil(100_000);
            format!("{}.{} MB", thousands(tenths / 10), tenths % 10)
        }
    }
}

/// A duration in one or two units, with `~` if rounded.
pub(crate) fn duration(us: u64) -> String {
    let step = match us {
        0..MS => 1,
        MS..S => 10,
        S..MIN => 10 * MS,
        MIN..H => S,
        H..D => MIN,
        D.. => H,
    };
    let rounded = (us + step / 2) / step * step;
    let approx = if rounded == us { "" } else { "~" };
    let text = match rounded {
        0..MS => format!("{rounded} µs"),
        MS..S => format!("{} ms", decimal(rounded, MS)),
        S..MIN => format!("{} s", decimal(rounded, S)),
        MIN..H => pair(rounded, (MIN, "min"), (S, "s")),
        H..D => pair(rounded, (H, "h"), (MIN, "min")),
        D.. => pair(rounded, (D, "d"), (H, "h")),
    };
    format!("{approx}{text}")
}

/// A number of units with at most two decimals.
fn decimal(us: u64, unit: u64) -> String {
    let text = format!("{}.{:02}", us / unit, us % unit * 100 / unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn pair(us: u64, large: (u64, &str), small: (u64, &str)) -> String {
    let first = format!("{} {}", thousands(us / large.0), large.1);
    match us % large.0 / small.0 {
        0 => first,
        rest => format!("{first} {rest} {}", small.1),
    }
}

/// Whether the user wants no colours (<https://no-color.org>).
pub(crate) fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Writes indented JSON and a line end.
pub(crate) fn write_json(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Writes a paragraph wrapped at `width` characters, after `indent` spaces.
pub(crate) fn write_wrapped(
    text: &str,
    indent: usize,
    width: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut lines = wrap(text, width).into_iter();
    lines.try_for_each(|line| writeln!(out, "{:indent$}{line}", ""))
}

/// Wraps a paragraph at `width` characters, never within a duration such as `1 h 30 min`.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces(text) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + piece.chars().count() <= width => {
                line.push(' ');
                line.push_str(&piece);
            }
            Some(_) | None => lines.push(piece),
        }
    }
    lines
}

/// The words of a text; a number and its unit are one piece.
fn pieces(text: &str) -> Vec<String> {
    let is_unit = |word: &str| matches!(word, "µs" | "ms" | "s" | "min" | "h" | "d" | "M");
    let ends_in_digit = |word: &str| word.ends_with(|c: char| c.is_ascii_digit());
    let mut pieces: Vec<String> = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let bare = word.trim_end_matches([',', '.', ':', ';']);
        let belongs = |before: &String| {
            let last = before.rsplit(' ').next().unwrap_or(before);
            let next_is_unit = words
                .peek()
                .is_some_and(|next| is_unit(next.trim_end_matches([',', '.', ':', ';'])));
            (is_unit(bare) && ends_in_digit(last))
                || (is_unit(last) && ends_in_digit(word) && next_is_unit)
        };
        if pieces.last().is_some_and(belongs) {
            let piece = pieces.last_mut().expect("there is a last piece");
            piece.push(' ');
            piece.push_str(word);
        } else {
            pieces.push(word.to_owned());
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (9_999_999, "9,999,999"),
            (10_000_000, "10 M"),
            (10_049_999, "~10 M"),
            (1_250_000_000, "1,250 M"),
            (10_500_000, "10.5 M"),
        ] {
            assert_eq!(count(n), text);
        }
        assert!(count(u64::MAX).starts_with('~'));
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(bytes(1_240), "1,240 bytes");
        assert_eq!(bytes(120_040), "121 kB");
        assert_eq!(bytes(1_200_040), "1.3 MB");
    }

    #[test]
    fn durations_have_two_units_and_mark_rounding() {
        for (us, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_500, "1.5 ms"),
            (100_000, "100 ms"),
            (999_999, "~1 s"),
            (1_000_001, "~1 s"),
            (8_571_429, "~8.57 s"),
            (59_999_999, "~1 min"),
            (90 * S, "1 min 30 s"),
            (5_400 * S, "1 h 30 min"),
            (36 * H, "1 d 12 h"),
            (366 * D, "366 d"),
            (1 << 52, "~52,125 d"),
        ] {
            assert_eq!(duration(us), text, "{us}");
        }
    }

    #[test]
    fn a_paragraph_is_wrapped_between_words() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("in 1 s. out", 5), ["in", "1 s.", "out"]);
        assert_eq!(wrap("in 1 h 30 min. out", 5), ["in", "1 h 30 min.", "out"]);
        assert_eq!(wrap("", 7), [""; 0]);
    }
}
