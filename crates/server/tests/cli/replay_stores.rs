//! Replay on real servers: the same output as memory, cleanup, exit codes.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tallygate_testkit::poll;
use tallygate_testkit::redis::{Cluster, Flavour, Sentinel, Server};
use tallygate_testkit::{any, with_each_seed};

use crate::vectors::request;
use crate::{CommandOutput, run, tallygate};

/// Replays in memory and in a store, and compares.
fn assert_same_output(quotas: &[&str], input: &str, url: &str) {
    let mut args = vec!["replay"];
    args.extend(quotas.iter().flat_map(|quota| ["--quota", quota]));
    let memory = run(&args, input);
    args.extend(["--store", url]);
    let store = run(&args, input);
    assert_eq!((store.code, store.stderr.as_str()), (0, ""), "{quotas:?}");
    for (i, (a, b)) in memory.stdout.lines().zip(store.stdout.lines()).enumerate() {
        assert_eq!(a, b, "{quotas:?} line {}", i + 1);
    }
    assert_eq!(memory.stdout.len(), store.stdout.len(), "{quotas:?}");
}

/// The test vectors, batched by quotas under separate keys.
fn golden_traces(url: &str) {
    let mut by_quotas: Vec<(Vec<String>, String)> = Vec::new();
    let traces = [
        include_str!("../../../core/tests/vectors.jsonl"),
        include_str!("../../../core/tests/vectors_next.jsonl"),
    ];
    for (i, line) in traces.iter().flat_map(|traces| traces.lines()).enumerate() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let quotas: Vec<String> = match trace.get("quota") {
            Some(quota) => vec![quota.as_str().unwrap().to_owned()],
            None => {
                let quotas = trace["quotas"].as_array().unwrap().iter();
                quotas.map(|q| q.as_str().unwrap().to_owned()).collect()
            }
        };
        let steps = trace["steps"].as_array().unwrap().iter();
        let key = format!("\"key\":\"k{i}\"");
        let input: String = steps
            .map(|step| request(step).replace("\"key\":\"k\"", &key))
            .collect();
        match by_quotas.iter_mut().find(|(known, _)| *known == quotas) {
            Some((_, all)) => all.push_str(&input),
            None => by_quotas.push((quotas, input)),
        }
    }
    for (quotas, input) in by_quotas {
        let quotas: Vec<&str> = quotas.iter().map(String::as_str).collect();
        assert_same_output(&quotas, &input, url);
    }
}

const QUOTAS: [&[&str]; 12] = [
    &["5/s"],
    &["fixed-window 5/s"],
    &["sliding-window-log 5/s"],
    &["token-bucket 7/s burst 3"],
    &["leaky-bucket 7/s burst 3"],
    &["leaky-bucket 7/s queue 3"],
    &["5/s", "5/s"],
    &[
        "token-bucket 7/s burst 3",
        "sliding-window-log 9/2s",
        "fixed-window 20/min",
    ],
    &["token-bucket 7/s burst 16 shared 4"],
    &["concurrent 3 for 2s"],
    &["leaky-bucket 7/s burst 9 shared 2", "concurrent 5 for 1s"],
    &[
        "concurrent 5 for 1s",
        "token-bucket 7/s burst 16 shared 4",
        "sliding-window-log 9/2s",
        "leaky-bucket 7/s queue 9",
    ],
];

