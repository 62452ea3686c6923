//! The output at startup: one line of JSON for programs, and where to go next for people.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::config::{Config, Style};

pub(super) struct Addresses {
    pub(super) api: SocketAddr,
    pub(super) gateway: Option<SocketAddr>,
    pub(super) admin: SocketAddr,
}

pub(super) fn print_addresses(addresses: &Addresses, out: &mut impl Write) -> io::Result<()> {
    // Not `json!`: callers rely on the order of the fields.
    let text = |address: SocketAddr| json!(address.to_string());
    let gateway = addresses.gateway.map_or(Value::Null, text);
    let (api, admin) = (text(addresses.api), text(addresses.admin));
    writeln!(
        out,
        "{{\"api\":{api},\"gateway\":{gateway},\"admin\":{admin}}}"
    )?;
    out.flush()
}

/// Announces the server on standard error: a banner on a terminal, one log event elsewhere.
pub(super) fn announce(config: Option<&Path>, addresses: &Addresses) {
    let Addresses {
        api,
        gateway,
        admin,
    } = addresses;
    if !io::stderr().is_terminal() {
        let rules = config.map_or("the built-in sample".into(), Path::to_string_lossy);
        let gateway = gateway.map(|gateway| format!("http://{gateway}/"));
        tracing::info!(
            rules = &*rules,
            gateway,
            playground = %format_args!("http://{api}/"),
            check_api = %format_args!("http://{api}/v1/check"),
            live_view = %format_args!("http://{admin}/live"),
            admin = %format_args!("http://{admin}/"),
            "listening"
        );
        return;
    }
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

  Send this three times within a minute; the third is refused with 429:
    curl -i http://{api}/v1/check -H 'content-type: application/json' \\
      -d '{{\"key\":\"ann\",\"quota\":\"sliding-window-log 2/min\"}}'

"
    );
    // The server starts even if standard error is closed.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

pub(super) fn print_check(loaded: &Config, out: &mut impl Write) -> io::Result<()> {
    if loaded.warnings.warnings() > 0 {
        let warnings = loaded.warnings.render(Style::Plain);
        let _ = writeln!(io::stderr().lock(), "{warnings}");
    }
    let number = loaded.rules.rules.len();
    writeln!(out, "good: {number} rules")
}
