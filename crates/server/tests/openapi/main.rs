//! docs/openapi.yaml is correct: schemathesis sends valid and invalid requests to a running server
//! and checks each response against the file. No response is a 5xx.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tallygate_testkit::ServerProcess;
use tallygate_testkit::program::schemathesis;

const RULES: &str = "\
version: 1
trusted_proxies: [127.0.0.1]
rules:
  - { name: login, match: { path: /login }, key: [ip], limits: 5/min }
  - { name: api, key: [{ header: x-api-key }], on_missing: pass, limits: 5/min }
  - { name: chat, match: { path: /chat }, budget: openai-daily }
budgets:
  openai-daily: { limits: [fixed-window 1000000/d, token-bucket 1000/s burst 5000] }
";

#[test]
fn responses_match_the_openapi_file() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::env::temp_dir().join(format!("tallygate-openapi-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("rules.yaml"), RULES).unwrap();
    let server = ServerProcess::start(
        Command::new(env!("CARGO_BIN_EXE_tallygate"))
            .args(["serve", "--config", "rules.yaml"])
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .current_dir(&folder),
    );
    let addresses: Value = serde_json::from_str(&server.first_line).unwrap();
    let url = format!("http://{}", addresses["api"].as_str().unwrap());
    let ran = Command::new(schemathesis())
        .arg("run")
        .arg(here.join("../../docs/openapi.yaml"))
        .args([
            "--url",
            &url,
            "--mode",
            "all",
            "--phases",
            "examples,coverage,fuzzing",
        ])
        // Forward-auth accepts any method, which OpenAPI 3.1 cannot declare. Other paths have a
        // test of their own.
        .args(["--checks", "all", "--exclude-checks", "unsupported_method"])
        .args([
            "--seed",
            "1",
            "--max-examples",
            "30",
            "--request-timeout",
            "30",
        ])
        .args([
            "--generation-database",
            "none",
            "--continue-on-failure",
            "--no-color",
        ])
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", here.join("tests/openapi"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(&folder)
        .output();
    drop(server);
    let _ = fs::remove_dir_all(&folder);
    let ran = ran.unwrap();
    let stdout = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success(),
        "{stdout}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    // A file without operations would pass as well.
    assert!(stdout.contains("Tested: 11"), "{stdout}");
}
