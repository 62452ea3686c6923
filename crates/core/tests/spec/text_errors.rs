//! Invalid quota text: one golden message and marker line for every kind of error, and hostile
//! text.

use tallygate_core::{Quota, QuotaError};

const PLAIN: &str = "100/min";
const LONG: &str = "sliding-window-log 10/10s";
const PARTS: &str = "fixed-window 5/1h30min";
const BURST: &str = "token-bucket 10/s burst 50";
const QUEUE: &str = "leaky-bucket 10/s queue 20";
const SHARED: &str = "token-bucket 100/s burst 100 shared 4";
const CONCURRENT: &str = "concurrent 10 for 30s";

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
    let advice = match error.suggestion() {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("a correct quota is `{example}`"),
    };
    let message = format!("{problem} (column {column} of `{text}`); {advice}");
    assert_eq!(error.to_string(), message);
    assert_eq!(format!("{error:?}"), message);
    assert_eq!(error.example_text(), example);
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
    let strange = |c| format!("`{c}` is not allowed in a quota");
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
    let no_rate = |word| format!("`{word}` is not a rate: expected a limit, `/` and a period");
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
            "token-buckets 1/s",
            "^^^^^^^^^^^^^",
            "unknown algorithm `token-buckets`: expected fixed-window, sliding-window-log, \
             sliding-window-counter, token-bucket (or gcra), leaky-bucket or concurrent"
                .to_owned(),
        ),
    ] {
        assert_golden(text, marks, &problem, PLAIN);
    }
}

#[test]
fn invalid_periods_are_marked() {
    let no_unit = |word| format!("unknown unit `{word}`: expected d, h, min, s or ms");
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
            "gcra 10/s burst x",
            "                ^",
            "burst `x` is not a whole number",
            BURST,
        ),
        (
            "gcra 10/s 50",
            "          ^^",
            "`50` is not `burst`, `queue` or `shared`",
            BURST,
        ),
        (
            "gcra 10/s burst 50 please",
            "                   ^^^^^^",
            "`please` is one word too many",
            BURST,
        ),
    ] {
        assert_golden(text, marks, problem, example);
    }
}

#[test]
fn characters_that_cannot_be_shown_are_replaced() {
    let error = parse_error("1/s\0");
    assert_eq!(error.problem(), "`\\0` is not allowed in a quota");
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
        assert_eq!(error.suggestion(), None);
    }
}

#[test]
fn invalid_shares_are_marked() {
    for (text, marks, problem, example) in [
        (
            "100/s shared",
            "      ^^^^^^",
            "sliding-window-counter cannot be shared",
            SHARED,
        ),
        (
            "fixed-window 100/s shared 4",
            "                   ^^^^^^",
            "fixed-window cannot be shared",
            SHARED,
        ),
        (
            "leaky-bucket 10/s queue 20 shared",
            "                           ^^^^^^",
            "a leaky-bucket with a queue cannot be shared",
            SHARED,
        ),
        (
            "token-bucket 100/s shared 0",
            "                          ^",
            "shared 0 is below 1",
            SHARED,
        ),
        (
            "token-bucket 100/s burst 16 shared 5",
            "                                   ^",
            "burst 16 is below 20, four times the 5 of shared",
            SHARED,
        ),
        (
            "token-bucket 3/s shared",
            "                 ^^^^^^",
            "burst 3 is below 16, four times the 4 of shared",
            SHARED,
        ),
        (
            "token-bucket 1/d burst 367 shared",
            "                       ^^^",
            "a full drain (burst x period / limit) of 31708800000000 microseconds is above 366d for a \
             shared bucket",
            SHARED,
        ),
        (
            "token-bucket 100/s shared x",
            "                          ^",
            "shared `x` is not a whole number",
            SHARED,
        ),
        (
            "token-bucket 100/s shared 4 5",
            "                            ^",
            "`5` is one word too many",
            BURST,
        ),
    ] {
        assert_golden(text, marks, problem, example);
    }
}

