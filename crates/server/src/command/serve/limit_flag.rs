//! `--limit`: a rules file of one rule, for every request, by client address.

use tallygate::rules::{Quotas, QuotasError};
use tallygate_core::Quota;

use crate::config::{self, Config, Report};
use crate::error::Failure;

/// Clients see it in `RateLimit-Policy`.
const RULE: &str = "per-client";

/// The quotas of the arguments.
///
/// # Errors
/// When one is invalid, or two of them would share a counter.
pub(super) fn parse(limits: &[String]) -> Result<Vec<Quota>, Failure> {
    let mut quotas: Vec<Quota> = Vec::with_capacity(limits.len());
    for text in limits {
        quotas.push(text.parse().map_err(|error| match Failure::from(error) {
            Failure::Input(text) => Failure::Input(format!("--limit: {text}")),
            other => other,
        })?);
    }
    let unnamed = quotas.iter().map(|quota| (None, *quota)).collect();
    let problem = match Quotas::new(unnamed) {
        Ok(_) | Err(QuotasError::Empty) => return Ok(quotas),
        Err(QuotasError::SameName { name, index }) => {
            let second = &quotas[index];
            let mut same = quotas.iter().filter(|quota| quota.default_name() == name);
            let first = same.next().unwrap_or(second);
            format!(
                "'{first}' and '{second}' have the same algorithm and period, and would share a \
                 counter; leave one out"
            )
        }
        Err(error @ QuotasError::TooMany { .. }) => error.to_string(),
    };
    Err(Failure::Input(format!("--limit: {problem}")))
}

/// The rules that limit every client address to these quotas.
///
/// # Errors
/// What is wrong with them in a rules file.
pub(super) fn load(quotas: &[Quota]) -> Result<Config, Report> {
    let text = format!("version: 1\nrules:\n{}", rule(quotas));
    config::load_bytes("--limit", text.as_bytes(), &|_| None)
}

/// Why the quotas cannot be used beside a rules file, and what to write there instead.
pub(super) fn beside_config(quotas: &[Quota]) -> Failure {
    let rule = rule(quotas);
    Failure::Input(format!(
        "--limit cannot be used with --config; add the limit to the `rules` of the file \
         instead:\n\n{}",
        rule.trim_end()
    ))
}

fn rule(quotas: &[Quota]) -> String {
    let quotas: Vec<String> = quotas.iter().map(ToString::to_string).collect();
    let limits = quotas.join(", ");
    format!("  - name: {RULE}\n    key: [ip]\n    limits: [{limits}]\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_all(limits: &[&str]) -> Result<Vec<Quota>, String> {
        let limits: Vec<String> = limits.iter().map(ToString::to_string).collect();
        parse(&limits).map_err(|failure| failure.text().unwrap().to_owned())
    }

    #[test]
    fn the_limits_are_one_rule_by_address_for_every_request() {
        let quotas = parse_all(&["10/s", "leaky-bucket 5/s queue 9"]).unwrap();
        let config = load(&quotas).unwrap();
        let [rule] = &config.rules.rules[..] else {
            panic!("{config:?}");
        };
        assert!(rule.matcher.is_all() && rule.key.len() == 1);
        assert_eq!(config.warnings.warnings(), 0);
    }

    #[test]
    fn errors_show_the_place_the_value_and_a_correct_quota() {
        for (limit, marked) in [("-1/s", "^^"), ("0/s", "^"), ("ten/s", "^^^"), ("", "")] {
            let text = parse_all(&[limit]).unwrap_err();
            assert!(text.starts_with("--limit: bad quota: "), "{text}");
            assert!(text.contains(limit) && text.contains(marked), "{text}");
            assert!(text.contains("a correct quota is "), "{text}");
        }
    }

    #[test]
    fn limits_that_would_share_a_counter_are_named() {
        let text = parse_all(&["5/min", "10/s", "20/s"]).unwrap_err();
        assert!(
            text.contains("10/s' and 'sliding-window-counter 20/s'"),
            "{text}"
        );
        let many: Vec<String> = (1..100).map(|s| format!("1/{s}s")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let text = parse_all(&many).unwrap_err();
        assert!(text.contains("99 quotas are above"), "{text}");
    }
}
