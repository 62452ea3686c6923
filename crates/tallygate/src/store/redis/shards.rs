//! Several independent servers, each with a part of the keys. A key belongs to the server with the
//! highest score (rendezvous hashing): a server that is added or removed moves only its own keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use tracing::{info, warn};

use super::connector::Connector;
use super::error::RedisError;
use super::keys::{self, hash, mix};
use super::reconnect::{Node, Target};
use super::url::Host;

/// The maximum number of shards.
const MAX_SHARDS: usize = 1_024;
/// Between two reads of a file with the list.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Longer files are rejected.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// Where the list of shards comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShardList {
    Fixed(Vec<Host>),
    /// Read again when it changes.
    File(PathBuf),
}

pub(super) struct Shards {
    connector: Arc<Connector>,
    list: RwLock<Arc<[Shard]>>,
}

pub(super) struct Shard {
    pub(super) host: Host,
    pub(super) node: Arc<Node>,
    /// Identifies it in scores.
    hash: u64,
}

impl Shards {
    /// Connects to the shards in the background, and watches the file with their list if there is
    /// one.
    ///
    /// # Errors
    /// If a file cannot be read or lists no valid shards.
    pub(super) fn new(
        connector: Arc<Connector>,
        list: &ShardList,
    ) -> Result<Arc<Self>, RedisError> {
        let hosts = match list {
            ShardList::Fixed(hosts) => hosts.clone(),
            ShardList::File(path) => {
                read_list(path).map_err(|problem| RedisError::invalid_url(&problem))?
            }
        };
        let shards = Arc::new(Shards {
            connector,
            list: RwLock::new(Arc::new([])),
        });
        shards.replace(hosts);
        if let ShardList::File(path) = list {
            let (shards, path) = (Arc::downgrade(&shards), path.clone());
            let runtime = &shards
                .upgrade()
                .map(|shards| shards.connector.runtime.clone());
            if let Some(runtime) = runtime {
                runtime.spawn(watch(shards, path));
            }
        }
        Ok(shards)
    }

    /// The shards now.
    pub(super) fn list(&self) -> Arc<[Shard]> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&list)
    }

    /// The position of a key's shard.
    pub(super) fn position(&self, key: &[u8]) -> u16 {
        let list = self.list();
        u16::try_from(highest(list.iter().map(|shard| shard.hash), key)).unwrap_or(0)
    }

    /// The server of a key.
    pub(super) fn node(&self, key: &[u8]) -> Arc<Node> {
        let list = self.list();
        let at = highest(list.iter().map(|shard| shard.hash), key);
        Arc::clone(&list[at].node)
    }

    /// Connects to new shards, and leaves removed ones. Others keep their connections.
    fn replace(&self, hosts: Vec<Host>) {
        let known = self.list();
        let shard = |host: Host| {
            let known = known.iter().find(|shard| shard.host == host);
            let node = match known {
                Some(known) => Arc::clone(&known.node),
                None => Node::connect(Arc::clone(&self.connector), Target::Shard(host.clone())),
            };
            let hash = hash(host.to_string().as_bytes());
            Shard { host, node, hash }
        };
        let list: Arc<[Shard]> = hosts.into_iter().map(shard).collect();
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
    }
}

/// The position of the shard with the highest score for a key. Keys of the same tag share a shard.
pub(super) fn highest(shards: impl Iterator<Item = u64>, key: &[u8]) -> usize {
    let key = hash(keys::tag(key));
    let scores = shards.map(|shard| mix(shard ^ key)).enumerate();
    // Equal scores: the first.
    let highest = scores.reduce(|best, next| if next.1 > best.1 { next } else { best });
    highest.map_or(0, |(at, _)| at)
}

/// Checks a list of shards.
///
/// # Errors
/// What is wrong with it.
pub(super) fn validate(hosts: &[Host]) -> Result<(), String> {
    if hosts.is_empty() {
        return Err("it lists no shard".to_owned());
    }
    if hosts.len() > MAX_SHARDS {
        return Err(format!("{} shards are more than {MAX_SHARDS}", hosts.len()));
    }
    for (at, host) in hosts.iter().enumerate() {
        if hosts[..at].contains(host) {
            return Err(format!("the shard {host} is there twice"));
        }
    }
    Ok(())
}