#[test]
fn invalid_concurrency_limits_are_marked() {
    let missing = "the hold time is missing: `for` and a period";
    for (text, marks, problem, example) in [
        (
            "concurrent",
            "          ^",
            "the limit is missing",
            CONCURRENT,
        ),
        ("concurrent 10", "             ^", missing, CONCURRENT),
        (
            "concurrent 10 for",
            "                 ^",
            missing,
            CONCURRENT,
        ),
        (
            "concurrent 10 over 30s",
            "              ^^^^",
            "`over` is not `for`, which the hold time follows",
            CONCURRENT,
        ),
        (
            "concurrent 0 for 30s",
            "           ^",
            "limit 0 is below 1",
            CONCURRENT,
        ),
        (
            "concurrent 10001 for 30s",
            "           ^^^^^",
            "limit 10001 is above 10000",
            CONCURRENT,
        ),
        (
            "concurrent 10 for 999ms",
            "                  ^^^^^",
            "the hold time 999ms is below 1s",
            CONCURRENT,
        ),
        (
            "concurrent 10 for 0s",
            "                  ^",
            "the period's count 0 is below 1 in `0s`",
            CONCURRENT,
        ),
        (
            "concurrent 10 for 1d1ms",
            "                  ^^^^^",
            "the hold time 1d1ms is above 24h",
            CONCURRENT,
        ),
        (
            "concurrent 10/s for 30s",
            "             ^^",
            "limit `10/s` is not a whole number",
            CONCURRENT,
        ),
        (
            "concurrent 10 for 30s burst",
            "                      ^^^^^",
            "`burst` is one word too many",
            CONCURRENT,
        ),
    ] {
        assert_golden(text, marks, problem, example);
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

#[test]
fn other_spellings_are_answered_with_what_was_meant_in_the_same_numbers() {
    for (text, meant) in [
        // Algorithms.
        ("tokenbucket 10/s", "token-bucket 10/s"),
        ("token_bucket 10/s burst 7", "token-bucket 10/s burst 7"),
        ("token bucket 10/s", "token-bucket 10/s"),
        ("Token-Bucket 10/s", "token-bucket 10/s"),
        ("tokne-bucket 10/s", "token-bucket 10/s"),
        ("token-buckets 1/s", "token-bucket 1/s"),
        ("GCRA 10/s", "gcra 10/s"),
        ("leakybucket 7/s queue 9", "leaky-bucket 7/s queue 9"),
        ("fixed window 7/d", "fixed-window 7/d"),
        ("fixed 7/d", "fixed-window 7/d"),
        ("sliding-window 10/s", "sliding-window-counter 10/s"),
        ("sliding-log 10/s", "sliding-window-log 10/s"),
        ("sliding_window_log 10/s", "sliding-window-log 10/s"),
        // A burst or queue without its algorithm, or with another.
        ("10/s burst 5", "token-bucket 10/s burst 5"),
        ("10/s burst=5", "token-bucket 10/s burst 5"),
        ("10/s, burst of 5", "token-bucket 10/s burst 5"),
        ("10/s queue 5", "leaky-bucket 10/s queue 5"),
        ("fixed-window 10/s burst 5", "token-bucket 10/s burst 5"),
        ("gcra 10/s queue 5", "leaky-bucket 10/s queue 5"),
        ("gcra 10/s 50", "gcra 10/s burst 50"),
        ("10/s 50", "token-bucket 10/s burst 50"),
        // Rates.
        ("100 per minute", "100/min"),
        ("100 per min", "100/min"),
        ("100 requests per minute", "100/min"),
        ("100 requests/minute", "100/min"),
        ("5 requests every 10 seconds", "5/10s"),
        ("5 in 1h30min", "5/1h30min"),
        ("100rpm", "100/min"),
        ("100 rps", "100/s"),
        ("50qps", "50/s"),
        ("10r/s", "10/s"),
        ("10 / s", "10/s"),
        ("100 /min", "100/min"),
        ("100/ min", "100/min"),
        ("100//min", "100/min"),
        ("100/MIN", "100/min"),
        ("100/hr", "100/h"),
        ("1_000/s", "1000/s"),
        ("10k/min", "10000/min"),
        ("5/week", "5/7d"),
        ("1/30min1h", "1/1h30min"),
        (" 100/min", "100/min"),
        ("100/min\n", "100/min"),
        // Shares and concurrency limits.
        (
            "100/s burst 100 shared 4",
            "token-bucket 100/s burst 100 shared 4",
        ),
        ("100/s shared", "token-bucket 100/s shared"),
        ("concurrency 10 for 30s", "concurrent 10 for 30s"),
        ("concurrent 10 30s", "concurrent 10 for 30s"),
        ("10 in-flight for 1min", "concurrent 10 for 1min"),
        // Other orders.
        ("10/s token-bucket", "token-bucket 10/s"),
        ("min/100", "100/min"),
        ("burst 50 token-bucket 10/s", "token-bucket 10/s burst 50"),
    ] {
        let error = parse_error(text);
        assert_eq!(error.suggestion(), Some(meant), "{text}: {error}");
        let advice = format!("; did you mean `{meant}`?");
        assert!(error.to_string().ends_with(&advice), "{error}");
        assert!(meant.parse::<Quota>().is_ok());
    }
}

#[test]
fn nothing_is_suggested_if_a_word_has_no_meaning_or_a_number_is_wrong() {
    for text in [
        "100",
        "gcra",
        "tokenbucket",
        "-1/s",
        "+1/s",
        "1.5/s",
        "1e3/s",
        "1/us",
        "1/1s1s",
        "1/s/s",
        "1000/mins/s",
        "1/1h30",
        "1/1hmin",
        "10s/5",
        "0 per minute",
        "100001 per minute sliding-log",
        "1/fortnight",
        "7 apples per minute",
        "burst 5",
        "10/s burst",
        "10/s burst 5 queue 5",
        "99999999999999999999 per second",
        "10 per 99999999999999999999 seconds",
        "1é/s",
    ] {
        let error = parse_error(text);
        assert_eq!(error.suggestion(), None, "{text}");
        assert!(error.to_string().contains("; a correct quota is `"));
    }
}
