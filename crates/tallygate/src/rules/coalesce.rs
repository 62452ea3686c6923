//! Which requests are coalesced into one upstream request.

use super::compile::CompiledRule;
use super::evaluate::Evaluation;
use super::extract::extract;
use super::request_view::RequestView;
use super::{Part, Rules};
use crate::http::Head;
use crate::key::Key;

/// What makes requests identical, besides method, host, path and query.
#[derive(Clone, Debug, PartialEq)]
pub enum CoalesceBy {
    /// Every header that may hold a secret or select the response.
    Credentials,
    /// Only these parts.
    Parts(Vec<Part>),
}

/// What coalesced requests have in common, besides method, host, path and query.
#[derive(Clone, PartialEq, Eq)]
pub enum CoalesceKey {
    /// Every header that may hold a secret or select the response.
    Credentials,
    /// A key.
    Key(Key<'static>),
}

impl Rules {
    /// The key by which requests are coalesced, from the first rule with `coalesce` that applies.
    /// `None` if the request is not coalesced: there is no such rule, a part is missing, or servers
    /// may read the path differently.
    pub fn coalesce_key(&self, head: &Head<'_>) -> Option<CoalesceKey> {
        let coalesces = |compiled: &CompiledRule| compiled.rule.coalesce.is_some();
        if !self.rules.iter().any(coalesces) {
            return None;
        }
        let view = RequestView::new(head, &self.client);
        let (mut at, mut first) = (0.., None);
        self.evaluate(
            &view,
            &mut |compiled: &CompiledRule, evaluation: Evaluation<'_>| {
                let (at, rule) = (at.next(), &compiled.rule);
                let applies = matches!(evaluation, Evaluation::Applies(_)) && !rule.shadow;
                first = first.or(at.filter(|_| applies && rule.coalesce.is_some()));
            },
        );
        let rule = &self.rules[first?].rule;
        let matched = rule
            .matcher
            .check(&view)
            .ok()
            .filter(|found| found.certain)?;
        match rule.coalesce.as_ref()? {
            CoalesceBy::Credentials => Some(CoalesceKey::Credentials),
            CoalesceBy::Parts(parts) => {
                let extracted = extract(parts, &view, matched.route, |_, _, _| {});
                let missing = extracted.missing.is_some();
                (!missing).then_some(CoalesceKey::Key(extracted.key))
            }
        }
    }
}