/// Random lines around boundaries; time sometimes steps back.
fn random_trace(rng: &mut fastrand::Rng, lines: usize) -> String {
    let keys = ["", "a", "b{c}", "\\u0000", "d|e:f%", "😀"];
    let verbs = [
        "check", "check", "check", "peek", "take", "charge", "refund", "reset", "reserve",
        "settle", "renew", "release",
    ];
    let names = ["", "a", "b", "c|d", "😀"];
    let mut t_us: u64 = 1_700_000_000_000_000;
    let mut trace = String::new();
    for _ in 0..lines {
        t_us = t_us.saturating_add_signed(any(
            rng,
            &[
                0, 1, 999, 100_000, 142_857, 142_858, 500_000, 1_000_000, -1, -300_000, -5_000_000,
            ],
        ));
        let (key, verb) = (any(rng, &keys), any(rng, &verbs));
        let cost = any(rng, &[0, 1, 1, 1, 2, 3, 4, 9]);
        write!(
            trace,
            "{{\"t_us\":{t_us},\"key\":\"{key}\",\"cost\":{cost},\"verb\":\"{verb}\""
        )
        .unwrap();
        let (member, owner, id) = (any(rng, &names), any(rng, &names), any(rng, &names));
        let weight = any(rng, &[1, 1, 4, 1_000]);
        write!(
            trace,
            ",\"member\":\"{member}\",\"weight\":{weight},\"owner\":\"{owner}\""
        )
        .unwrap();
        if verb == "reserve" || verb == "settle" {
            write!(trace, ",\"id\":\"{id}\"").unwrap();
        }
        trace.push_str("}\n");
    }
    trace
}

fn random_traces(url: &str, lines: usize) {
    with_each_seed(|rng| {
        for quotas in QUOTAS {
            assert_same_output(quotas, &random_trace(rng, lines), url);
        }
    });
}

fn is_empty(server: &Server) -> bool {
    server.command(&["DBSIZE"]).integer() == 0
}

#[test]
fn one_server_decides_as_memory_does_and_is_left_empty() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &[]);
        golden_traces(&server.url());
        random_traces(&server.url(), 2_500);
        random_traces(&server.unix_url(), 100);
        assert!(is_empty(&server));
    }
}

#[test]
fn a_cluster_decides_as_memory_does_and_is_left_empty() {
    let cluster = Cluster::start();
    golden_traces(&cluster.url());
    random_traces(&cluster.url(), 500);
    for node in cluster.masters() {
        assert!(is_empty(cluster.node(node)));
    }
}

/// The key is as new when the refund is decided, but not for the charge.
#[test]
fn a_refund_that_finds_nothing_does_not_forget_the_key() {
    let input = "{\"t_us\":1699999999999000,\"key\":\"a\"}\n\
                 {\"t_us\":1699999999985001,\"key\":\"a\",\"verb\":\"refund\"}\n\
                 {\"t_us\":1699999999992001,\"key\":\"a\",\"verb\":\"charge\"}\n";
    let quota = "fixed-window 3/7ms";
    let output = run(&["replay", "--quota", quota], input);
    let last = output.stdout.lines().last().unwrap();
    assert!(last.contains("\"remaining\":1,"), "{last}");
    let server = Server::start();
    assert_same_output(&[quota], input, &server.url());
}

#[test]
fn a_sentinel_master_decides_as_memory_does_and_is_left_empty() {
    let group = Sentinel::start();
    golden_traces(&group.url());
    random_traces(&group.url(), 500);
    assert!(is_empty(group.master()));
}

#[test]
fn other_counters_on_the_server_are_left_alone() {
    let server = Server::start();
    for key in [
        "tallygate:1:{a}cmin",
        "tallygate:1:replay-0:{a}cmin",
        "other",
    ] {
        server.command(&["SET", key, "x"]);
    }
    random_traces(&server.url(), 20);
    assert_eq!(server.command(&["DBSIZE"]).integer(), 3);
}

#[test]
fn a_malformed_line_stops_the_replay_after_earlier_output() {
    let server = Server::start();
    let good = "{\"t_us\":0,\"key\":\"a\"}\n";
    let input = good.repeat(1_500) + "nonsense\n" + good;
    let args = ["replay", "--quota", "10/s", "--store", &server.url()];
    let output = run(&args, input);
    assert_eq!(output.code, 2);
    assert_eq!(output.stdout.lines().count(), 1_500);
    assert!(
        output.stderr.starts_with("tallygate: line 1501: "),
        "{}",
        output.stderr
    );
    assert!(is_empty(&server));
}

