//! The headers that rules read, and their other spellings.

use std::borrow::Cow;
use std::collections::HashSet;

use ::http::header::HeaderName;

use super::{CoalesceBy, Part, Rule, Source};

/// The headers that rules read: in matchers, keys, shares, tiers, costs and claims.
///
/// To CGI, WSGI and PHP, `X_Api_Key` is `X-Api-Key`. A server that forwards requests to such an
/// application must not forward what rules would have read, had it been spelled like this.
#[derive(Clone, Debug, Default)]
pub struct HeaderNames {
    names: HashSet<HeaderName>,
    /// With `-` for everything that is neither a letter nor a digit.
    folded: HashSet<String>,
}

impl HeaderNames {
    pub(super) fn add(&mut self, rule: &Rule) {
        let coalesce = match &rule.coalesce {
            Some(CoalesceBy::Parts(parts)) => &parts[..],
            Some(CoalesceBy::Credentials) | None => &[],
        };
        let members = rule.share.iter().flat_map(|share| &share.by);
        let parts = rule.key.iter().chain(members).chain(coalesce);
        let sources = parts.flat_map(Part::sources);
        let keys = sources.filter_map(|source| match source {
            Source::Header(name) | Source::Claim { header: name, .. } => Some(name),
            _ => None,
        });
        let matched = rule.matcher.headers.iter().map(|header| &header.name);
        let others = rule.proxy_headers().map(|(_, name)| name);
        for name in keys.chain(matched).chain(others) {
            self.names.insert(name.clone());
            self.folded.insert(fold(name).into_owned());
        }
    }

    /// Whether rules read a header, or one that some applications take it for.
    pub fn contains_in_any_spelling(&self, name: &HeaderName) -> bool {
        !self.folded.is_empty() && self.folded.contains(&*fold(name))
    }

    /// Whether rules do not read a header, but one that some applications take it for.
    pub fn is_respelled(&self, name: &HeaderName) -> bool {
        let is_unusual = !name.as_str().bytes().all(is_usual);
        is_unusual && self.contains_in_any_spelling(name) && !self.names.contains(name)
    }
}

fn is_usual(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn fold(name: &HeaderName) -> Cow<'_, str> {
    let name = name.as_str();
    match name.bytes().all(is_usual) {
        true => name.into(),
        false => name
            .replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Quotas, RuleLimits, Share};

    #[test]
    fn other_spellings_of_a_header_are_found() {
        let quotas = Quotas::new(vec![(None, "1/s".parse().unwrap())]).unwrap();
        let mut rule = Rule::with_limits("a".parse().unwrap(), RuleLimits::Same(quotas));
        rule.key = vec![
            Part::new(Source::Header(HeaderName::from_static("x-api-key"))),
            Part::new(Source::Header(HeaderName::from_static("x_own"))),
        ];
        rule.share = Some(Share::by_header("x-tenant"));
        let mut names = HeaderNames::default();
        let name = HeaderName::from_static;
        assert!(!names.contains_in_any_spelling(&name("x-api-key")));
        names.add(&rule);
        for (header, is_read, is_respelled) in [
            ("x-api-key", true, false),
            ("x_api_key", true, true),
            ("x_tenant", true, true),
            ("x-api_key", true, true),
            ("x.api.key", true, true),
            ("x_own", true, false),
            ("x-own", true, false),
            ("x.own", true, true),
            ("xapikey", false, false),
            ("x__api_key", false, false),
        ] {
            let header = name(header);
            assert_eq!(names.contains_in_any_spelling(&header), is_read, "{header}");
            assert_eq!(names.is_respelled(&header), is_respelled, "{header}");
        }
    }
}
