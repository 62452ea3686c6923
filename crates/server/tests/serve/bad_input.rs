//! Invalid input gets a problem with a code and does not affect the next request.

use std::io::Write;
use std::net::Shutdown;

use super::client::{Connection, send};
use super::{JSON, Server};

#[test]
fn every_invalid_body_has_a_code() {
    let server = Server::start(&[]);
    let limits = |count: usize| {
        let one = |i| format!(r#"{{"key":"k{i}","quota":"1/s"}}"#);
        let all: Vec<String> = (0..count).map(one).collect();
        format!(r#"{{"limits":[{}]}}"#, all.join(","))
    };
    let deep = "[".repeat(30_000);
    let sixty_five = limits(65);
    for (body, status, code) in [
        ("", 400, "malformed-json"),
        ("{", 400, "malformed-json"),
        ("{\"key\":\"a\",}", 400, "malformed-json"),
        ("not json", 400, "malformed-json"),
        (&deep, 400, "bad-field"),
        ("[]", 400, "bad-field"),
        ("null", 400, "bad-field"),
        ("5", 400, "bad-field"),
        ("{}", 400, "bad-body"),
        (r#"{"key":"a"}"#, 400, "bad-body"),
        (r#"{"quota":"1/s"}"#, 400, "bad-body"),
        (r#"{"attributes":{}}"#, 400, "bad-body"),
        (r#"{"key":"a","quota":"1/s","limits":[]}"#, 400, "bad-body"),
        (
            r#"{"key":"a","quota":"1/s","rule":"login"}"#,
            400,
            "bad-body",
        ),
        (r#"{"limits":[]}"#, 400, "bad-body"),
        (r#"{"key":"a","quota":"1/s","extra":1}"#, 400, "bad-field"),
        (r#"{"key":"a","key":"b","quota":"1/s"}"#, 400, "bad-field"),
        (r#"{"key":5,"quota":"1/s"}"#, 400, "bad-field"),
        (r#"{"key":null,"quota":"1/s"}"#, 400, "bad-field"),
        (r#"{"key":"a","quota":"1/s","cost":-1}"#, 400, "bad-field"),
        (
            r#"{"key":"a","quota":"1/s","cost":4294967296}"#,
            400,
            "bad-field",
        ),
        (r#"{"key":"a","quota":"1/s","cost":1.5}"#, 400, "bad-field"),
        (
            r#"{"key":"a","quota":"1/s","verb":"grab"}"#,
            400,
            "bad-field",
        ),
        (r#"{"key":"a","quota":"1/s","verb":1}"#, 400, "bad-field"),
        (
            r#"{"key":"a","quota":"1/s","name":"a b"}"#,
            400,
            "bad-field",
        ),
        (r#"{"key":"a","quota":"0/s"}"#, 400, "bad-quota"),
        (r#"{"key":"a","quota":"1/blink"}"#, 400, "bad-quota"),
        (r#"{"key":"a","quota":""}"#, 400, "bad-quota"),
        (r#"{"key":"a","quota":"1000000001/s"}"#, 400, "bad-quota"),
        (
            r#"{"limits":[{"key":"a","quota":"1/s"},{"key":"a","quota":"2/s"}]}"#,
            400,
            "same-counter-twice",
        ),
        (r#"{"limits":[["a","1/s"]]}"#, 400, "bad-field"),
        (&sixty_five, 400, "too-many-limits"),
        (r#"{"rule":"none","attributes":{}}"#, 404, "unknown-rule"),
        (
            r#"{"rule":"login","attributes":{"ip":"here"}}"#,
            400,
            "bad-attribute",
        ),
        (
            r#"{"rule":"login","attributes":{"path":"login"}}"#,
            400,
            "bad-attribute",
        ),
        (
            r#"{"rule":"login","attributes":{"colour":"red"}}"#,
            400,
            "bad-field",
        ),
        (r#"{"rule":"login","attributes":[]}"#, 400, "bad-field"),
    ] {
        let answer = server.check(body);
        let shown: String = body.chars().take(80).collect();
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{shown}"
        );
    }
    assert_eq!(server.check(&limits(64)).status, 200);
    assert_eq!(
        server.check(r#"{"key":"a","quota":"1/s","cost":0}"#).status,
        200
    );
}

#[test]
fn every_invalid_request_has_a_code() {
    let server = Server::start(&[]);
    let good = r#"{"key":"a","quota":"1/s"}"#;
    let large = format!(r#"{{"key":"{}","quota":"1/s"}}"#, "x".repeat(64 << 10));
    let large_batch = format!(r#"[{}{good}]"#, format!("{good},").repeat(50_000));
    let many = format!("[{}{good}]", format!("{good},").repeat(1_000));
    let xml = ("content-type", "text/xml");
    let utf8 = ("content-type", "Application/JSON; charset=utf-8");
    for (method, path, header, body, status, code) in [
        ("GET", "/v1/check", JSON, "", 405, "method-not-allowed"),
        ("PUT", "/v1/check", JSON, good, 405, "method-not-allowed"),
        (
            "GET",
            "/v1/check/batch",
            JSON,
            "",
            405,
            "method-not-allowed",
        ),
        ("POST", "/v1/check", xml, good, 415, "wrong-content-type"),
        ("POST", "/v1/check?status=204", JSON, good, 400, "bad-query"),
        ("POST", "/v1/check?verbose", JSON, good, 400, "bad-query"),
        ("POST", "/v1/checks", JSON, good, 404, "not-found"),
        ("POST", "/v1/check/", JSON, good, 404, "not-found"),
        ("POST", "/v1/check", utf8, &large, 413, "body-too-large"),
        (
            "POST",
            "/v1/check/batch",
            JSON,
            &large_batch,
            413,
            "body-too-large",
        ),
        (
            "POST",
            "/v1/check/batch",
            JSON,
            &many,
            400,
            "too-many-items",
        ),
        ("POST", "/v1/check/batch", JSON, good, 400, "malformed-json"),
        (
            "POST",
            "/v1/check/batch",
            JSON,
            "[1,",
            400,
            "malformed-json",
        ),
    ] {
        let answer = send(server.api, method, path, &[header], body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{method} {path}"
        );
        if status == 405 {
            assert_eq!(answer.header("allow"), Some("POST"));
        }
    }
    assert_eq!(
        send(server.api, "POST", "/v1/check", &[utf8], good).status,
        200
    );
}

#[test]
fn no_problem_and_no_log_line_contains_a_key() {
    let server = Server::start_with_env(&[], &[("TALLYGATE_LOG", "trace")]);
    for body in [
        r#"{"key":"s3cr3t","quota":"x"}"#,
        r#"{"key":"a","quota":"1/s","cost":"s3cr3t"}"#,
        r#"{"key":"a","quota":"1/s","verb":"s3cr3t"}"#,
        r#"{"limits":[{"key":"s3cr3t","quota":"1/s"},{"key":"s3cr3t","quota":"1/s"}]}"#,
        r#"{"rule":"s3cr3t","attributes":{"headers":{"x-api-key":"s3cr3t"}}}"#,
        r#"{"key":"s3cr3t","quota":"1/s"}"#,
    ] {
        let answer = server.check(body);
        assert!(!answer.body.contains("s3cr3t"), "{body}: {}", answer.body);
    }
    server.admin("DELETE", "/admin/keys/s3cr3t", "");
    assert!(!server.stderr().contains("s3cr3t"), "{}", server.stderr());
}

#[test]
fn malformed_http_closes_only_its_connection() {
    let server = Server::start(&[]);
    let head = "POST /v1/check HTTP/1.1\r\nhost: x\r\n";
    let long = format!("{head}x: {}\r\n\r\n", "y".repeat(64 << 10));
    let lines = format!("{head}{}\r\n", "x: y\r\n".repeat(200));
    let twice = format!("{head}content-length: 5\r\ncontent-length: 6\r\n\r\n{{}}");
    for (bytes, status, code) in [
        (&b"\x16\x03\x01\x02\x00"[..], 400, "bad-request"),
        (b"GET\r\n\r\n", 400, "bad-request"),
        (b"\0\0\0\0\r\n\r\n", 400, "bad-request"),
        (long.as_bytes(), 431, "head-too-large"),
        (lines.as_bytes(), 431, "head-too-large"),
        (twice.as_bytes(), 400, "bad-request"),
    ] {
        for port in [server.api, server.admin] {
            let mut connection = Connection::open(port);
            let _ = connection.stream.write_all(bytes);
            let _ = connection.stream.shutdown(Shutdown::Write);
            // Unread bytes cause a TCP reset, which may discard the response.
            if let Some(answer) = connection.read() {
                let problem = (answer.status, answer.code());
                assert_eq!(problem, (status, code.to_owned()), "{answer:?}");
                assert_eq!(answer.header("connection"), Some("close"));
            } else {
                assert!(bytes.len() > 32 << 10, "no answer: {status}");
            }
        }
    }
    // A body that never comes whole.
    let mut connection = Connection::open(server.api);
    let cut = format!("{head}content-length: 50\r\n\r\n{{\"key\"");
    connection.stream.write_all(cut.as_bytes()).unwrap();
    connection.stream.shutdown(Shutdown::Write).unwrap();
    let _ = connection.read();
    assert_eq!(server.check(r#"{"key":"a","quota":"1/s"}"#).status, 200);
}