/// Reads a list: hosts separated by commas or white space; `#` starts a comment.
fn read_list(path: &Path) -> Result<Vec<Host>, String> {
    let shown = path.display();
    let size = fs::metadata(path).map(|file| file.len());
    let size = size.map_err(|error| format!("the list of shards `{shown}`: {error}"))?;
    if size > MAX_FILE_BYTES {
        return Err(format!(
            "the list of shards `{shown}` has {size} bytes, more than {MAX_FILE_BYTES}"
        ));
    }
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("the list of shards `{shown}`: {error}"))?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let names = lines.flat_map(|line| line.split([',', ' ', '\t']));
    let hosts = names.filter(|name| !name.is_empty()).map(|name| {
        Host::parse(name, super::url::DEFAULT_PORT).ok_or_else(|| {
            format!("the list of shards `{shown}` has a host that is not `name` or `name:port`")
        })
    });
    let hosts: Vec<Host> = hosts.collect::<Result<_, String>>()?;
    validate(&hosts).map_err(|problem| format!("the list of shards `{shown}`: {problem}"))?;
    Ok(hosts)
}

/// Reads the file again and again. A list that is not valid changes nothing, and is logged once.
async fn watch(shards: Weak<Shards>, path: PathBuf) {
    let mut last_problem = None;
    loop {
        tokio::time::sleep(READ_INTERVAL).await;
        let file = path.clone();
        let read = tokio::task::spawn_blocking(move || read_list(&file)).await;
        let Some(shards) = shards.upgrade() else {
            return;
        };
        match read {
            Ok(Ok(hosts)) => {
                last_problem = None;
                let unchanged = shards.list().iter().map(|shard| &shard.host).eq(&hosts);
                if !unchanged {
                    info!(shards = hosts.len(), "the list of shards has changed");
                    shards.replace(hosts);
                }
            }
            Ok(Err(problem)) if last_problem.as_ref() != Some(&problem) => {
                warn!(%problem, "the list of shards is not valid: the last one stays");
                last_problem = Some(problem);
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shard_hashes(names: &[&str]) -> Vec<u64> {
        names.iter().map(|name| hash(name.as_bytes())).collect()
    }

    fn shard_of<'a>(names: &[&'a str], key: &str) -> &'a str {
        names[highest(shard_hashes(names).into_iter(), key.as_bytes())]
    }

    #[test]
    fn keys_are_spread_evenly() {
        let names = [
            "a:6379",
            "b:6379",
            "c:6379",
            "10.0.0.1:7000",
            "10.0.0.1:7001",
        ];
        let mut counts = [0; 5];
        for key in 0..100_000 {
            let key = format!("tallygate:1:{{user:{key}}}cmin");
            counts[highest(shard_hashes(&names).into_iter(), key.as_bytes())] += 1;
        }
        for count in counts {
            assert!((19_000..21_000).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn a_changed_list_moves_only_the_keys_that_must_move() {
        let before = ["a:1", "b:1", "c:1", "d:1"];
        let after = ["d:1", "a:1", "c:1", "e:1"];
        let mut moved = 0;
        for key in 0..20_000 {
            let key = format!("{{{key}}}");
            let (from, to) = (shard_of(&before, &key), shard_of(&after, &key));
            // The removed shard's keys move anywhere, others only to the new shard.
            assert!(from == to || from == "b:1" || to == "e:1", "{from} {to}");
            moved += usize::from(from != to);
        }
        // A quarter of the old shard's keys go to the new one.
        assert!((6_500..10_000).contains(&moved), "{moved}");
    }

    #[test]
    fn all_limits_of_a_key_share_a_shard() {
        let names = ["a:1", "b:1", "c:1", "d:1"];
        for key in 0..100 {
            let one = shard_of(&names, &format!("tallygate:1:{{{key}}}cmin"));
            let other = shard_of(&names, &format!("tallygate:1:ns:{{{key}}}f1d:login"));
            assert_eq!(one, other);
        }
    }

    /// Processes of different versions must agree.
    #[test]
    fn the_shard_of_a_key_never_changes() {
        let names = ["a:6379", "b:6379", "c:6379"];
        let shards: String = (0..24)
            .map(|key| &shard_of(&names, &format!("{{user:{key}}}"))[..1])
            .collect();
        assert_eq!(shards, "abbccbbcccaababbacbcabcb");
    }

    #[test]
    fn a_list_is_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shards");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            read_list(&path)
        };
        let hosts = read("a:1, b\n# none\nc:3 d:4 # last\n").unwrap();
        let names: Vec<String> = hosts.iter().map(Host::to_string).collect();
        assert_eq!(names, ["a:1", "b:6379", "c:3", "d:4"]);
        assert!(read("").unwrap_err().contains("no shard"));
        assert!(read("a:1\na:1").unwrap_err().contains("a:1 is there twice"));
        assert!(read("a:x").is_err());
        let many: String = (1..=1_025).map(|port| format!("a:{port}\n")).collect();
        assert!(
            read(&many)
                .unwrap_err()
                .contains("1025 shards are more than 1024")
        );
        assert!(read_list(&folder.path().join("none")).is_err());
    }
}
