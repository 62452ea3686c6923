//! Reads the rules again when their files change or somebody says so. Knows the file system and
//! signals; rules that are wrong leave those in force as they were.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tallygate::http::Policy;
use tokio::sync::mpsc;

use super::signals::HangUps;
use crate::config::{Loaded, Style, load};
use crate::state::Serving;

/// How long a change has to be over before the files are read: editors write in several steps.
const SETTLED: Duration = Duration::from_millis(100);
/// How often the files are looked at where nobody tells of changes: network drives, lost events.
pub(super) const LOOKED_AT: Duration = Duration::from_secs(5);

/// The rules of a file, kept up to date.
pub(super) struct Reload {
    path: PathBuf,
    loaded: Loaded,
    serving: Arc<Serving>,
    /// What the files looked like before they were last read: what changes while they are read
    /// is a change too.
    seen: Seen,
}

/// What some files look like: where each really is, when it was written, and how long it is.
#[derive(PartialEq, Eq)]
pub(super) struct Seen(BTreeMap<PathBuf, Option<(PathBuf, SystemTime, u64)>>);

impl Reload {
    /// Keeps rules up to date that were read when their file looked like that, or later.
    pub(super) fn new(path: PathBuf, seen: Seen, loaded: Loaded, serving: Arc<Serving>) -> Self {
        Reload {
            path,
            loaded,
            serving,
            seen,
        }
    }

    /// Reads the rules again whenever there is reason to, for as long as it is polled.
    pub(super) async fn run(mut self, mut hang_ups: HangUps) {
        // One event says it all: whatever changed, everything is read.
        let (send, mut changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |_: notify::Result<notify::Event>| {
            let _ = send.try_send(());
        });
        let mut watcher = match watcher {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "changes of files are noticed a little later");
                None
            }
        };
        let mut watched = Vec::new();
        let mut asked = false;
        loop {
            if let Some(watcher) = &mut watcher {
                watch(watcher, &mut watched, &folders(&self.path, &self.loaded));
            }
            // Also before anything is heard: it may have changed before anybody listened.
            let seen = Seen::all(&self.path, &self.loaded.files);
            if asked || seen != self.seen {
                self.seen = seen;
                self.reload(asked).await;
            }
            asked = tokio::select! {
                () = hang_ups.next() => true,
                Some(()) = changes.recv() => {
                    tokio::time::sleep(SETTLED).await;
                    let _ = changes.try_recv();
                    false
                }
                () = tokio::time::sleep(LOOKED_AT) => false,
            };
        }
    }

    async fn reload(&mut self, asked: bool) {
        let path = self.path.clone();
        let loaded = tokio::task::spawn_blocking(move || load(&path)).await;
        let loaded = match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(report)) => {
                self.serving.metrics.record_failed_reload();
                let report = report.text(Style::Plain);
                tracing::error!(report, "the rules are wrong; those in force stay");
                return;
            }
            // Only a runtime that ends gives up on it.
            Err(_) => return,
        };
        let same = loaded.rules == self.loaded.rules;
        if loaded.store != self.loaded.store {
            tracing::warn!("the file names another store, which takes a restart");
        }
        if loaded.gateway != self.loaded.gateway {
            tracing::warn!("the file says something else of the gateway, which takes a restart");
        }
        if !same && let Err(fault) = self.serving.force.replace(loaded.rules.clone()) {
            self.serving.metrics.record_failed_reload();
            tracing::error!(%fault, "the rules are wrong; those in force stay");
            return;
        }
        let limiter = &self.serving.limiter;
        self.serving
            .force
            .limits(&mut |limit| limiter.prepare(limit));
        self.loaded = loaded;
        self.seen.keep(&self.path, &self.loaded.files);
        // A file that was only touched is no reload, unless somebody asked for one.
        if !same || asked {
            self.serving.metrics.record_reload();
            let rules = self.loaded.rules.rules.len();
            tracing::info!(rules, changed = !same, "the rules were read again");
        }
    }
}

/// The folders where changes show: those of the files, and of what links to them lead to, since a
/// mounted ConfigMap is swapped by turning a link.
fn folders(path: &Path, loaded: &Loaded) -> Vec<PathBuf> {
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

fn watch(watcher: &mut RecommendedWatcher, watched: &mut Vec<PathBuf>, wanted: &[PathBuf]) {
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

impl Seen {
    /// What one file looks like.
    pub(super) fn of(path: &Path) -> Self {
        Seen::all(path, &[])
    }

    /// What a file and some more look like.
    fn all(path: &Path, files: &[PathBuf]) -> Self {
        let all = std::iter::once(path).chain(files.iter().map(PathBuf::as_path));
        Seen(all.map(|file| (file.to_owned(), look(file))).collect())
    }

    /// Forgets files that no longer count. One that is new has not been seen before it was read,
    /// so that it is read once more.
    fn keep(&mut self, path: &Path, files: &[PathBuf]) {
        self.0
            .retain(|file, _| file == path || files.contains(file));
    }
}

pub(super) fn look(path: &Path) -> Option<(PathBuf, SystemTime, u64)> {
    let real = path.canonicalize().ok()?;
    let found = std::fs::metadata(&real).ok()?;
    Some((real, found.modified().ok()?, found.len()))
}
