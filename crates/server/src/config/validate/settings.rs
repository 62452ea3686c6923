//! What holds for all rules: the store, who clients are, what rules do unless they say otherwise.

use std::fmt;
use std::path::PathBuf;

use tallygate::RedisStore;
use tallygate::http::{ClientAddress, Draft, ForwardedBy, Headers, Network};

use super::rule::Usual;
use super::{At, Checker, Problem, Text, code, schema};
use crate::config::field::{Url, Whole};
use crate::config::lint;
use tallygate::rules::Missing;

/// The version of the format that this release reads.
const VERSION: u64 = 1;
/// The most proxies in a row.
const MOST_HOPS: u64 = 32;

/// Where the counters are kept, as a file says.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreSetting {
    /// `memory`, or the URL of Redis or Valkey. May hold a password.
    pub url: String,
    /// The authority to trust instead of the system's.
    pub ca_cert: Option<PathBuf>,
    /// The certificate to show.
    pub client_cert: Option<PathBuf>,
    /// Its key.
    pub client_key: Option<PathBuf>,
}

impl Default for StoreSetting {
    /// Memory.
    fn default() -> Self {
        StoreSetting {
            url: "memory".into(),
            ca_cert: None,
            client_cert: None,
            client_key: None,
        }
    }
}

impl fmt::Debug for StoreSetting {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSetting").finish_non_exhaustive()
    }
}

