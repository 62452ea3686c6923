//! Parses a store's URL.

use std::fmt;
use std::path::{Path, PathBuf};

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

use super::error::{RedisError, StoreFailure};
use super::shards::{self, ShardList};
use super::{Topology, UrlSummary};

pub(super) const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// A parsed URL: the servers and the credentials.
#[derive(Clone)]
pub(super) struct StoreUrl {
    pub(super) endpoints: Endpoints,
    pub(super) tls: bool,
    username: Option<String>,
    password: Option<String>,
    sentinel_username: Option<String>,
    sentinel_password: Option<String>,
    pub(super) database: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoints {
    Single(Host),
    Socket(PathBuf),
    Sentinel {
        sentinels: Vec<Host>,
        master: String,
    },
    Cluster(Vec<Host>),
    Shards(ShardList),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl Host {
    pub(super) fn parse(text: &str, port: u16) -> Option<Self> {
        let (name, after) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => match text.find(':') {
                Some(colon) => text.split_at(colon),
                None => (text, ""),
            },
        };
        let port = match after.strip_prefix(':') {
            Some(digits) => digits.parse().ok().filter(|&port| port > 0)?,
            None if after.is_empty() => port,
            None => return None,
        };
        let valid = |c: char| !c.is_whitespace() && !c.is_control() && c != '@';
        let is_name = !name.is_empty() && name.chars().all(valid);
        is_name.then(|| Host {
            name: name.to_owned(),
            port,
        })
    }
}

impl StoreUrl {
    /// Parses a URL. Errors never repeat the URL: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, RedisError> {
        let invalid = |reason: &str| RedisError::invalid_url(reason);
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| invalid("it has no `://`"))?;
        let (rest, options) = match rest.split_once('?') {
            Some((rest, options)) if scheme.ends_with("-sentinel") => (rest, options),
            Some((rest, options)) if scheme.ends_with("+shards") => (rest, options),
            _ => (rest, ""),
        };
        if rest.contains(['?', '#']) || options.contains('#') {
            return Err(invalid(
                "options after `?` or `#` are not supported; set them in code",
            ));
        }
        let is_shards = scheme.ends_with("+shards");
        let (sentinel_username, sentinel_password) = match is_shards {
            true => (None, None),
            false => sentinel_account(options)?,
        };
        let (before, path) = match scheme {
            "unix" | "redis+unix" | "valkey+unix" => match rest.rfind('@') {
                Some(at) => (&rest[..=at], &rest[at + 1..]),
                None => ("", rest),
            },
            _ => rest.split_once('/').unwrap_or((rest, "")),
        };
        let (account, hosts) = before.rsplit_once('@').unwrap_or(("", before));
        let (username, password) = match account.split_once(':') {
            Some((user, password)) => (decode(user)?, decode(password)?),
            None => (decode(account)?, None),
        };
        let mut parsed = StoreUrl {
            endpoints: Endpoints::Cluster(Vec::new()),
            tls: scheme.starts_with("rediss") || scheme.starts_with("valkeys"),
            username,
            password,
            sentinel_username,
            sentinel_password,
            database: 0,
        };
        let list = |port: u16| {
            let parsed = hosts.split(',').map(|text| Host::parse(text, port));
            let list: Option<Vec<Host>> = parsed.collect();
            list.ok_or_else(|| invalid("a host is not `name`, `name:port` or `[address]:port`"))
        };
        let database = |text: &str| match text {
            "" => Ok(0),
            digits => digits
                .parse::<u16>()
                .map(i64::from)
                .map_err(|_| invalid("the database after `/` is not a number")),
        };
        parsed.endpoints = match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" => {
                parsed.database = database(path)?;
                let mut hosts = list(DEFAULT_PORT)?;
                if hosts.len() > 1 {
                    return Err(invalid(
                        "several hosts need redis-cluster:// or redis-sentinel://",
                    ));
                }
                Endpoints::Single(hosts.remove(0))
            }
            "unix" | "redis+unix" | "valkey+unix" => {
                if !path.starts_with('/') {
                    return Err(invalid(
                        "a socket needs an absolute path: unix:///run/redis.sock",
                    ));
                }
                Endpoints::Socket(PathBuf::from(path))
            }
            "redis-sentinel" | "rediss-sentinel" | "valkey-sentinel" | "valkeys-sentinel" => {
                let (master, number) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(invalid(
                        "the master's name is missing: redis-sentinel://host:26379/mymaster",
                    ));
                }
                parsed.database = database(number)?;
                Endpoints::Sentinel {
                    sentinels: list(DEFAULT_SENTINEL_PORT)?,
                    master: master.to_owned(),
                }
            }
            "redis-cluster" | "rediss-cluster" | "valkey-cluster" | "valkeys-cluster" => {
                if database(path)? != 0 {
                    return Err(invalid("a cluster has only database 0"));
                }
                Endpoints::Cluster(list(DEFAULT_PORT)?)
            }
            "redis+shards" | "rediss+shards" | "valkey+shards" | "valkeys+shards" => {
                parsed.database = database(path)?;
                Endpoints::Shards(match shard_file(options)? {
                    Some(_) if !hosts.is_empty() => {
                        return Err(invalid("shards are either listed or read from a file"));
                    }
                    Some(path) => ShardList::File(path),
                    None => {
                        let hosts = list(DEFAULT_PORT)?;
                        shards::validate(&hosts).map_err(|problem| invalid(&problem))?;
                        ShardList::Fixed(hosts)
                    }
                })
            }
            _ => {
                return Err(invalid(
                    "the scheme is none of redis, rediss, unix, redis-sentinel, rediss-sentinel, \
                     redis-cluster, rediss-cluster, redis+shards, rediss+shards",
                ));
            }
        };
        Ok(parsed)
    }

    /// Everything but the password.
    pub(super) fn summary(&self) -> UrlSummary {
        let (topology, name) = match &self.endpoints {
            Endpoints::Single(host) => (Topology::Single, host.to_string()),
            Endpoints::Socket(path) => (Topology::Socket, path.display().to_string()),
            Endpoints::Sentinel { master, .. } => (Topology::Sentinel, master.clone()),
            Endpoints::Cluster(seeds) => {
                let names: Vec<String> = seeds.iter().map(Host::to_string).collect();
                (Topology::Cluster, names.join(","))
            }
            Endpoints::Shards(ShardList::Fixed(hosts)) => {
                let names: Vec<String> = hosts.iter().map(Host::to_string).collect();
                (Topology::Shards, names.join(","))
            }
            Endpoints::Shards(ShardList::File(path)) => {
                (Topology::Shards, path.display().to_string())
            }
        };
        UrlSummary {
            name,
            user: self.username.clone(),
            topology,
            encrypted: self.tls,
        }
    }

    /// Connection parameters for one of the servers.
    pub(super) fn info(&self, host: &Host) -> Result<ConnectionInfo, StoreFailure> {
        let addr = if self.tls {
            ConnectionAddr::TcpTls {
                host: host.name.clone(),
                port: host.port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host.name.clone(), host.port)
        };
        self.connection_info(addr)
    }

    pub(super) fn socket_info(&self, path: &Path) -> Result<ConnectionInfo, StoreFailure> {
        self.connection_info(ConnectionAddr::Unix(path.to_owned()))
    }

    /// Connection parameters for a sentinel, with its own credentials.
    pub(super) fn sentinel_info(&self, host: &Host) -> Result<ConnectionInfo, StoreFailure> {
        let sentinel = StoreUrl {
            username: self.sentinel_username.clone(),
            password: self.sentinel_password.clone(),
            database: 0,
            ..self.clone()
        };
        sentinel.info(host)
    }

    fn connection_info(&self, addr: ConnectionAddr) -> Result<ConnectionInfo, StoreFailure> {
        // Only RESP3 reports the end of a connection.
        let mut settings = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(ProtocolVersion::RESP3);
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let info = addr
            .into_connection_info()
            .map_err(|_| StoreFailure::Rejected("ERR"))?;
        Ok(info.set_redis_settings(settings.set_lib_name("tallygate", env!("CARGO_PKG_VERSION"))))
    }
}

