//! Invalid quota text: one golden message and marker line for every kind of error, and hostile
//! text.

use tallygate_core::{Quota, QuotaError};

const PLAIN: &str = "100/min";
const LONG: &str = "sliding-window-log 10/10s";
const PARTS: &str = "fixed-window 5/1h30min";
const BURST: &str = "token-bucket 10/s burst 50";
const QUEUE: &str = "leaky-bucket 10/s queue 20";

#[track_caller]
fn parse_error(text: &str) -> QuotaError {
    match text.parse::<Quota>() {
        Ok(quota) => panic!("{text:?} was read as {quota}"),
        Err(error) => error,
    }
}

/// Compares the message and the marker line, for text that is shown unchanged.
#[track_caller]
fn assert_golden(text: &str, marks: &str, problem: &str, example: &str) {
    let error = parse_error(text);
    let column = marks.find('^').unwrap() + 1;
    let message =
        format!("{problem} (column {column} of `{text}`); a correct quota is `{example}`");
    assert_eq!(error.to_string(), message);
    assert_eq!(error.picture(), Some(format!("{text}\n{marks}")));
    assert_eq!(error.problem(), problem);
    assert_eq!(error.span().map(|span| span.start), Some(column - 1));
    assert!(example.parse::<Quota>().is_ok());
}

#[test]
fn numbers_out_of_range_are_reported_with_their_bound() {
    for (text, marks, problem) in [
        ("0/min", "^", "limit 0 is below 1"),
        (
            "1000000001/s",
            "^^^^^^^^^^",
            "limit 1000000001 is above 1000000000",
        ),
        (
            "99999999999999999999/s",
            "^^^^^^^^^^^^^^^^^^^^",
            "limit 2^64 or more is above 1000000000",
        ),
        (
            "sliding-window-log 100001/s",
            "                   ^^^^^^",
            "limit 100001 is above 100000",
        ),
        ("1/0ms", "  ^", "the period's count 0 is below 1 in `0ms`"),
        (
            "1/1h0s",
            "    ^",
            "the period's count 0 is below 1 in `1h0s`",
        ),
        (
            "gcra 10/s burst 0",
            "                ^",
            "burst 0 is below 1",
        ),
        (
            "leaky-bucket 10/s queue 0",
            "                        ^",
            "queue 0 is below 1",
        ),
        (
            "gcra 10/s burst 1000000001",
            "                ^^^^^^^^^^",
            "burst 1000000001 is above 1000000000",
        ),
    ] {
        assert_golden(text, marks, problem, PLAIN);
    }
}

#[test]
fn periods_and_drains_out_of_range_are_rejected() {
    let period = |text: &str| {
        let error = parse_error(text);
        assert!(error.problem().contains("above 366d"), "{error}");
        error.span().unwrap()
    };
    assert_eq!(period("1/367d"), 2..6);
    assert_eq!(period("1/8784h1ms"), 2..10);
    assert_eq!(period("1/18446744073709551615d"), 2..23);
    assert_eq!(period("1/366d18446744073709551615ms"), 2..28);
    for text in ["gcra 1/366d burst 143", "leaky-bucket 1/d queue 1000000"] {
        let error = parse_error(text);
        assert!(
            error.problem().contains("is above 4503599627370496"),
            "{error}"
        );
        assert_eq!(error.span().unwrap().end, text.len());
    }
}

#[test]
fn a_number_of_twenty_digits_is_reported_with_its_bound() {
    let log = parse_error("sliding-window-log 99999999999999999999/s");
    assert_eq!(log.problem(), "limit 2^64 or more is above 100000");
    // 2000000000ms is a valid period, so the bound is not that of a count.
    assert!("1/2000000000ms".parse::<Quota>().is_ok());
    let period = parse_error("1/99999999999999999999ms");
    assert!(!period.problem().contains("above 1000000000"), "{period}");
}

#[test]
fn misplaced_characters_and_spaces_are_marked() {
    let spaces = "words are separated by single spaces, with none at either end";
    let upper = |c| format!("`{c}` is upper case: a quota is all lower case");
    let strange = |c| format!("`{c}` has no place in a quota");
    for (text, marks, problem) in [
        ("", "^", "the quota is empty".to_owned()),
        (" ", "^", spaces.to_owned()),
        (" 1/s", "^", spaces.to_owned()),
        ("1/s ", "   ^", spaces.to_owned()),
        ("gcra  1/s", "    ^", spaces.to_owned()),
        ("Gcra 1/s", "^", upper('G')),
        ("100/MIN", "    ^", upper('M')),
        ("1.5/s", " ^", strange('.')),
        ("1_000/s", " ^", strange('_')),
        ("+1/s", "^", strange('+')),
        ("1é/s", " ^", strange('é')),
        ("１/s", "^", strange('１')),
        ("gcra 1/s burst=5", "              ^", strange('=')),
    ] {
        assert_golden(text, marks, &problem, PLAIN);
    }
}

