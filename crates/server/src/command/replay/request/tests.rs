use serde_json::Value;

use super::*;

fn problem(line: &str) -> String {
    parse(line.as_bytes()).unwrap_err().to_string()
}

#[test]
fn cost_defaults_to_one_and_verb_to_check() {
    let line = parse(br#"{"t_us": 1500000, "key": "a"}"#).unwrap();
    assert_eq!((line.t_us, &*line.key), (1_500_000, "a"));
    assert_eq!((line.cost, line.verb), (1, Verb::Check));
}

#[test]
fn fields_come_in_any_order_with_any_white_space_and_escapes() {
    let line = parse(
        b"\t{ \"verb\" :\"refund\",\"\\u0063ost\": 4294967295 ,\r\"key\":\"\\ud83d\\ude00\\/\\n\" , \"t_us\":4503599627370496 } ",
    )
    .unwrap();
    assert_eq!(line.key, "\u{1f600}/\n");
    assert_eq!((line.cost, line.verb), (u32::MAX, Verb::Refund));
    assert_eq!(line.t_us, MAX_TIME_US);
}

#[test]
fn a_number_is_written_in_digits_and_within_its_bounds() {
    for (number, expected) in [
        (
            "1.0",
            "t_us 1.0 is not a whole number written in digits only (column 9)",
        ),
        (
            "1e3",
            "t_us 1e3 is not a whole number written in digits only (column 9)",
        ),
        (
            "-0",
            "t_us -0 is not a whole number written in digits only (column 9)",
        ),
        ("-1", "t_us -1 is below 0 (column 9)"),
        (
            "-1.5",
            "t_us -1.5 is not a whole number written in digits only (column 9)",
        ),
        (
            "4503599627370497",
            "t_us 4503599627370497 is above 4503599627370496 (column 9)",
        ),
        (
            "18446744073709551616",
            "t_us 18446744073709551616 is above 4503599627370496 (column 9)",
        ),
        (
            "\"1\"",
            "t_us is a string, expected a whole number (column 9)",
        ),
        ("null", "t_us is null, expected a whole number (column 9)"),
        ("01", "invalid number (column 10)"),
        ("1.", "invalid number (column 11)"),
        ("-", "invalid number (column 10)"),
        ("+1", "expected value (column 9)"),
    ] {
        assert_eq!(
            problem(&format!(r#"{{"t_us":{number},"key":"a"}}"#)),
            expected
        );
    }
    let error = problem(r#"{"t_us":1,"key":"a","cost":4294967296}"#);
    assert_eq!(error, "cost 4294967296 is above 4294967295 (column 28)");
    let endless = "9".repeat(1_000_000);
    assert!(problem(&format!(r#"{{"t_us":{endless},"key":"a"}}"#)).len() < 200);
}

#[test]
fn errors_name_the_field_and_never_the_key() {
    for (line, expected) in [
        (
            "nonsense",
            "expected an object, found no JSON value (column 1)",
        ),
        ("[1]", "expected an object, found an array (column 1)"),
        (
            "\u{feff}{}",
            "expected an object, found no JSON value (column 1)",
        ),
        ("{}", "missing field `t_us` (column 2)"),
        (r#"{"t_us":1}"#, "missing field `key` (column 10)"),
        (
            r#"{"t_us":1,"key":"SECRET""#,
            "EOF while parsing an object (column 24)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET}"#,
            "EOF while parsing a string (column 24)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET",}"#,
            "trailing comma (column 26)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET"} x"#,
            "trailing characters (column 27)",
        ),
        (
            r#"{"t_us":1 "key":"SECRET"}"#,
            "expected `,` or `}` (column 11)",
        ),
        (r#"{"t_us" 1}"#, "expected `:` (column 9)"),
        (
            r#"{"t_us":1,"key":"SECRET","key":"b"}"#,
            "duplicate field `key` (column 30)",
        ),
        (
            r#"{"t_us":1,"t_us":1,"key":"SECRET"}"#,
            "duplicate field `t_us` (column 16)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET","csot":1}"#,
            "unknown field `csot`, expected one of `t_us`, `key`, `cost`, `verb` (column 31)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET","verb":"Check"}"#,
            "unknown verb `Check`: expected check, peek, take, charge, refund or reset (column 33)",
        ),
        (
            r#"{"t_us":1,"key":7}"#,
            "key is a number, expected a string (column 17)",
        ),
        (
            r#"{"t_us":1,"key":{"SECRET":1}}"#,
            "key is an object, expected a string (column 17)",
        ),
        (
            r#"{"t_us":1,"key":true}"#,
            "key is true, expected a string (column 17)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET\ud800"}"#,
            "unexpected end of hex escape (column 30)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET\udc00\ud800"}"#,
            "lone leading surrogate in hex escape (column 29)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET\ud800A"}"#,
            "unexpected end of hex escape (column 30)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET\x41"}"#,
            "invalid escape (column 25)",
        ),
        (
            r#"{"t_us":1,"key":"SECRET\u12G4"}"#,
            "invalid escape (column 29)",
        ),
        (
            "{\"t_us\":1,\"key\":\"SECRET\t\"}",
            "control character (\\u0000-\\u001F) found while parsing a string (column 23)",
        ),
    ] {
        let got = problem(line);
        assert_eq!(got, expected, "{line}");
        assert!(!got.contains("SECRET"));
    }
    let bytes = b"{\"t_us\":1,\"key\":\"SECRET\xff\"}";
    let got = parse(bytes).unwrap_err().to_string();
    assert_eq!(got, "invalid unicode code point (column 24)");
}

#[test]
fn debug_hides_the_key() {
    let line = parse(br#"{"t_us":1,"key":"SECRET"}"#).unwrap();
    assert!(!format!("{line:?}").contains("SECRET"));
}

/// The lines are a good one with a few bytes changed, so that most are nearly good.
#[test]
fn accepted_lines_have_the_values_of_the_json_document() {
    let good = r#"{"t_us":120,"key":"a\n\u00e9\ud83d\ude00é","cost":2,"verb":"take"}"#.as_bytes();
    let pieces: &[u8] = b"{}[]:,\"\\ ue019.-+Etk\x00\n\xc3\xa9\xff";
    let mut seed: u64 = 0x5eed;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let mut accepted = 0;
    for _ in 0..200_000 {
        let mut line = good.to_vec();
        for _ in 0..=random(3) {
            let at = random(line.len());
            match random(3) {
                0 => line[at] = pieces[random(pieces.len())],
                1 => line.insert(at, pieces[random(pieces.len())]),
                _ => drop(line.remove(at)),
            }
        }
        let Ok(read) = parse(&line) else { continue };
        accepted += 1;
        let value: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["t_us"].as_u64(), Some(read.t_us));
        assert_eq!(value["key"].as_str(), Some(&*read.key));
        assert_eq!(
            value.get("cost").map_or(Some(1), Value::as_u64),
            Some(read.cost.into())
        );
        assert_eq!(
            value.get("verb").map_or("check", |v| v.as_str().unwrap()),
            read.verb.name()
        );
    }
    assert!(accepted > 1_000, "only {accepted} lines passed");
}
