//! Third-party programs, run as children: nginx, Envoy, Caddy, HAProxy, schemathesis, and Node and Python with
//! packages.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::Process;

/// Where `./test` installs Python packages.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/testkit");

/// nginx: `TALLYGATE_NGINX`, or the one on the system.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn nginx() -> PathBuf {
    // /usr/sbin may not be on the path.
    let usual = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];
    find("TALLYGATE_NGINX", usual.map(PathBuf::from).to_vec())
}

/// Envoy: `TALLYGATE_ENVOY`, or what `./test` installed.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn envoy() -> PathBuf {
    let packages = fs::read_dir(Path::new(INSTALLED).join("envoy/lib"));
    let packages = packages.into_iter().flatten().flatten();
    let usual = packages.map(|python| python.path().join("site-packages/envoy/_bin/envoy"));
    find("TALLYGATE_ENVOY", usual.collect())
}

/// Caddy: `TALLYGATE_CADDY`, the one on the system, or what `./test` unpacked.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn caddy() -> PathBuf {
    let unpacked = Path::new(INSTALLED).join("caddy/usr/bin/caddy");
    find(
        "TALLYGATE_CADDY",
        vec![PathBuf::from("/usr/bin/caddy"), unpacked],
    )
}

/// HAProxy: `TALLYGATE_HAPROXY`, or the one on the system.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn haproxy() -> PathBuf {
    let usual = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"];
    find("TALLYGATE_HAPROXY", usual.map(PathBuf::from).to_vec())
}

/// A Python with the packages that `./test` installed under this name.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn python(name: &str) -> PathBuf {
    let usual = Path::new(INSTALLED).join(name).join("bin/python");
    find("TALLYGATE_PYTHON", vec![usual])
}

/// A Python without packages: `TALLYGATE_PYTHON3`, or the one on the system.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn python3() -> PathBuf {
    let usual = ["/usr/bin/python3", "/usr/local/bin/python3"];
    find("TALLYGATE_PYTHON3", usual.map(PathBuf::from).to_vec())
}

/// The folder of the Node packages that `./test` installed.
#[must_use]
pub fn node_modules() -> PathBuf {
    Path::new(INSTALLED).join("node/node_modules")
}

/// Schemathesis: `TALLYGATE_SCHEMATHESIS`, or what `./test` installed.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn schemathesis() -> PathBuf {
    let usual = Path::new(INSTALLED).join("schemathesis/bin/schemathesis");
    find("TALLYGATE_SCHEMATHESIS", vec![usual])
}

fn find(variable: &str, usual: Vec<PathBuf>) -> PathBuf {
    if let Some(program) = env::var_os(variable) {
        return program.into();
    }
    let found = usual.into_iter().find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("no program for {variable}; ./test installs it"))
}

/// A program in its own folder, killed on drop or when the test process ends.
#[derive(Debug)]
pub struct Program {
    // Dropped before its folder: it may write there until it ends.
    process: Process,
    folder: TempDir,
}

impl Program {
    /// Runs a program. `arguments` may write files into the folder.
    ///
    /// # Panics
    ///
    /// Panics if it cannot be run.
    #[must_use]
    pub fn start(program: &Path, arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("tallygate-program-")
            .tempdir()
            .expect("the temporary folder can be written to");
        let arguments = arguments(folder.path());
        let log = folder.path().join("log");
        let process = Process::spawn(program, &arguments, folder.path(), &log)
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
        Self { process, folder }
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Its output.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}
