//! The applications of `ops/clients`, which call the check API, in a real Node and a real Python.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tallygate_testkit::program::{self, Program};
use tallygate_testkit::{poll, ports};

use super::{Client, TIMEOUT, Tallygate};

fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../ops/clients")
        .join(name)
}

/// Runs a command that listens on a port, with the URL of the check API.
fn start(
    tallygate: &Tallygate,
    command: impl FnOnce(&Path, u16) -> Vec<String>,
) -> (Program, SocketAddr) {
    let address: SocketAddr = ([127, 0, 0, 1], ports::free()).into();
    let mut program = Program::start(Path::new("/usr/bin/env"), |folder| {
        let mut arguments = vec![
            format!("TALLYGATE_URL=http://{}", tallygate.api),
            format!("PORT={}", address.port()),
            "PYTHONDONTWRITEBYTECODE=1".to_owned(),
        ];
        arguments.extend(command(folder, address.port()));
        arguments
    });
    poll::until(TIMEOUT, "the application answers", || {
        assert!(program.is_running(), "{}", program.log());
        let response = Client::at(1).try_send(address, "GET", "/", &[], "");
        response.is_some()
    });
    (program, address)
}

/// Two requests of a client are admitted, the third is refused; without Tallygate all are admitted.
fn assert_limits(mut tallygate: Tallygate, program: &Program, address: SocketAddr) {
    let get = |client: u8| Client::at(client).send(address, "GET", "/api/items", &[], "");
    let first = get(7);
    assert_eq!(first.status, 200, "{first:?} {}", program.log());
    assert_eq!(first.body.replace(' ', ""), "[\"a\",\"b\"]");
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"api\";q=2;w=3600"),
        "{first:?}"
    );
    assert_eq!(get(7).status, 200);
    let refused = get(7);
    assert_eq!(refused.status, 429, "{refused:?}");
    let retry_after: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&retry_after), "{refused:?}");
    assert!(refused.body.contains("too many requests"), "{refused:?}");
    assert_eq!(get(8).status, 200);
    tallygate.set_kill_switch("closed");
    assert_eq!(get(8).status, 503);
    tallygate.stop();
    assert_eq!(get(7).status, 200);
}

#[test]
fn express_asks_the_check_api() {
    let tallygate = Tallygate::start();
    let (program, address) = start(&tallygate, |folder, _| {
        // Node looks for packages beside the file.
        symlink(program::node_modules(), folder.join("node_modules")).unwrap();
        fs::copy(client("express.mjs"), folder.join("express.mjs")).unwrap();
        ["node", "express.mjs"].map(str::to_owned).to_vec()
    });
    assert_limits(tallygate, &program, address);
}

#[test]
fn fastapi_asks_the_check_api() {
    let tallygate = Tallygate::start();
    let (program, address) = start(&tallygate, |_, port| {
        let python = program::python("fastapi");
        let folder = client("");
        [
            python.to_str().unwrap(),
            "-m",
            "uvicorn",
            "fastapi_app:app",
            "--app-dir",
            folder.to_str().unwrap(),
            "--port",
            &port.to_string(),
        ]
        .map(str::to_owned)
        .to_vec()
    });
    assert_limits(tallygate, &program, address);
}

#[test]
fn the_code_in_the_docs_is_the_code_that_runs() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/integrations.md");
    let docs = fs::read_to_string(docs).unwrap();
    for (language, file) in [("js", "express.mjs"), ("python", "fastapi_app.py")] {
        let (_, rest) = docs.split_once(&format!("```{language}\n")).unwrap();
        let (code, _) = rest.split_once("\n```").unwrap();
        let runs = fs::read_to_string(client(file)).unwrap();
        assert!(runs.contains(code), "docs/integrations.md: {language}");
    }
}
