//! Where the servers are: the text of a store's URL, checked once. Knows no connection.

use std::fmt;
use std::path::PathBuf;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

use super::error::RedisError;
use super::{Arrangement, Place};

/// The port of a server that names none.
const PORT: u16 = 6379;
/// The port of a sentinel that names none.
const SENTINEL_PORT: u16 = 26379;

/// How the servers are arranged, and how to sign in to them.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) servers: Servers,
    pub(super) tls: bool,
    username: Option<String>,
    password: Option<String>,
    pub(super) database: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Servers {
    Single(Host),
    Socket(PathBuf),
    Sentinel {
        sentinels: Vec<Host>,
        master: String,
    },
    Cluster(Vec<Host>),
}

/// A name or address, and a port.
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
        let named = !name.is_empty() && name.chars().all(valid);
        named.then(|| Host {
            name: name.to_owned(),
            port,
        })
    }
}

impl Address {
    /// Reads a URL. What it says about a bad one never repeats the URL: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, RedisError> {
        let wrong = |why: &str| RedisError::url(why);
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| wrong("there is no `://` in it"))?;
        if rest.contains(['?', '#']) {
            return Err(wrong(
                "options after `?` or `#` are not known; set them in code",
            ));
        }
        let (before, path) = match scheme {
            "unix" | "redis+unix" | "valkey+unix" => match rest.rfind('@') {
                Some(at) => (&rest[..=at], &rest[at + 1..]),
                None => ("", rest),
            },
            _ => rest.split_once('/').unwrap_or((rest, "")),
        };
        let (account, hosts) = before.rsplit_once('@').unwrap_or(("", before));
        let (username, password) = match account.split_once(':') {
            Some((user, password)) => (decoded(user)?, decoded(password)?),
            None => (decoded(account)?, None),
        };
        let mut address = Address {
            servers: Servers::Cluster(Vec::new()),
            tls: scheme.starts_with("rediss") || scheme.starts_with("valkeys"),
            username,
            password,
            database: 0,
        };
        let list = |port: u16| {
            let each = hosts.split(',').map(|text| Host::parse(text, port));
            let list: Option<Vec<Host>> = each.collect();
            list.ok_or_else(|| wrong("a host is not `name`, `name:port` or `[address]:port`"))
        };
        let database = |text: &str| match text {
            "" => Ok(0),
            digits => digits
                .parse::<u16>()
                .map(i64::from)
                .map_err(|_| wrong("the database after `/` is not a number")),
        };
        address.servers = match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" => {
                address.database = database(path)?;
                let mut hosts = list(PORT)?;
                if hosts.len() > 1 {
                    return Err(wrong(
                        "several hosts need redis-cluster:// or redis-sentinel://",
                    ));
                }
                Servers::Single(hosts.remove(0))
            }
            "unix" | "redis+unix" | "valkey+unix" => {
                if !path.starts_with('/') {
                    return Err(wrong(
                        "a socket needs its whole path: unix:///run/redis.sock",
                    ));
                }
                Servers::Socket(PathBuf::from(path))
            }
            "redis-sentinel" | "rediss-sentinel" | "valkey-sentinel" | "valkeys-sentinel" => {
                let (master, number) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(wrong(
                        "the master's name is missing: redis-sentinel://host:26379/mymaster",
                    ));
                }
                address.database = database(number)?;
                Servers::Sentinel {
                    sentinels: list(SENTINEL_PORT)?,
                    master: master.to_owned(),
                }
            }
            "redis-cluster" | "rediss-cluster" | "valkey-cluster" | "valkeys-cluster" => {
                if database(path)? != 0 {
                    return Err(wrong("a cluster has no databases but 0"));
                }
                Servers::Cluster(list(PORT)?)
            }
            _ => {
                return Err(wrong(
                    "its scheme is none of redis, rediss, unix, redis-sentinel, rediss-sentinel, \
                     redis-cluster, rediss-cluster",
                ));
            }
        };
        Ok(address)
    }

    /// What may be told of it: everything but the password.
    pub(super) fn place(&self) -> Place {
        let list = |hosts: &[Host]| {
            let each: Vec<String> = hosts.iter().map(Host::to_string).collect();
            each.join(",")
        };
        let (arrangement, name) = match &self.servers {
            Servers::Single(host) => (Arrangement::Single, host.to_string()),
            Servers::Socket(path) => (Arrangement::Socket, path.display().to_string()),
            Servers::Sentinel { master, .. } => (Arrangement::Sentinel, master.clone()),
            Servers::Cluster(seeds) => (Arrangement::Cluster, list(seeds)),
        };
        Place {
            name,
            user: self.username.clone(),
            arrangement,
            encrypted: self.tls,
        }
    }

    /// How to connect to one of the servers.
    pub(super) fn info(&self, host: &Host) -> Result<ConnectionInfo, RedisError> {
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
        self.signed_in(addr)
    }

    /// How to connect to a socket.
    pub(super) fn socket_info(&self, path: &std::path::Path) -> Result<ConnectionInfo, RedisError> {
        self.signed_in(ConnectionAddr::Unix(path.to_owned()))
    }

    /// How to connect to a sentinel: the account is the servers', and sentinels have none.
    pub(super) fn sentinel_info(&self, host: &Host) -> Result<ConnectionInfo, RedisError> {
        let nobody = Address {
            username: None,
            password: None,
            database: 0,
            ..self.clone()
        };
        nobody.info(host)
    }

    fn signed_in(&self, addr: ConnectionAddr) -> Result<ConnectionInfo, RedisError> {
        // Only the third version of the protocol tells when a connection ends.
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
            .map_err(|error| RedisError::client(&error))?;
        Ok(info.set_redis_settings(settings.set_lib_name("tallygate", env!("CARGO_PKG_VERSION"))))
    }
}