impl Checker<'_> {
    pub(super) fn version(&mut self, file: &schema::File) {
        let at = &file.version;
        match at.get() {
            None | Some(Whole(VERSION)) => {}
            Some(Whole(_)) => {
                let message = format!("this release reads version {VERSION} only");
                let problem = Problem::error(code::VERSION, at.span, message);
                self.note(problem.help("write `version: 1`, or use a newer release"));
            }
        }
    }

    /// Settings belong to the main file.
    pub(super) fn only_rules(&mut self, file: &schema::File) {
        let given = [
            ("store", file.store.as_ref().map(|at| at.span)),
            (
                "trusted_proxies",
                file.trusted_proxies.as_ref().map(|at| at.span),
            ),
            ("forwarded", file.forwarded.as_ref().map(|at| at.span)),
            ("ipv6_prefix", file.ipv6_prefix.as_ref().map(|at| at.span)),
            ("headers", file.headers.as_ref().map(|at| at.span)),
            ("on_failure", file.on_failure.as_ref().map(|at| at.span)),
            ("on_missing", file.on_missing.as_ref().map(|at| at.span)),
            ("gateway", file.gateway.as_ref().map(|at| at.span)),
        ];
        for (field, span) in given {
            let Some(span) = span else { continue };
            let message = format!("`{field}` holds for all files, and this one is included");
            let problem = Problem::error(code::INCLUDE, span, message);
            self.note(problem.help(format!("move `{field}` to the file that includes this one")));
        }
    }

    pub(super) fn store(&mut self, file: &schema::File) -> StoreSetting {
        let mut setting = StoreSetting::default();
        let Some(at) = &file.store else {
            return setting;
        };
        let store = match at.get() {
            None => return setting,
            Some(schema::Store::Text(url)) => {
                self.store_url(at.span, url, &mut setting);
                return setting;
            }
            Some(schema::Store::Map(store)) => store,
        };
        if let Some(url) = store.url.get() {
            self.store_url(store.url.span, url, &mut setting);
        }
        let mut file = |field: &str, given: Option<&At<Text>>| self.path(field, given?);
        setting.ca_cert = file("ca_cert", store.ca_cert.as_ref());
        setting.client_cert = file("client_cert", store.client_cert.as_ref());
        setting.client_key = file("client_key", store.client_key.as_ref());
        let lone = match (&store.client_cert, &store.client_key) {
            (Some(given), None) => Some((given.span, "client_cert", "client_key")),
            (None, Some(given)) => Some((given.span, "client_key", "client_cert")),
            (Some(_), Some(_)) | (None, None) => None,
        };
        if let Some((span, given, missing)) = lone {
            let message = format!("`{given}` needs `{missing}` beside it");
            self.note(Problem::error(code::CONTRADICTION, span, message));
        }
        let certificates = [&store.ca_cert, &store.client_cert, &store.client_key];
        if setting.url == "memory"
            && let Some(given) = certificates.into_iter().flatten().next()
        {
            let message = "the memory store has no use for certificates";
            self.note(Problem::error(code::CONTRADICTION, given.span, message));
        }
        setting
    }

    /// A file, from the folder of the one that names it.
    pub(super) fn path(&mut self, field: &str, at: &At<Text>) -> Option<PathBuf> {
        let path = self.filled(field, at)?;
        let folder = self.sources.get(at.span.file).path.as_deref();
        let folder = folder.and_then(|path| path.parent()).map(PathBuf::from);
        Some(folder.unwrap_or_default().join(path))
    }

    fn store_url(&mut self, span: super::Span, url: &Url, setting: &mut StoreSetting) {
        let text = &url.0.text;
        if text != "memory"
            && let Err(error) = RedisStore::builder(text).check_url()
        {
            // Neither repeats the URL.
            let problem = Problem::error(code::STORE, span, error.problem().to_owned());
            let hint = "write `memory` or a URL such as redis://host:6379/0, rediss:// for TLS, \
                        redis-sentinel://host:26379/master or redis-cluster://host1,host2";
            return self.note(problem.help(hint));
        }
        setting.url.clone_from(text);
    }

    pub(super) fn client(&mut self, file: &schema::File) -> ClientAddress {
        let proxies = file.trusted_proxies.as_ref().and_then(At::get);
        let mut client = match proxies {
            None => ClientAddress::peer(),
            Some(schema::Proxies::Text(at)) => ClientAddress::behind(self.proxy(at)),
            Some(schema::Proxies::List(list)) => {
                let networks: Vec<_> = list.iter().filter_map(|at| self.proxy(at)).collect();
                ClientAddress::behind(networks)
            }
            Some(schema::Proxies::Map(map)) => {
                let hops = self.whole("hops", &map.hops, 1, MOST_HOPS).unwrap_or(1);
                ClientAddress::behind_hops(usize::try_from(hops).unwrap_or(1))
            }
        };
        if let Some(forwarded) = file.forwarded.as_ref().and_then(At::get) {
            client = client.header(match forwarded {
                schema::Forwarded::XForwardedFor => ForwardedBy::XForwardedFor,
                schema::Forwarded::Forwarded => ForwardedBy::Forwarded,
            });
        }
        if let Some(at) = &file.forwarded
            && file.trusted_proxies.is_none()
        {
            let message = "`forwarded` is believed of trusted proxies only, and there are none";
            let problem = Problem::error(code::CONTRADICTION, at.span, message);
            self.note(problem.help("say who they are: `trusted_proxies: [10.0.0.0/8]`"));
        }
        if let Some(at) = &file.ipv6_prefix
            && let Some(bits) = self.whole("ipv6_prefix", at, 0, 128)
        {
            client = client.ipv6_prefix(u8::try_from(bits).unwrap_or(128));
            if bits > 64 {
                let message = format!("{bits} bits tell apart addresses of one client");
                let problem = Problem::warning(lint::IPV6_ROTATION, at.span, message);
                let hint = "whoever has one address usually has a whole /64 of them";
                self.note(problem.help(hint));
            }
        }
        client
    }

    fn proxy(&mut self, at: &At<Text>) -> Option<Network> {
        let network = self.network(at)?;
        if at.get().is_some_and(|text| text.text.ends_with("/0")) {
            let message = "everybody is trusted to say who they are";
            let problem = Problem::warning(lint::TRUSTS_EVERYBODY, at.span, message);
            let hint = "name the networks of the proxies only; or `{ hops: 1 }`";
            self.note(problem.help(hint));
        }
        Some(network)
    }

    /// What rules do unless they say otherwise.
    pub(super) fn usual(&mut self, file: &schema::File) -> Usual {
        let plain = Usual::default();
        let headers = file.headers.as_ref().and_then(At::get);
        let on_failure = file.on_failure.as_ref().and_then(At::get);
        Usual {
            headers: headers.map_or(plain.headers, |raw| self.headers(raw, plain.headers)),
            on_failure: on_failure.map_or(plain.on_failure, |raw| {
                self.on_failure(raw, plain.on_failure)
            }),
            on_missing: file
                .on_missing
                .as_ref()
                .and_then(At::get)
                .map_or(plain.on_missing, |raw| missing(*raw)),
        }
    }

    /// Which headers tell clients; what is not given is as it usually is.
    pub(super) fn headers(&mut self, raw: &schema::Headers, usual: Headers) -> Headers {
        let map = match raw {
            schema::Headers::Text(schema::Off::Off) => return Headers::none(),
            schema::Headers::Map(map) => map,
        };
        let mut headers = usual;
        if let Some(on) = map.retry_after.as_ref().and_then(At::get) {
            headers = headers.retry_after(on.0);
        }
        if let Some(on) = map.x_ratelimit.as_ref().and_then(At::get) {
            headers = headers.x_ratelimit(on.0);
        }
        if let Some(version) = map.ratelimit.as_ref().and_then(At::get) {
            headers = headers.draft(match version {
                schema::RateLimit::Latest => Some(Draft::Latest),
                schema::RateLimit::Seven => Some(Draft::Seven),
                schema::RateLimit::Off => None,
            });
        }
        if let Some(at) = &map.jitter
            && let Some(most) = self.duration(at)
        {
            headers = headers.jitter(most);
        }
        headers
    }
}

/// What happens to a request that does not say who it is.
pub(super) fn missing(raw: schema::Missing) -> Missing {
    match raw {
        schema::Missing::Refuse => Missing::Refuse,
        schema::Missing::Pass => Missing::Pass,
        schema::Missing::Shared => Missing::Shared,
    }
}
