//! Malformed replay lines: earlier requests are decided, standard error names the line, exit 2.

use crate::run;

const GOOD: &str = "{\"t_us\":0,\"key\":\"SECRET\"}\n";

/// Replays a good line, a blank one and then a bad one.
fn assert_error(bad: &[u8], message: &str) {
    let mut input = format!("{GOOD}\n").into_bytes();
    input.extend(bad);
    input.extend(b"\n");
    input.extend(GOOD.as_bytes());
    let output = run(&["replay", "--quota", "10/s"], input);
    let shown = String::from_utf8_lossy(&bad[..bad.len().min(80)]);
    assert_eq!(output.code, 2, "{shown}");
    assert_eq!(output.stdout.lines().count(), 1, "{shown}");
    assert_eq!(
        output.stderr,
        format!("tallygate: line 3: {message}\n"),
        "{shown}"
    );
    assert!(!output.stderr.contains("SECRET"), "{shown}");
}

#[test]
fn invalid_json_is_reported() {
    assert_error(
        b"SECRET",
        "expected an object, found no JSON value (column 1)",
    );
    assert_error(b"[]", "expected an object, found an array (column 1)");
    assert_error(
        b"\"SECRET\"",
        "expected an object, found a string (column 1)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET",
        "EOF while parsing a string (column 23)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\"",
        "EOF while parsing an object (column 24)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\",}",
        "trailing comma (column 26)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\"}{}",
        "trailing characters (column 26)",
    );
    assert_error(
        b"{t_us:0,\"key\":\"SECRET\"}",
        "a field name must be a string (column 2)",
    );
    assert_error(
        b"{\"key\":\"SECRET\",\"t_us\":1 \"verb\":\"take\"}",
        "expected `,` or `}` (column 26)",
    );
    assert_error(
        b"{\"key\":\"SECRET\",\"t_us\" 1}",
        "expected `:` (column 24)",
    );
    let deep = "[".repeat(100_000);
    assert_error(
        format!("{{\"t_us\":0,\"key\":{deep}").as_bytes(),
        "EOF while parsing a list (column 100016)",
    );
}

#[test]
fn invalid_strings_are_reported() {
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\xff\"}",
        "invalid unicode code point (column 24)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\\ud800\"}",
        "unexpected end of hex escape (column 30)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\\udc00\\ud800\"}",
        "lone leading surrogate in hex escape (column 29)",
    );
    for escape in ["\\x41", "\\u12G4"] {
        let column = if escape.len() == 4 { 25 } else { 29 };
        assert_error(
            format!("{{\"t_us\":0,\"key\":\"SECRET{escape}\"}}").as_bytes(),
            &format!("invalid escape (column {column})"),
        );
    }
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\0\"}",
        "control character (\\u0000-\\u001F) found while parsing a string (column 23)",
    );
}

#[test]
fn missing_unknown_and_duplicate_fields_are_reported() {
    assert_error(b"{\"key\":\"SECRET\"}", "missing field `t_us` (column 16)");
    assert_error(b"{\"t_us\":0}", "missing field `key` (column 10)");
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\",\"key\":\"SECRET\"}",
        "duplicate field `key` (column 30)",
    );
    assert_error(
        b"{\"key\":\"SECRET\",\"t_us\":1,\"t_us\":1}",
        "duplicate field `t_us` (column 31)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\",\"csot\":1}",
        "unknown field `csot`, expected one of `t_us`, `key`, `cost`, `verb`, `member`, \
         `weight`, `owner`, `id` (column 31)",
    );
}

#[test]
fn values_of_a_wrong_type_or_out_of_range_are_reported() {
    assert_error(
        b"{\"t_us\":0,\"key\":7}",
        "key is a number, expected a string (column 17)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":null}",
        "key is null, expected a string (column 17)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":{\"SECRET\":1}}",
        "key is an object, expected a string (column 17)",
    );
    for (t_us, message) in [
        ("\"SECRET\"", "t_us is a string, expected a whole number"),
        ("null", "t_us is null, expected a whole number"),
        ("[]", "t_us is an array, expected a whole number"),
        (
            "4503599627370497",
            "t_us 4503599627370497 is above 4503599627370496",
        ),
        (
            "18446744073709551616",
            "t_us 18446744073709551616 is above 4503599627370496",
        ),
        ("-1", "t_us -1 is below 0"),
        ("+1", "expected value"),
    ] {
        assert_error(
            format!("{{\"t_us\":{t_us},\"key\":\"SECRET\"}}").as_bytes(),
            &format!("{message} (column 9)"),
        );
    }
    for number in ["1.0", "1e3", "-0", "-1.5"] {
        assert_error(
            format!("{{\"t_us\":{number},\"key\":\"SECRET\"}}").as_bytes(),
            &format!("t_us {number} is not a whole number written in digits only (column 9)"),
        );
    }
    for (number, column) in [("01", 10), ("1.", 11), ("-", 10)] {
        assert_error(
            format!("{{\"t_us\":{number},\"key\":\"SECRET\"}}").as_bytes(),
            &format!("invalid number (column {column})"),
        );
    }
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\",\"cost\":null}",
        "cost is null, expected a whole number (column 33)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\",\"cost\":4294967296}",
        "cost 4294967296 is above 4294967295 (column 33)",
    );
    assert_error(
        b"{\"t_us\":0,\"key\":\"SECRET\",\"verb\":\"chekc\"}",
        "unknown verb `chekc`: expected check, peek, take, charge, refund, reset, reserve, settle, \
         renew or release (column 33)",
    );
}

#[test]
fn a_line_that_is_too_long_is_reported() {
    let endless = format!("{{\"t_us\":0,\"key\":\"{}\"}}", "k".repeat(9 << 20));
    assert_error(endless.as_bytes(), "longer than 8388608 bytes");
}

#[test]
fn callers_and_ids_are_checked() {
    for (fields, message) in [
        (
            "\"weight\":0",
            "weight 0 is out of range: 1 to 1000 (column 35)",
        ),
        ("\"weight\":1001", "weight 1001 is above 1000 (column 35)"),
        (
            "\"weight\":null",
            "weight is null, expected a whole number (column 35)",
        ),
        (
            "\"member\":null",
            "member is null, expected a string (column 35)",
        ),
        (
            "\"owner\":7",
            "owner is a number, expected a string (column 34)",
        ),
        (
            "\"verb\":\"reserve\"",
            "a reserve without an id (column 33)",
        ),
        ("\"verb\":\"settle\"", "a settle without an id (column 33)"),
        (
            "\"id\":\"SECRET\"",
            "a check with an id: only reserve and settle have one (column 31)",
        ),
        (
            "\"verb\":\"renew\",\"id\":\"\"",
            "a renew with an id: only reserve and settle have one (column 46)",
        ),
    ] {
        let line = format!("{{\"t_us\":0,\"key\":\"SECRET\",{fields}}}");
        assert_error(line.as_bytes(), message);
    }
}
