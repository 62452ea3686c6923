//! What a server says when it starts: one line of JSON for programs, a few lines for people.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::config::{Loaded, Style};

/// Where a server listens.
pub(super) struct Addresses {
    pub(super) api: SocketAddr,
    pub(super) gateway: Option<SocketAddr>,
    pub(super) admin: SocketAddr,
}

/// The first line on standard output: where it listens.
pub(super) fn bound(addresses: &Addresses, out: &mut impl Write) -> io::Result<()> {
    // Written by hand: the order of the fields is part of the contract.
    let text = |address: SocketAddr| json!(address.to_string());
    let gateway = addresses.gateway.map_or(Value::Null, text);
    let (api, admin) = (text(addresses.api), text(addresses.admin));
    writeln!(
        out,
        "{{\"api\":{api},\"gateway\":{gateway},\"admin\":{admin}}}"
    )?;
    out.flush()
}

/// What to try, for whoever started it by hand.
pub(super) fn banner(config: Option<&Path>, addresses: &Addresses) {
    let Addresses {
        api,
        gateway,
        admin,
    } = addresses;
    let gateway = gateway.map_or(String::new(), |gateway| {
        format!("    gateway    http://{gateway}/\n")
    });
    let rules = match config {
        Some(path) => format!("rules: {}", path.display()),
        None => "rules: a small sample (yours: --config rules.yaml)".to_owned(),
    };
    let text = format!(
        "
  Tallygate is up: {rules}
{gateway}    playground http://{api}/
    check API  http://{api}/v1/check
    live view  http://{admin}/live
    admin      http://{admin}/metrics  /healthz  /admin/rules

  Ask three times within a minute; the third is refused with 429:
    curl -i http://{api}/v1/check -H 'content-type: application/json' \\
      -d '{{\"key\":\"ann\",\"quota\":\"sliding-window-log 2/min\"}}'

"
    );
    // Where standard error is gone, nobody misses it.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// What `--check` says of rules that are right.
pub(super) fn checked(loaded: &Loaded, out: &mut impl Write) -> io::Result<()> {
    if loaded.warnings.warnings() > 0 {
        let warnings = loaded.warnings.text(Style::Plain);
        let _ = writeln!(io::stderr().lock(), "{warnings}");
    }
    let number = loaded.rules.rules.len();
    writeln!(out, "good: {number} rules")
}
