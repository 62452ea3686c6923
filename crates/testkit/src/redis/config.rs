//! The configuration of a server to start.

use std::fmt::Write as _;
use std::path::Path;

use super::Flavour;
use crate::ports;

#[derive(Clone, Debug)]
pub(super) struct ServerConfig {
    pub(super) flavour: Flavour,
    pub(super) role: Role,
    /// Lines of the configuration file.
    pub(super) lines: Vec<String>,
    /// Program arguments; they override the file.
    pub(super) args: Vec<String>,
    /// User and password for the commands of tests.
    pub(super) login: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Single,
    /// On a TLS port only.
    Tls,
    ClusterNode,
    Sentinel,
}

impl ServerConfig {
    pub(super) fn new(flavour: Flavour, args: &[&str]) -> Self {
        let password = args
            .windows(2)
            .find(|pair| pair[0] == "--requirepass")
            .map(|pair| ("default".to_owned(), pair[1].to_owned()));
        Self {
            flavour,
            role: Role::Single,
            lines: Vec::new(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            login: password,
        }
    }

    /// A port that was free a moment ago.
    pub(super) fn port(&self) -> u16 {
        match self.role {
            Role::Single | Role::Tls | Role::Sentinel => ports::free(),
            Role::ClusterNode => ports::free_with_bus(),
        }
    }

    /// Renders the configuration file.
    pub(super) fn render(&self, port: u16, folder: &Path) -> String {
        let folder = folder.display();
        let mut text = match self.role {
            Role::Single | Role::ClusterNode | Role::Sentinel => format!("port {port}\n"),
            Role::Tls => format!("port 0\ntls-port {port}\n"),
        };
        let mut line =
            |line: &str| writeln!(text, "{line}").expect("writing to a string cannot fail");
        line("bind 127.0.0.1");
        line("protected-mode no");
        line("loglevel warning");
        line(&format!("dir {folder}"));
        line(&format!("unixsocket {folder}/socket"));
        if self.role != Role::Sentinel {
            line("save \"\"");
            line("appendonly no");
            // Start the synchronisation of a replica without delay.
            line("repl-diskless-sync-delay 0");
            // Before version 7, DEBUG is always allowed.
            if self.flavour.version().0 >= 7 {
                line("enable-debug-command yes");
            }
        }
        self.lines.iter().for_each(|added| line(added));
        text
    }
}
