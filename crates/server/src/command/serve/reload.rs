//! Reloads the rules and the gateway's certificate when their files change or on SIGHUP. Invalid
//! files leave what is active in place.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tallygate::http::Policy;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::signals::HangUps;
use crate::config::{Config, Style, load};
use crate::gateway::Certificate;
use crate::state::ServerState;

/// How long to wait after a change: editors write files in several steps.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How often files are checked without an event: network drives send none, and events get lost.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

pub(super) struct Reload {
    pub(super) path: PathBuf,
    pub(super) loaded: Config,
    pub(super) state: Arc<ServerState>,
    /// Taken before the files were last read, so that a change while reading is noticed.
    pub(super) fingerprint: Fingerprint,
}

/// A hash of each file's contents, `None` if it cannot be read. Two writes within one tick of the
/// kernel's clock leave the same modification time, so that time and length cannot tell them apart.
#[derive(PartialEq, Eq)]
pub(super) struct Fingerprint(BTreeMap<PathBuf, Option<u64>>);

/// No file of rules or certificates is larger.
const MAX_FILE_BYTES: u64 = 4 << 20;

impl Reload {
    pub(super) async fn run(mut self, mut hang_ups: HangUps) {
        // One pending event is enough: every reload reads all files.
        let (send, mut changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the files here is an event too.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                let _ = send.try_send(());
            }
        });
        let mut watcher = match watcher {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "cannot watch files: changes are noticed by polling");
                None
            }
        };
        let mut watched = Vec::new();
        let mut requested = false;
        loop {
            if let Some(watcher) = &mut watcher {
                watch_folders(watcher, &mut watched, &folders(&self.path, &self.loaded));
            }
            // Also before the first event: files may have changed before they were watched.
            let (path, files) = (self.path.clone(), self.loaded.files.clone());
            // A network drive may take its time.
            let fingerprint = spawn_blocking(move || Fingerprint::new(&path, &files)).await;
            // The runtime is shutting down.
            let Ok(fingerprint) = fingerprint else { return };
            if requested || fingerprint != self.fingerprint {
                self.fingerprint = fingerprint;
                self.reload(requested).await;
            }
            requested = tokio::select! {
                () = hang_ups.next() => true,
                Some(()) = changes.recv() => {
                    tokio::time::sleep(DEBOUNCE).await;
                    let _ = changes.try_recv();
                    false
                }
                () = tokio::time::sleep(POLL_INTERVAL) => false,
            };
        }
    }

    async fn reload(&mut self, requested: bool) {
        let path = self.path.clone();
        let metadata = std::fs::metadata(&path);
        if metadata.is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
            // Reading a pipe or a device may never end.
            self.state.metrics.record_failed_reload();
            tracing::error!("the rules are in a pipe or device now; the active ones stay");
            return;
        }
        let loaded = spawn_blocking(move || load(&path)).await;
        let loaded = match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(report)) => {
                self.state.metrics.record_failed_reload();
                let report = report.render(Style::Plain);
                tracing::error!(report, "invalid rules; the active ones stay");
                return;
            }
            // The runtime is shutting down.
            Err(_) => return,
        };
        let same = loaded.rules == self.loaded.rules;
        if loaded.store != self.loaded.store {
            tracing::warn!("the store changed in the rules file; restart to apply");
        }
        let keys = |config: &Config| -> Vec<_> {
            let rules = config.rules.rules.iter();
            let keys = rules.filter_map(|rule| Some((rule.name.clone(), rule.keys?)));
            keys.collect()
        };
        if keys(&loaded) != keys(&self.loaded) {
            tracing::warn!("the `keys` of rules changed in the rules file; restart to apply");
        }
        if loaded.gateway != self.loaded.gateway {
            tracing::warn!("the gateway changed in the rules file; restart to apply");
        }
        if !same && let Err(error) = self.state.active_rules.replace(loaded.rules.clone()) {
            self.state.metrics.record_failed_reload();
            tracing::error!(%error, "invalid rules; the active ones stay");
            return;
        }
        let engine = &self.state.engine;
        self.state
            .active_rules
            .limits(&mut |limit| engine.prepare(limit));
        self.loaded = loaded;
        self.fingerprint.retain(&self.path, &self.loaded.files);
        // Touching a file does not count as a reload; SIGHUP does.
        if !same || requested {
            self.state.metrics.record_reload();
            let rules = self.loaded.rules.rules.len();
            tracing::info!(rules, changed = !same, "reloaded the rules");
        }
    }
}

/// Reloads the gateway's certificate until dropped.
pub(super) async fn run_certificate(certificate: Certificate, mut hang_ups: HangUps) {
    let tls = certificate.tls().clone();
    let files = || {
        let tls = tls.clone();
        spawn_blocking(move || (contents_hash(&tls.certificate), contents_hash(&tls.key)))
    };
    let Ok(mut loaded) = files().await else {
        return;
    };
    loop {
        let requested = tokio::select! {
            () = hang_ups.next() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
        };
        let Ok(current) = files().await else {
            return;
        };
        if !requested && current == loaded {
            continue;
        }
        loaded = current;
        // Certificate and key are written one after the other; the second one completes the pair.
        match certificate.reload() {
            Ok(()) => tracing::info!("reloaded the gateway's certificate"),
            Err(error) => tracing::error!(%error, "the gateway keeps its certificate"),
        }
    }
}

/// The folders to watch: those of the files, and of the targets of symbolic links, since a mounted
/// ConfigMap is replaced by changing a link.
fn folders(path: &Path, loaded: &Config) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for file in std::iter::once(path).chain(loaded.files.iter().map(PathBuf::as_path)) {
        let real = file.canonicalize().ok();
        for file in [Some(file.to_owned()), real].into_iter().flatten() {
            let folder = match file.parent() {
                Some(parent) if parent != Path::new("") => parent.to_owned(),
                Some(_) | None => PathBuf::from("."),
            };
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

fn watch_folders(watcher: &mut RecommendedWatcher, watched: &mut Vec<PathBuf>, wanted: &[PathBuf]) {
    watched.retain(|folder| {
        let keep = wanted.contains(folder) && folder.exists();
        if !keep {
            let _ = watcher.unwatch(folder);
        }
        keep
    });
    for folder in wanted {
        if !watched.contains(folder) && watcher.watch(folder, RecursiveMode::NonRecursive).is_ok() {
            watched.push(folder.clone());
        }
    }
}

impl Fingerprint {
    pub(super) fn from_file(path: &Path) -> Self {
        Fingerprint::new(path, &[])
    }

    fn new(path: &Path, files: &[PathBuf]) -> Self {
        let all = std::iter::once(path).chain(files.iter().map(PathBuf::as_path));
        Fingerprint(
            all.map(|file| (file.to_owned(), contents_hash(file)))
                .collect(),
        )
    }

    /// Removes files that are no longer included. A newly included one is missing until the next
    /// check, which then reloads once more.
    fn retain(&mut self, path: &Path, files: &[PathBuf]) {
        self.0
            .retain(|file, _| file == path || files.contains(file));
    }
}

fn contents_hash(path: &Path) -> Option<u64> {
    // Reading a pipe or a device may never end.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut contents = Vec::new();
    let mut file = File::open(path).ok()?.take(MAX_FILE_BYTES + 1);
    file.read_to_end(&mut contents).ok()?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&contents);
    Some(hasher.finish())
}