#[test]
fn a_store_failure_is_exit_1() {
    let server = Server::start();
    let mut session = Session::start(&server.url());
    assert!(
        session
            .exchange("{\"t_us\":0,\"key\":\"a\"}\n")
            .contains("\"remaining\":9")
    );
    server.kill();
    session.write("{\"t_us\":0,\"key\":\"a\"}\n");
    let output = session.end();
    assert_eq!((output.code, output.stdout.as_str()), (1, ""));
    assert!(
        output.stderr.contains("the store did not answer"),
        "{}",
        output.stderr
    );
    assert!(
        !output.stderr.contains(&server.port().to_string()),
        "{}",
        output.stderr
    );
}

#[test]
fn interactive_input_is_answered_line_by_line() {
    let server = Server::start();
    let mut session = Session::start(&server.url());
    for remaining in [9, 8, 7] {
        // Blank lines and half a line do not delay the output.
        session.write("{\"t_us\":0,\"key\":\"a\"}\n\n \n{\"t_us\"");
        let line = session.exchange(":0,\"key\":\"b\"}\n");
        assert!(line.contains(&format!("\"remaining\":{remaining}")));
        assert!(session.exchange("").contains("\"key\":\"b\""));
    }
    assert!(!is_empty(&server), "no counters while it runs");
    assert_eq!(session.end().code, 0);
    assert!(is_empty(&server));
}

#[test]
fn a_signal_ends_the_run_and_deletes_the_counters() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let server = Server::start();
        let mut session = Session::start(&server.url());
        session.exchange("{\"t_us\":0,\"key\":\"a\"}\n");
        assert!(!is_empty(&server));
        let pid = session.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(session.child.wait().unwrap().code(), Some(code));
        assert!(is_empty(&server));
    }
}

#[test]
fn counters_of_a_killed_run_expire_within_a_day() {
    let server = Server::start();
    let mut session = Session::start(&server.url());
    session.exchange("{\"t_us\":0,\"key\":\"a\"}\n");
    session.child.kill().unwrap();
    session.child.wait().unwrap();
    let names = server.command(&["KEYS", "*"]);
    let name = names.array()[0].text();
    assert!(name.starts_with("tallygate:1:replay-"), "{name}");
    let left = server.command(&["PTTL", name]).integer();
    assert!((1..=86_400_000).contains(&left), "{left}");
}

#[test]
fn a_closed_reader_ends_the_run_and_deletes_the_counters() {
    let server = Server::start();
    let args = ["replay", "--quota", "10/s", "--store", &server.url()];
    let mut child = tallygate(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    // How much is read depends on timing.
    let _ = stdin.write_all("{\"t_us\":0,\"key\":\"a\"}\n".repeat(5_000).as_bytes());
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    poll::until(Duration::from_secs(10), "the counters are deleted", || {
        is_empty(&server)
    });
}

#[test]
fn an_environment_variable_may_set_the_store() {
    let server = Server::start_with(&["--requirepass", "hunter2"]);
    let output = tallygate(&["replay", "--quota", "10/s", "/dev/null"])
        .env("TALLYGATE_STORE", server.url())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let help = tallygate(&["replay", "--help"])
        .env("TALLYGATE_STORE", server.url())
        .output()
        .unwrap();
    assert!(!String::from_utf8(help.stdout).unwrap().contains("hunter2"));
}

/// An interactive replay.
struct Session {
    child: std::process::Child,
    stdin: Option<std::process::ChildStdin>,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Session {
    fn start(url: &str) -> Self {
        let mut child = tallygate(&["replay", "--quota", "10/s", "--store", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Session {
            child,
            stdin,
            stdout,
        }
    }

    fn write(&mut self, text: &str) {
        self.stdin
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    /// Writes and waits for one line of output.
    fn exchange(&mut self, text: &str) -> String {
        self.write(text);
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn end(mut self) -> CommandOutput {
        drop(self.stdin.take());
        let mut stdout = String::new();
        std::io::Read::read_to_string(&mut self.stdout, &mut stdout).unwrap();
        let output = self.child.wait_with_output().unwrap();
        CommandOutput {
            code: output.status.code().unwrap(),
            stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
