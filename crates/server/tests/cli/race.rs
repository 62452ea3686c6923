//! Race: the atomic step is exact, in memory and on real servers, and no keys are left.

use serde_json::Value;
use tallygate_testkit::redis::{Cluster, Server};

use crate::golden::golden;
use crate::run;

/// Runs a race: read-check-write admits at least the limit, the atomic step exactly the limit.
fn race(args: &[&str], allowed: u64) {
    let output = run(&[&["race", "--json"], args].concat(), "");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}");
    let shown: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(shown["allowed"], allowed);
    let rounds = shown["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 5);
    for round in rounds {
        assert_eq!(round["atomic"], allowed, "{round}");
        assert!(
            round["read_check_write"].as_u64().unwrap() >= allowed,
            "{round}"
        );
    }
}

#[test]
fn threads_race_in_memory() {
    race(&[], 10);
    race(&["--clients", "20", "--limit", "1"], 1);
    race(&["--clients", "3", "--limit", "10"], 3);
}

#[test]
fn clients_race_on_one_server_and_leave_no_keys() {
    let server = Server::start();
    race(&["--store", &server.url()], 10);
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
}

#[test]
fn clients_race_on_a_cluster_and_leave_no_keys() {
    let cluster = Cluster::start();
    let url = cluster.url();
    race(&["--store", &url, "--clients", "20"], 10);
    for node in cluster.masters() {
        assert_eq!(cluster.node(node).command(&["DBSIZE"]).integer(), 0);
    }
}

#[test]
fn the_output_matches_its_golden_file() {
    // If all are admitted, the numbers are always the same.
    let output = run(&["race", "--clients", "4", "--rounds", "2"], "");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    golden("race-room.txt", &output.stdout);
    let output = run(&["race"], "");
    let masked: Vec<String> = output.stdout.lines().take(4).map(str::to_owned).collect();
    golden("race-head.txt", &(masked.join("\n") + "\n"));
    assert!(output.stdout.lines().all(|line| line.chars().count() <= 80));
}
