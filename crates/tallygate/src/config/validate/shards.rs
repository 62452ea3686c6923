//! The list of shards of a store.

use std::collections::HashMap;
use std::path;

use super::settings::StoreConfig;
use super::{OneOrMany, Span, Spanned, Text, Validator, code, schema};
use crate::config::schema::{Shorthand, Url};

const SCHEME: &str = "redis+shards";
const DEFAULT_PORT: &str = ":6379";
/// Bytes of a path that a URL may have as they are.
const PLAIN: &[u8] = b"/-._~";

impl Validator<'_> {
    /// Composes the URL of a store from a list of shards, and a URL without hosts if there is one.
    pub(super) fn shards(
        &mut self,
        options: &schema::StoreOptions,
        field: &Spanned<schema::Shards>,
        config: &mut StoreConfig,
    ) {
        let Some((before, after)) = self.around_shards(&options.url) else {
            return;
        };
        let text = match field.get() {
            None => return,
            Some(Shorthand::Value(list)) => {
                let Some(hosts) = self.hosts(field.span, list) else {
                    return;
                };
                format!("{before}{hosts}{after}")
            }
            Some(Shorthand::Map(options)) => {
                let Some(path) = self.path("file", &options.file) else {
                    return;
                };
                let path = path::absolute(&path).unwrap_or(path);
                let path = percent_encoded(&path.to_string_lossy());
                format!("{before}{after}?file={path}")
            }
        };
        let url = Url(Text {
            text,
            variables: Vec::new(),
        });
        self.store_url(field.span, &url, config);
    }

    /// What is before and after the hosts in a URL that has none.
    fn around_shards(&mut self, field: &Option<Spanned<Url>>) -> Option<(String, String)> {
        let Some(field) = field else {
            return Some((format!("{SCHEME}://"), String::new()));
        };
        let Url(url) = field.get()?;
        let parts = url.text.split_once("://").and_then(|(scheme, rest)| {
            let (before, database) = match rest.split_once('/') {
                Some((before, database)) => (before, format!("/{database}")),
                None => (rest, String::new()),
            };
            let no_host = before.is_empty() || before.ends_with('@');
            let is_plain = no_host && scheme.ends_with("+shards") && !rest.contains('?');
            is_plain.then(|| (format!("{scheme}://{before}"), database))
        });
        if parts.is_none() {
            let message = "`url` beside `shards` has hosts, or is not of shards";
            self.error(code::CONTRADICTION, field.span, message)
                .help("it has scheme, user and database only: `rediss+shards://user:password@/0`");
        }
        parts
    }

    /// The hosts of a list, separated by commas.
    fn hosts(&mut self, span: Span, list: &OneOrMany<Text>) -> Option<String> {
        if list.0.is_empty() {
            self.error(code::NO_VALUE, span, "`shards` is an empty list")
                .help("such as `shards: [a:6379, b:6379]`");
            return None;
        }
        let mut known: HashMap<String, Span> = HashMap::new();
        let mut hosts = Vec::with_capacity(list.0.len());
        let mut valid = true;
        for item in &list.0 {
            let Some(host) = item.get() else {
                valid = false;
                continue;
            };
            let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
            if host.text.is_empty() || !host.text.chars().all(is_host) {
                let message = format!("{} is not a host", host.quoted());
                self.error(code::STORE, item.span, message)
                    .help("expected `name`, `name:port` or `[address]:port`");
                valid = false;
                continue;
            }
            let address = host.text.rsplit(']').next().unwrap_or(&host.text);
            let port = if address.contains(':') {
                ""
            } else {
                DEFAULT_PORT
            };
            let name = format!("{}{port}", host.text);
            if let Some(first) = known.insert(name, item.span) {
                let message = format!("duplicate shard {}", host.quoted());
                self.error(code::STORE, item.span, message)
                    .label("duplicate")
                    .related(first, "first listed here")
                    .help("each server has one part of the keys");
                valid = false;
            }
            hosts.push(host.text.as_str());
        }
        valid.then(|| hosts.join(","))
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) {
            true => encoded.push(char::from(byte)),
            false => encoded += &format!("%{byte:02x}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use crate::config::load_bytes;

    fn url(store: &str) -> Result<String, String> {
        let text = format!("version: 1\nrules: []\nstore: {store}\n");
        let config = load_bytes("rules.yaml", text.as_bytes(), &|_| {
            Some("s3cret".to_owned())
        });
        let config = config.map_err(|report| report.to_string())?;
        Ok(config.store.url)
    }

    #[test]
    fn a_list_and_a_file_of_shards_become_a_url() {
        for (store, expected) in [
            (
                "{ shards: [a:1, b, \"[::1]:7\"] }",
                "redis+shards://a:1,b,[::1]:7",
            ),
            ("{ shards: a }", "redis+shards://a"),
            (
                "{ url: \"rediss+shards://me:${PASSWORD}@/2\", shards: [a, b] }",
                "rediss+shards://me:s3cret@a,b/2",
            ),
            (
                "{ url: valkey+shards://, shards: [a] }",
                "valkey+shards://a",
            ),
            (
                "{ shards: { file: \"/etc/my shards\" } }",
                "redis+shards://?file=/etc/my%20shards",
            ),
        ] {
            assert_eq!(url(store).unwrap(), expected, "{store}");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn a_list_of_shards_that_makes_no_sense_is_an_error() {
        for (store, expected) in [
            ("{ shards: [] }", "`shards` is an empty list"),
            ("{ shards: [a:1, b:1, a:1] }", "duplicate shard `a:1`"),
            ("{ shards: [a, \"a:6379\"] }", "duplicate shard `a:6379`"),
            ("{ shards: [a:x] }", "a host is not"),
            ("{ shards: [\"a b\"] }", "`a b` is not a host"),
            ("{ url: redis://a, shards: [b] }", "`url` beside `shards`"),
            (
                "{ url: redis+shards://a, shards: [b] }",
                "`url` beside `shards`",
            ),
            ("{ keys: 5 }", "expected `url` or `shards`"),
        ] {
            let error = url(store).unwrap_err();
            assert!(error.contains(expected), "{store}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
