//! Malformed lines: what came before is answered, standard error names the line, exit 2.

use crate::run;

const GOOD: &str = "{\"t_us\":0,\"key\":\"SECRET\"}\n";

/// Replays a good line, a blank one and then a bad one.
fn refused(bad: &[u8], says: &str) {
    let mut input = format!("{GOOD}\n").into_bytes();
    input.extend(bad);
    input.extend(b"\n");
    input.extend(GOOD.as_bytes());
    let ran = run(&["replay", "--quota", "10/s"], input);
    let shown = String::from_utf8_lossy(&bad[..bad.len().min(80)]);
    assert_eq!(ran.code, 2, "{shown}");
    assert_eq!(ran.out.lines().count(), 1, "{shown}");
    assert_eq!(ran.err, format!("tallygate: line 3: {says}\n"), "{shown}");
    assert!(!ran.err.contains("SECRET"), "{shown}");
}

#[test]
fn json_that_is_broken() {
    refused(
        b"SECRET",
        "expected an object, found no JSON value (column 1)",
    );
    refused(b"[]", "expected an object, found an array (column 1)");
    refused(
        b"\"SECRET\"",
        "expected an object, found a string (column 1)",
    );
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET",
        "the string has no end (column 24)",
    );
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\"",
        "expected `,` or `}` after a value (column 25)",
    );
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\",}",
        "expected a field name in quotes (column 26)",
    );
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\"}{}",
        "something follows the object (column 26)",
    );
    refused(
        b"{t_us:0,\"key\":\"SECRET\"}",
        "expected a field name in quotes (column 2)",
    );
    let deep = "[".repeat(100_000);
    refused(
        format!("{{\"t_us\":0,\"key\":{deep}").as_bytes(),
        "key is an array, expected a string (column 17)",
    );
}

#[test]
fn text_that_is_not_text() {
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\xff\"}",
        "invalid UTF-8 (column 24)",
    );
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\\ud800\"}",
        "a lone surrogate escape is no character (column 24)",
    );
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\0\"}",
        "a control character in a string must be escaped (column 24)",
    );
}

#[test]
fn fields_that_are_missing_unknown_or_given_twice() {
    refused(b"{\"key\":\"SECRET\"}", "t_us is missing (column 16)");
    refused(b"{\"t_us\":0}", "key is missing (column 10)");
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\",\"key\":\"SECRET\"}",
        "key is given twice (column 26)",
    );
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\",\"csot\":1}",
        "unknown field `csot`: expected t_us, key, cost or verb (column 26)",
    );
}

#[test]
fn values_of_the_wrong_kind_or_out_of_range() {
    refused(
        b"{\"t_us\":0,\"key\":7}",
        "key is a number, expected a string (column 17)",
    );
    refused(
        b"{\"t_us\":0,\"key\":null}",
        "key is null, expected a string (column 17)",
    );
    refused(
        b"{\"t_us\":\"SECRET\",\"key\":\"SECRET\"}",
        "t_us is a string, expected a whole number (column 9)",
    );
    refused(
        b"{\"t_us\":4503599627370497,\"key\":\"SECRET\"}",
        "t_us 4503599627370497 is above 4503599627370496 (column 9)",
    );
    refused(
        b"{\"t_us\":-1,\"key\":\"SECRET\"}",
        "t_us -1 is below 0 (column 9)",
    );
    for number in ["1.0", "1e3", "-0"] {
        refused(
            format!("{{\"t_us\":{number},\"key\":\"SECRET\"}}").as_bytes(),
            &format!("t_us {number} is not a whole number written in digits only (column 9)"),
        );
    }
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\",\"cost\":4294967296}",
        "cost 4294967296 is above 4294967295 (column 33)",
    );
    refused(
        b"{\"t_us\":0,\"key\":\"SECRET\",\"verb\":\"chekc\"}",
        "unknown verb `chekc`: expected check, peek, take, charge, refund or reset (column 33)",
    );
}

#[test]
fn a_line_that_is_too_long() {
    let endless = format!("{{\"t_us\":0,\"key\":\"{}\"}}", "k".repeat(9 << 20));
    refused(endless.as_bytes(), "longer than 8388608 bytes");
}