/// Parses `sentinel_user=…&sentinel_password=…`.
fn sentinel_account(options: &str) -> Result<(Option<String>, Option<String>), RedisError> {
    let (mut user, mut password) = (None, None);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sentinel_user", text)) if user.is_none() => user = Some(decode(text)?),
            Some(("sentinel_password", text)) if password.is_none() => {
                password = Some(decode(text)?);
            }
            _ => {
                return Err(RedisError::invalid_url(
                    "an option after `?` is neither `sentinel_user` nor `sentinel_password`, or is \
                     there twice",
                ));
            }
        }
    }
    Ok((user.flatten(), password.flatten()))
}

/// Parses `file=…`.
fn shard_file(options: &str) -> Result<Option<PathBuf>, RedisError> {
    match options.split_once('=') {
        None if options.is_empty() => Ok(None),
        Some(("file", path)) => match decode(path)? {
            Some(path) if path.starts_with('/') => Ok(Some(PathBuf::from(path))),
            _ => Err(RedisError::invalid_url(
                "the file with the list of shards needs an absolute path: \
                 redis+shards://?file=/etc/tallygate/shards",
            )),
        },
        _ => Err(RedisError::invalid_url(
            "the option after `?` is not `file`: redis+shards://?file=/etc/tallygate/shards",
        )),
    }
}

