//! The gateway of a rules file, and what a rule says of calls to upstreams. Knows which values make
//! sense; opens none of the files and connections that they name.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{At, Checker, Problem, Text, code, schema};
use crate::config::field::{OneOrMany, Url, Whole};
use crate::gateway::{Host, Limits, Timeouts, Tls, Upstream};
use tallygate::rules::{Match, SharedBy};

/// The most upstreams.
const MOST_UPSTREAMS: usize = 256;

/// A gateway, as a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewaySetting {
    /// Where it listens.
    pub listen: Option<SocketAddr>,
    /// Where requests go, in turn; may be left to the command line.
    pub upstreams: Vec<Upstream>,
    /// Which `Host` upstreams see.
    pub host: Host,
    /// The authority to trust with upstreams instead of the system's.
    pub upstream_ca_cert: Option<PathBuf>,
    /// TLS with clients.
    pub tls: Option<Tls>,
    /// How long anything may take.
    pub timeouts: Timeouts,
    /// How much of anything there may be.
    pub limits: Limits,
}

impl Checker<'_> {
    pub(super) fn gateway(&mut self, file: &schema::File) -> Option<GatewaySetting> {
        let raw = file.gateway.as_ref()?.get()?;
        let mut setting = GatewaySetting::default();
        if let Some(at) = &raw.listen {
            setting.listen = self.listen(at);
        }
        if let Some(at) = &raw.upstreams {
            setting.upstreams = self.upstreams(at);
        }
        if let Some(host) = raw.host.as_ref().and_then(At::get) {
            setting.host = match host {
                schema::Host::Client => Host::Client,
                schema::Host::Upstream => Host::Upstream,
            };
        }
        let ca_cert = raw.upstream_ca_cert.as_ref();
        setting.upstream_ca_cert = ca_cert.and_then(|at| self.path("upstream_ca_cert", at));
        if let Some(at) = &raw.upstream_ca_cert
            && !setting.upstreams.is_empty()
            && !setting.upstreams.iter().any(Upstream::is_tls)
        {
            let message = "no upstream speaks TLS, so that none has a certificate to check";
            let problem = Problem::error(code::CONTRADICTION, at.span, message);
            self.note(problem.help("write upstreams like https://host, or leave it out"));
        }
        if let Some(tls) = raw.tls.as_ref().and_then(At::get) {
            setting.tls = self.tls(tls);
        }
        if let Some(timeouts) = raw.timeouts.as_ref().and_then(At::get) {
            self.timeouts(timeouts, &mut setting.timeouts);
        }
        if let Some(sizes) = raw.sizes.as_ref().and_then(At::get) {
            self.sizes(sizes, &mut setting.limits);
        }
        Some(setting)
    }

    fn listen(&mut self, at: &At<Text>) -> Option<SocketAddr> {
        let text = at.get()?;
        match text.text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                let message = format!("{} is no address and port", text.shown());
                let problem = Problem::error(code::GATEWAY, at.span, message);
                self.refuse(problem.help("write it like 0.0.0.0:8000 or \"[::]:8000\""))
            }
        }
    }

    fn upstreams(&mut self, at: &At<OneOrMany<Url>>) -> Vec<Upstream> {
        let Some(list) = at.get() else {
            return Vec::new();
        };
        if list.0.is_empty() {
            let message = "an empty list leads nowhere";
            self.note(Problem::error(code::NO_VALUE, at.span, message));
        }
        if let Some(at) = list.0.get(MOST_UPSTREAMS) {
            let message = format!("more than {MOST_UPSTREAMS} upstreams");
            self.note(Problem::error(code::TOO_MANY, at.span, message));
        }
        let mut upstreams = Vec::new();
        for at in list.0.iter().take(MOST_UPSTREAMS) {
            let Some(url) = at.get() else { continue };
            match url.0.text.parse() {
                Ok(upstream) => upstreams.push(upstream),
                Err(_) => {
                    // The URL is not repeated: it may hold a password.
                    let message = "this is no upstream: a scheme, a host and a port, without user, \
                                   path or query";
                    let problem = Problem::error(code::GATEWAY, at.span, message);
                    let hint = "write it like http://10.0.0.7:3000, https://api.internal for TLS, \
                                h2c:// for HTTP/2 or h2:// for HTTP/2 over TLS";
                    self.note(problem.help(hint));
                }
            }
        }
        upstreams
    }

    fn tls(&mut self, raw: &schema::Tls) -> Option<Tls> {
        let certificate = self.path("cert", &raw.cert);
        let key = self.path("key", &raw.key);
        Some(Tls {
            certificate: certificate?,
            key: key?,
        })
    }

    fn timeouts(&mut self, raw: &schema::Timeouts, timeouts: &mut Timeouts) {
        let fields: [(&Option<At<Text>>, &mut Duration); 11] = [
            (&raw.header, &mut timeouts.header),
            (&raw.body_idle, &mut timeouts.body_idle),
            (&raw.keep_alive, &mut timeouts.keep_alive),
            (&raw.write, &mut timeouts.write),
            (&raw.connect, &mut timeouts.connect),
            (&raw.first_byte, &mut timeouts.first_byte),
            (&raw.answer_idle, &mut timeouts.answer_idle),
            (&raw.whole, &mut timeouts.whole),
            (&raw.tunnel_idle, &mut timeouts.tunnel_idle),
            (&raw.pool_idle, &mut timeouts.pool_idle),
            (&raw.down, &mut timeouts.down),
        ];
        for (given, timeout) in fields {
            let given = given.as_ref().and_then(|at| self.duration(at));
            *timeout = given.unwrap_or(*timeout);
        }
    }

    fn sizes(&mut self, raw: &schema::Sizes, limits: &mut Limits) {
        let mut size = |what: &str, at: &Option<At<Whole>>, least: u64, most: u64| {
            self.whole(what, at.as_ref()?, least, most)
        };
        let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(number) = size("connections", &raw.connections, 1, 1 << 20) {
            limits.connections = index(number);
        }
        if let Some(number) = size("head_bytes", &raw.head_bytes, 8 << 10, 1 << 20) {
            limits.head_bytes = index(number);
        }
        if let Some(number) = size("headers", &raw.headers, 1, 10_000) {
            limits.headers = index(number);
        }
        if let Some(number) = size("body_bytes", &raw.body_bytes, 0, 1 << 40) {
            limits.body_bytes = number;
        }
        if let Some(number) = size("streams", &raw.streams, 1, 10_000) {
            limits.streams = u32::try_from(number).unwrap_or(u32::MAX);
        }
        if let Some(number) = size("pool", &raw.pool, 0, 65_536) {
            limits.pool = index(number);
        }
    }

    /// What requests share a call to an upstream by; none if they do not.
    pub(super) fn single_flight(
        &mut self,
        at: &At<schema::SingleFlight>,
        when: &Match,
    ) -> Option<SharedBy> {
        match at.get()? {
            schema::SingleFlight::Text(flag) => flag.get()?.0.then_some(SharedBy::Credentials),
            schema::SingleFlight::Map(map) => {
                let parts = map.by.get()?;
                if parts.0.is_empty() {
                    let message = "`by` has no part, so that every client would be alike";
                    let problem = Problem::error(code::NO_VALUE, map.by.span, message);
                    let hint = "write `by: [{ constant: all }]` if that is meant, or `true`";
                    return self.refuse(problem.help(hint));
                }
                let (parts, _) = self.key(parts, map.by.span, when);
                parts.map(SharedBy::Parts)
            }
        }
    }
}
