//! `--limit`: a limit without a rules file.

use super::client::send;
use super::upstream::Upstream;
use super::{Server, TempDir, tallygate};

#[test]
fn every_path_is_limited_by_address() {
    let upstream = Upstream::text("hello");
    let url = format!("http://{}", upstream.address);
    let args = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let limits = ["--limit", "sliding-window-log 2/h", "--limit", "50/day"];
    let server = Server::start(&[&args[..], &limits].concat());
    let get = |path| send(server.gateway(), "GET", path, &[], "");
    let first = get("/a");
    assert_eq!(first.status, 200);
    let policy = first.header("ratelimit-policy").unwrap();
    for part in ["sliding-window-log/h\";q=2;w=3600", "q=50;w=86400"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert_eq!(get("/b").status, 200);
    assert_eq!(get("/c").status, 429);
    let rules = server.admin("GET", "/admin/rules", "").json();
    assert_eq!(rules["origin"], "--limit");
    assert_eq!(rules["rules"][0]["name"], "per-client");
}

#[test]
fn a_wrong_limit_is_exit_2_with_place_value_and_hint() {
    let folder = TempDir::new();
    let rules = folder.write("rules.yaml", "version: 1\nrules: []\n");
    for (args, words) in [
        (
            &["--limit", "-1/s"][..],
            &["--limit: bad quota", "-1/s", "^", "a correct quota"][..],
        ),
        (&["--limit", "0/s"], &["--limit: bad quota", "0/s", "^"]),
        (
            &["--limit", "ten a second"],
            &["--limit: bad quota", "ten a second", "^"],
        ),
        (
            &["--limit", "1/s", "--limit", "2/s"],
            &["1/s", "2/s", "share a counter"],
        ),
        (
            &["--limit", "10/s", "--config", &rules],
            &[
                "--limit cannot be used with --config",
                "limits: [sliding-window-counter 10/s]",
            ],
        ),
        (&["--limit"], &["--limit <QUOTA>"]),
    ] {
        let output = tallygate(&[&["serve"], args].concat()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
        for word in words {
            assert!(stderr.contains(word), "{args:?}: no {word} in {stderr}");
        }
    }
}
