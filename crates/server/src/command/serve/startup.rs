//! The output for programs: the addresses as one line of JSON, and the result of `--check`.

use std::io::{self, Write};
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::config::{Config, Style};
use crate::endpoints::Endpoints;
use crate::format::plural;

pub(super) fn print_addresses(endpoints: &Endpoints, out: &mut impl Write) -> io::Result<()> {
    // Not `json!`: callers rely on the order of the fields.
    let text = |address: SocketAddr| json!(address.to_string());
    let gateway = endpoints.gateway.as_ref();
    let gateway = gateway.map_or(Value::Null, |gateway| text(gateway.address));
    let (api, admin) = (text(endpoints.api), text(endpoints.admin));
    writeln!(
        out,
        "{{\"api\":{api},\"gateway\":{gateway},\"admin\":{admin}}}"
    )?;
    out.flush()
}

pub(super) fn print_check(loaded: &Config, out: &mut impl Write) -> io::Result<()> {
    if loaded.warnings.warnings() > 0 {
        let warnings = loaded.warnings.render(Style::Plain);
        let _ = writeln!(io::stderr().lock(), "{warnings}");
    }
    let rules = plural(loaded.rules.rules.len(), "rule");
    writeln!(out, "good: {rules}")
}