#[test]
fn invalid_rates_are_marked() {
    let no_rate = |word| format!("`{word}` is no rate: a limit, `/` and a period");
    let no_period = "the period is missing: a count and a unit of d, h, min, s or ms";
    for (text, marks, problem) in [
        ("100", "^^^", no_rate("100")),
        ("100 /min", "^^^", no_rate("100")),
        ("gcra burst 5", "     ^^^^^", no_rate("burst")),
        (
            "gcra",
            "    ^",
            "a limit and a period are missing".to_owned(),
        ),
        ("/min", "^", "the limit is missing".to_owned()),
        ("100/", "    ^", no_period.to_owned()),
        ("100/ min", "    ^", no_period.to_owned()),
        ("-1/s", "^^", "limit `-1` is not a whole number".to_owned()),
        (
            "1e3/s",
            " ^^",
            "limit `1e3` is not a whole number".to_owned(),
        ),
        (
            "gcra 1/s burst x",
            "               ^",
            "burst `x` is not a whole number".to_owned(),
        ),
        (
            "token-buckets 1/s",
            "^^^^^^^^^^^^^",
            "`token-buckets` is no algorithm: there are fixed-window, sliding-window-log, \
             sliding-window-counter, token-bucket (or gcra) and leaky-bucket"
                .to_owned(),
        ),
    ] {
        assert_golden(text, marks, &problem, PLAIN);
    }
}

#[test]
fn invalid_periods_are_marked() {
    let no_unit = |word| format!("`{word}` is no unit: d, h, min, s or ms");
    let unitless = |count| format!("`{count}` in the period has no unit: d, h, min, s or ms");
    let order = |unit| format!("`{unit}` is out of order: the largest unit first, each once");
    let countless = |rest| format!("`{rest}` in the period has no count");
    for (text, marks, problem, example) in [
        ("1/week", "  ^^^^", no_unit("week"), PLAIN),
        ("1/us", "  ^^", no_unit("us"), PLAIN),
        ("1/1hmin", "   ^^^^", no_unit("hmin"), PLAIN),
        ("1/5", "  ^", unitless("5"), LONG),
        ("1/1h30", "    ^^", unitless("30"), LONG),
        ("1/30min1h", "        ^", order("h"), PARTS),
        ("1/1s1s", "     ^", order("s"), PARTS),
        ("1/1m1min", "     ^^^", order("min"), PARTS),
        ("1//s", "  ^^", countless("/s"), PARTS),
        ("1/s/s", "  ^^^", countless("s/s"), PARTS),
    ] {
        assert_golden(text, marks, &problem, example);
    }
}

#[test]
fn misplaced_bursts_and_queues_are_marked() {
    for (text, marks, problem, example) in [
        (
            "10/s burst 5",
            "     ^^^^^",
            "sliding-window-counter takes no burst",
            BURST,
        ),
        (
            "fixed-window 10/s queue 5",
            "                  ^^^^^",
            "fixed-window takes no queue",
            QUEUE,
        ),
        (
            "sliding-window-log 10/s burst 10",
            "                        ^^^^^",
            "sliding-window-log takes no burst",
            BURST,
        ),
        (
            "gcra 10/s queue 5",
            "          ^^^^^",
            "token-bucket takes no queue",
            QUEUE,
        ),
        (
            "leaky-bucket 10/s burst 5 queue 5",
            "                          ^^^^^",
            "a bucket has a burst or a queue, not both",
            BURST,
        ),
        (
            "gcra 10/s burst",
            "               ^",
            "the burst has no number",
            BURST,
        ),
        (
            "gcra 10/s 50",
            "          ^^",
            "`50` is neither burst nor queue",
            BURST,
        ),
    ] {
        assert_golden(text, marks, problem, example);
    }
}

#[test]
fn characters_that_cannot_be_shown_are_replaced() {
    let error = parse_error("1/s\0");
    assert_eq!(error.problem(), "`\\0` has no place in a quota");
    assert_eq!(error.picture().unwrap(), "1/s\u{fffd}\n   ^");
    let error = parse_error("gcra\t1/s");
    assert_eq!(error.problem(), "words are separated by single spaces");
    assert_eq!(error.picture().unwrap(), "gcra\u{fffd}1/s\n    ^");
    let error = parse_error("1/s\u{1b}[31m");
    assert!(!error.to_string().contains('\u{1b}'));
}

#[test]
fn a_megabyte_of_text_is_rejected_with_a_short_message() {
    for scrap in [
        "a", "0", "1", " ", "/", "\0", "é", "1h", "burst ", "100/min ",
    ] {
        let error = parse_error(&scrap.repeat((1 << 20) / scrap.len()));
        assert!(error.to_string().len() < 1_000, "{scrap:?}");
        assert!(
            error
                .to_string()
                .ends_with("; a correct quota is `100/min`")
        );
    }
}

#[test]
fn long_words_are_truncated_in_messages() {
    let error = parse_error(&format!("{} 1/s", "x".repeat(200)));
    assert!(error.problem().contains(&format!("`{}…`", "x".repeat(40))));
    assert!(error.to_string().len() < 400);
    let error = parse_error(&format!("1/{}s", "9".repeat(200)));
    assert!(error.to_string().len() < 400);
}

#[test]
fn leading_zeros_are_decimal_digits_too() {
    let quota: Quota = "leaky-bucket 010/007s queue 0005".parse().unwrap();
    assert_eq!(quota.to_string(), "leaky-bucket 10/7s queue 5");
}