/// A part of the account, its percent signs resolved; none if it is empty.
fn decoded(text: &str) -> Result<Option<String>, RedisError> {
    let wrong = || RedisError::url("the user or password has a `%` without two hex digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(wrong());
        };
        bytes.push((high << 4 | low) as u8);
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    Ok((!text.is_empty()).then_some(text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn servers(url: &str) -> Servers {
        Address::parse(url)
            .unwrap_or_else(|error| panic!("{url}: {error}"))
            .servers
    }

    fn host(name: &str, port: u16) -> Host {
        Host {
            name: name.into(),
            port,
        }
    }

    #[test]
    fn every_arrangement_has_a_scheme() {
        assert_eq!(servers("redis://a"), Servers::Single(host("a", 6379)));
        assert_eq!(servers("rediss://a:1/3"), Servers::Single(host("a", 1)));
        assert_eq!(servers("redis://[::1]:7"), Servers::Single(host("::1", 7)));
        assert_eq!(
            servers("unix:///run/x.sock"),
            Servers::Socket("/run/x.sock".into())
        );
        assert_eq!(
            servers("redis-sentinel://a,b:2/main/4"),
            Servers::Sentinel {
                sentinels: vec![host("a", 26379), host("b", 2)],
                master: "main".into()
            }
        );
        assert_eq!(
            servers("redis-cluster://a:1,b:2,c"),
            Servers::Cluster(vec![host("a", 1), host("b", 2), host("c", 6379)])
        );
    }

    #[test]
    fn the_account_may_hold_anything() {
        let address = Address::parse("rediss://us%40er:p%3Aa:ss@host:1/2").unwrap();
        assert_eq!(address.username.as_deref(), Some("us@er"));
        assert_eq!(address.password.as_deref(), Some("p:a:ss"));
        assert_eq!(address.database, 2);
        assert!(address.tls);
        let address = Address::parse("redis://:secret@host").unwrap();
        assert_eq!(
            (address.username, address.password.as_deref()),
            (None, Some("secret"))
        );
    }

    #[test]
    fn a_bad_url_is_refused_without_repeating_it() {
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
            "unix://secret",
        ] {
            let error = Address::parse(url)
                .err()
                .unwrap_or_else(|| panic!("{url} passed"));
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
