//! `tallygate serve` end to end: the real binary and real sockets.

#![allow(clippy::unwrap_used)]

#[path = "../support/client.rs"]
mod client;
#[path = "../support/golden.rs"]
mod golden_file;
#[path = "../../../tallygate/tests/http/header_cases.rs"]
mod header_cases;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/terminal.rs"]
mod terminal;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../support/upstream.rs"]
mod upstream;

mod access_log;
mod admin;
mod auth;
mod bad_input;
mod banner;
mod budget_report;
mod budgets;
mod callers;
mod check;
mod drain;
mod gateway;
mod header_choice;
mod holds;
mod leases;
mod limit_flag;
mod live;
mod llm_limits;
mod many_connections;
mod members;
mod metrics;
mod otlp;
mod playground;
mod prometheus;
mod reload;
mod startup;
mod stores;
mod tls;
mod top;
mod top_command;

use client::send;
use server::{JSON, Server, TIMEOUT, TempDir, tallygate};
