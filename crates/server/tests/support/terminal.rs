//! A program in a real terminal: a pane of a tmux server of its own.

use std::ffi::OsStr;
use std::process::{Command, Output};

use tallygate_testkit::poll;

use crate::server::{TIMEOUT, TempDir};

/// Keeps the screen after the program has ended.
const SETTINGS: &str = "\
set -g remain-on-exit on
set -g status off
set -g default-terminal tmux-256color
set -g escape-time 0
set -g history-limit 5000
";

pub(crate) struct Terminal {
    folder: TempDir,
}

impl Terminal {
    /// Runs a command in a terminal of this size.
    pub(crate) fn start(columns: u16, rows: u16, command: &Command) -> Self {
        let folder = TempDir::new();
        folder.write("tmux.conf", SETTINGS);
        let terminal = Terminal { folder };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let mut tmux = terminal.tmux(&["new-session", "-d", "-x", &columns, "-y", &rows]);
        // The tmux server has the environment of the tests.
        tmux.args(["--", "env"]);
        for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
            tmux.arg("-u").arg(name);
        }
        for (name, value) in command.get_envs() {
            if let (Some(name), Some(value)) = (name.to_str(), value.and_then(OsStr::to_str)) {
                tmux.arg(format!("{name}={value}"));
            }
        }
        tmux.arg(command.get_program()).args(command.get_args());
        run(tmux);
        terminal
    }

    /// The text on the screen and above it. Wrapped lines are joined.
    pub(crate) fn text(&self) -> String {
        let output = run(self.tmux(&["capture-pane", "-p", "-J", "-S", "-"]));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits for a text on the screen, and returns the whole.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        let found = poll::first(TIMEOUT, || {
            Some(self.text()).filter(|all| all.contains(text))
        });
        found.unwrap_or_else(|| panic!("no {text:?} within {TIMEOUT:?}:\n{}", self.text()))
    }

    /// Presses keys, by the names that tmux has for them.
    #[allow(dead_code, reason = "other tests do not press keys")]
    pub(crate) fn press(&self, keys: &[&str]) {
        run(self.tmux(&[&["send-keys"], keys].concat()));
    }

    /// Waits until a text is no longer on the screen.
    #[allow(dead_code, reason = "other tests do not wait for it")]
    #[track_caller]
    pub(crate) fn wait_without(&self, text: &str) -> String {
        let found = poll::first(TIMEOUT, || {
            Some(self.text()).filter(|all| !all.contains(text))
        });
        found.unwrap_or_else(|| panic!("{text:?} is still there:\n{}", self.text()))
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command
            .env("TMUX_TMPDIR", self.folder.path())
            .env_remove("TMUX")
            .env("LC_ALL", "C.UTF-8")
            .arg("-f")
            .arg(self.folder.path().join("tmux.conf"))
            .args(arguments);
        command
    }
}

fn run(mut command: Command) -> Output {
    let output = command.output().expect("tmux is installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    output
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).output();
    }
}