/// Percent-decodes a user name or password; an empty one is `None`.
fn decode(text: &str) -> Result<Option<String>, RedisError> {
    let invalid =
        || RedisError::invalid_url("the user or password has a `%` not followed by two hex digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(invalid());
        };
        bytes.push((high << 4 | low) as u8);
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid())?;
    Ok((!text.is_empty()).then_some(text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn endpoints(url: &str) -> Endpoints {
        StoreUrl::parse(url)
            .unwrap_or_else(|error| panic!("{url}: {error}"))
            .endpoints
    }

    fn host(name: &str, port: u16) -> Host {
        Host {
            name: name.into(),
            port,
        }
    }

    #[test]
    fn each_topology_has_a_scheme() {
        assert_eq!(endpoints("redis://a"), Endpoints::Single(host("a", 6379)));
        assert_eq!(endpoints("rediss://a:1/3"), Endpoints::Single(host("a", 1)));
        assert_eq!(
            endpoints("redis://[::1]:7"),
            Endpoints::Single(host("::1", 7))
        );
        assert_eq!(
            endpoints("unix:///run/x.sock"),
            Endpoints::Socket("/run/x.sock".into())
        );
        assert_eq!(
            endpoints("redis-sentinel://a,b:2/main/4"),
            Endpoints::Sentinel {
                sentinels: vec![host("a", 26379), host("b", 2)],
                master: "main".into()
            }
        );
        assert_eq!(
            endpoints("redis-cluster://a:1,b:2,c"),
            Endpoints::Cluster(vec![host("a", 1), host("b", 2), host("c", 6379)])
        );
    }

    #[test]
    fn credentials_may_hold_any_character() {
        let url = StoreUrl::parse("rediss://us%40er:p%3Aa:ss@host:1/2").unwrap();
        assert_eq!(url.username.as_deref(), Some("us@er"));
        assert_eq!(url.password.as_deref(), Some("p:a:ss"));
        assert_eq!(url.database, 2);
        assert!(url.tls);
        let url = StoreUrl::parse("redis://:secret@host").unwrap();
        assert_eq!(
            (url.username, url.password.as_deref()),
            (None, Some("secret"))
        );
    }

    #[test]
    fn sentinels_have_their_own_credentials() {
        let url = "redis-sentinel://:master@a/main/4?sentinel_user=u%26&sentinel_password=p%3D";
        let url = StoreUrl::parse(url).unwrap();
        assert_eq!(url.password.as_deref(), Some("master"));
        assert_eq!(url.sentinel_username.as_deref(), Some("u&"));
        assert_eq!(url.sentinel_password.as_deref(), Some("p="));
        assert_eq!(url.database, 4);
        let url = StoreUrl::parse("redis-sentinel://:master@a/main").unwrap();
        assert_eq!(url.sentinel_password, None);
    }

    #[test]
    fn an_invalid_url_is_rejected_without_repeating_it() {
        for url in [
            "",
            "secret",
            "http://secret",
            "redis://",
            "redis://:secret@",
            "redis://secret:port",
            "redis://a:0",
            "redis://a,secret",
            "redis://a/secret",
            "redis://%zz:secret@a",
            "redis-sentinel://secret",
            "redis-cluster://secret/1",
            "redis://a?password=secret",
            "redis://a?sentinel_password=secret",
            "redis-sentinel://a/main?secret",
            "redis-sentinel://a/main?password=secret",
            "redis-sentinel://a/main?sentinel_password=secret%",
            "redis-sentinel://a/main?sentinel_password=a&sentinel_password=secret",
            "unix://secret",
        ] {
            let error = StoreUrl::parse(url)
                .err()
                .unwrap_or_else(|| panic!("{url} passed"));
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
