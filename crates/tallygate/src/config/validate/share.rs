//! Who shares the limits of a rule.

use tallygate_core::Weight;

use super::{Span, Spanned, Validator, code, schema};
use crate::config::schema::{Integer, Secret, Table};
use crate::rules::{KeyText, Matcher, Part, RuleLimits, Share};

/// Members with a weight of their own: as many as a shared limit keeps without one.
const MAX_WEIGHTS: usize = 10_000;

impl Validator<'_> {
    /// The members of a rule or a budget with these limits, each quota of which has a span.
    pub(super) fn share(
        &mut self,
        field: &Spanned<Box<schema::Share>>,
        limits: Option<&(RuleLimits, Vec<Vec<Span>>)>,
        matcher: Option<&Matcher>,
    ) -> Option<Share> {
        let share = field.get()?;
        let by = share.by.get()?;
        if by.0.is_empty() {
            self.error(code::NO_VALUE, share.by.span, "`by` is an empty list")
                .help("such as `by: [{ header: x-tenant }]`");
            return None;
        }
        let (by, _) = self.key(by, share.by.span, matcher);
        let default = self.weight("default", &share.default);
        let weights = match (&share.weights, &by) {
            (None, _) => Some(Vec::new()),
            (Some(weights), Some(by)) => self.weights(weights, by),
            (Some(_), None) => None,
        };
        let (limits, spans) = limits?;
        let mut quotas = limits.each().into_iter().flat_map(|quotas| quotas.iter());
        if !quotas.any(|(_, quota)| quota.algorithm().is_shared()) {
            let message = "`share` without a limit that is shared";
            let diagnostic = self.error(code::CONTRADICTION, field.span, message);
            if let Some(span) = spans.iter().flatten().next() {
                diagnostic.related(*span, "not shared");
            }
            diagnostic.help("such as `limits: token-bucket 100/s burst 100 shared`");
            return None;
        }
        Some(Share {
            by: by?,
            weights: weights?,
            default: default?,
        })
    }

    fn weight<'f>(
        &mut self,
        name: &str,
        field: impl Into<Option<&'f Spanned<Integer>>>,
    ) -> Option<Weight> {
        let Some(field) = field.into() else {
            return Some(Weight::ONE);
        };
        let weights = 1..=u32::from(Weight::MAX.get());
        Weight::new(self.integer(name, field, weights)?).ok()
    }

    fn weights(
        &mut self,
        field: &Spanned<Table<Integer, Secret>>,
        by: &[Part],
    ) -> Option<Vec<(KeyText, Weight)>> {
        let [part] = by else {
            let message = format!(
                "`weights` name members by one text, but `by` has {} parts",
                by.len()
            );
            self.error(code::CONTRADICTION, field.span, message)
                .help("tell members apart by one part, or give all of them the same weight");
            return None;
        };
        let entries = &field.get()?.0;
        if let Some((name, _)) = entries.get(MAX_WEIGHTS) {
            let message = format!("more than {MAX_WEIGHTS} weights");
            self.error(code::TOO_MANY, name.span, message);
            return None;
        }
        let mut weights = Vec::new();
        let mut valid = true;
        for (name, weight) in entries {
            let text = name.get().map(|name| name.0.text.as_str());
            let weight = self.weight("weights", weight);
            let (Some(text), Some(weight)) = (text, weight) else {
                valid = false;
                continue;
            };
            if let Some(reason) = part.invalid_text(text) {
                let message = format!("no member has this name: it {reason}");
                self.error(code::KEY, name.span, message);
                valid = false;
                continue;
            }
            weights.push((KeyText::new([text]), weight));
        }
        valid.then_some(weights)
    }
}
