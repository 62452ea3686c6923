//! Pipes: interactive input, closed readers, full disks.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::tallygate;

#[test]
fn interactive_input_is_answered_line_by_line() {
    let mut child = tallygate(&["replay", "--quota", "10/s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, output) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in stdout.lines() {
            sender.send(line.unwrap()).unwrap();
        }
    });
    let next = || output.recv_timeout(Duration::from_secs(60)).unwrap();
    for _ in 0..3 {
        // A line and the start of another: the first is decided immediately.
        stdin
            .write_all(b"{\"t_us\":0,\"key\":\"a\"}\n{\"t_us\":")
            .unwrap();
        assert!(next().starts_with("{\"t_us\":0,\"key\":\"a\","));
        stdin.write_all(b"7,\"key\":\"b\"}\n").unwrap();
        assert!(next().starts_with("{\"t_us\":7,\"key\":\"b\","));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    reader.join().unwrap();
}

#[test]
fn a_closed_reader_ends_the_run_without_an_error() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("many.jsonl");
    fs::write(&path, "{\"t_us\":0,\"key\":\"a\"}\n".repeat(100_000)).unwrap();
    let mut child = tallygate(&["replay", "--quota", "10/s", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.starts_with("{\"t_us\":0,"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_exit_1() {
    for args in [
        &["demo"][..],
        &["explain", "10/s"],
        &["man"],
        &["completions", "bash"],
        &["replay", "--quota", "10/s"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut child = tallygate(args)
            .stdin(Stdio::piped())
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Commands that read nothing may have exited.
        let _ = stdin.write_all(b"{\"t_us\":0,\"key\":\"a\"}\n");
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.contains("cannot write the output"), "{args:?}: {err}");
    }
}
