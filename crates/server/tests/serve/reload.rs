//! Reload of the rules: by signal, on change, as Kubernetes replaces files, and under load.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use tallygate_testkit::poll;

use super::client::Connection;
use super::{JSON, Server, TIMEOUT, TempDir};

fn rules(limit: u32) -> String {
    format!(
        "version: 1\nrules:\n  - name: all\n    key: [ip]\n    limits: [fixed-window {limit}/day]\n"
    )
}

const PEEK: &str = r#"{"rule":"all","attributes":{"ip":"192.0.2.1"},"verb":"peek"}"#;

fn limit(server: &Server) -> u64 {
    server.check(PEEK).json()["limit"].as_u64().unwrap_or(0)
}

fn reloads(server: &Server, result: &str) -> Option<f64> {
    server.metric(&format!("tallygate_reloads_total{{result=\"{result}\"}}"))
}

#[test]
fn a_changed_file_is_applied_without_a_signal_and_keeps_counts() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", &rules(10));
    let server = Server::start(&["--config", &path]);
    let take = PEEK.replace("peek", "check");
    assert_eq!(server.check(&take).json()["remaining"], 9);
    folder.write("rules.yaml", &rules(20));
    poll::until(TIMEOUT, "the new limit", || limit(&server) == 20);
    assert_eq!(server.check(&take).json()["remaining"], 18);
    // Editors write a new file and move it over the old one.
    let new = folder.write("new", &rules(30));
    fs::rename(new, &path).unwrap();
    poll::until(TIMEOUT, "the newest limit", || limit(&server) == 30);
    assert_eq!(reloads(&server, "ok"), Some(2.0));
}

#[test]
fn a_change_that_keeps_the_length_and_the_modification_time_is_applied() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", &rules(10));
    let server = Server::start(&["--config", &path]);
    let new = folder.write("new", &rules(20));
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let file = File::options().write(true).open(&new).unwrap();
    file.set_modified(modified).unwrap();
    fs::rename(new, &path).unwrap();
    poll::until(TIMEOUT, "the new limit", || limit(&server) == 20);
}

#[test]
fn an_invalid_file_changes_nothing_and_is_logged() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", &rules(10));
    let server = Server::start(&["--config", &path]);
    folder.write(
        "rules.yaml",
        "version: 1\nrules:\n  - name: all\n    limits: 5/blink\n",
    );
    poll::until(TIMEOUT, "it is noticed", || {
        reloads(&server, "error") == Some(1.0)
    });
    assert_eq!(limit(&server), 10);
    poll::until(TIMEOUT, "it is logged", || {
        server.stderr().contains("the active ones stay")
    });
    fs::remove_file(&path).unwrap();
    server.signal("-HUP");
    poll::until(TIMEOUT, "a missing file is an error too", || {
        reloads(&server, "error") >= Some(2.0)
    });
    assert_eq!(limit(&server), 10);
    folder.write("rules.yaml", &rules(11));
    poll::until(TIMEOUT, "a valid one", || limit(&server) == 11);
}

#[test]
fn a_pipe_or_device_in_place_of_a_file_does_not_stop_reloading() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", &rules(10));
    let server = Server::start(&["--config", &path]);
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let new = folder.path().join("new");
    // In one step: a missing file would be an error too.
    let replace_and_fail = || {
        let errors = reloads(&server, "error");
        fs::rename(&new, &path).unwrap();
        poll::until(TIMEOUT, "an error", || reloads(&server, "error") > errors);
    };
    for (number, target) in [(11, "pipe"), (12, "/dev/zero"), (13, "/dev/tty")] {
        symlink(folder.path().join(target), &new).unwrap();
        replace_and_fail();
        // Nor does one that is included.
        folder.write("new", &format!("include: {target}\n{}", rules(number)));
        replace_and_fail();
        folder.write("rules.yaml", &rules(number));
        poll::until(TIMEOUT, "a good file", || {
            limit(&server) == u64::from(number)
        });
    }
}

#[test]
fn sighup_reloads_the_rules() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", &rules(10));
    let server = Server::start(&["--config", &path]);
    for count in 1..=3 {
        server.signal("-HUP");
        poll::until(TIMEOUT, "a reload", || {
            reloads(&server, "ok") == Some(f64::from(count))
        });
    }
    assert_eq!(limit(&server), 10);
}

#[test]
fn a_changed_symlink_is_noticed_as_in_kubernetes() {
    let folder = TempDir::new();
    let root = folder.path();
    for (name, limit) in [("..1", 10), ("..2", 20)] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("rules.yaml"), rules(limit)).unwrap();
    }
    symlink("..1", root.join("..data")).unwrap();
    symlink("..data/rules.yaml", root.join("rules.yaml")).unwrap();
    let path = root.join("rules.yaml");
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    assert_eq!(limit(&server), 10);
    symlink("..2", root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    fs::remove_dir_all(root.join("..1")).unwrap();
    poll::until(TIMEOUT, "the other file", || limit(&server) == 20);
    // Once more, from the new target.
    fs::create_dir(root.join("..3")).unwrap();
    fs::write(root.join("..3").join("rules.yaml"), rules(30)).unwrap();
    symlink("..3", root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    poll::until(TIMEOUT, "the third file", || limit(&server) == 30);
}

#[test]
fn an_included_file_is_watched_too() {
    let folder = TempDir::new();
    folder.write("more.yaml", &rules(10));
    let path = folder.write("rules.yaml", "version: 1\ninclude: [more.yaml]\n");
    let server = Server::start(&["--config", &path]);
    assert_eq!(limit(&server), 10);
    folder.write("more.yaml", &rules(20));
    poll::until(TIMEOUT, "the new limit", || limit(&server) == 20);
}

#[test]
fn runtime_changes_outlive_a_reload() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", &rules(10));
    let server = Server::start(&["--config", &path]);
    let ban = r#"{"key":"192.0.2.1","deny":true,"seconds":3600}"#;
    assert_eq!(server.admin("POST", "/admin/overrides", ban).status, 201);
    folder.write("rules.yaml", &rules(20));
    poll::until(TIMEOUT, "a reload", || reloads(&server, "ok") == Some(1.0));
    assert_eq!(server.check(PEEK).status, 403);
    let other = PEEK.replace("192.0.2.1", "192.0.2.2");
    assert_eq!(server.check(&other).json()["limit"], 20);
}

#[test]
fn no_request_fails_during_a_reload() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", &rules(1_000_000));
    let server = Server::start(&["--config", &path]);
    let done = AtomicBool::new(false);
    let answered = AtomicU32::new(0);
    let take = PEEK.replace("peek", "check");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut connection = Connection::open(server.api);
                while !done.load(Ordering::Relaxed) {
                    let answer = connection
                        .send("POST", "/v1/check", &[JSON], &take)
                        .unwrap();
                    assert_eq!(answer.status, 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for step in 1..=5 {
            folder.write("rules.yaml", &rules(1_000_000 + step));
            server.signal("-HUP");
            poll::until(TIMEOUT, "the new limit", || {
                limit(&server) == u64::from(1_000_000 + step)
            });
        }
        done.store(true, Ordering::Relaxed);
    });
    let last = server.check(PEEK).json();
    let taken = last["limit"].as_u64().unwrap() - last["remaining"].as_u64().unwrap();
    assert_eq!(
        taken,
        u64::from(answered.load(Ordering::Relaxed)),
        "every request is charged once"
    );
}
