//! The limits of rules: quotas and tiers.

use super::clients::KeyShape;
use super::{OneOrMany, OptionalField, Span, Spanned, Text, Validator, code, schema};
use crate::config::diagnostic::did_you_mean;
use crate::config::schema::{Shorthand, Table};
use crate::rules::{KeyText, Name, Quotas, QuotasError, RuleLimits, TierBy, Tiers};

/// The fields of a rule or a budget with its limits.
pub(super) struct LimitFields<'f> {
    /// What messages call the mapping.
    pub(super) shown: &'static str,
    pub(super) span: Span,
    pub(super) limits: &'f Option<Spanned<OneOrMany<schema::Limit>>>,
    pub(super) tier: &'f Option<Spanned<schema::Tier>>,
    pub(super) tiers: &'f Option<Spanned<Table<OneOrMany<schema::Limit>>>>,
    pub(super) share: &'f Option<Spanned<Box<schema::Share>>>,
}

impl Validator<'_> {
    /// The limits of a rule or a budget, and the span of each quota of each tier.
    pub(super) fn limits(
        &mut self,
        fields: &LimitFields<'_>,
        shape: KeyShape<'_>,
    ) -> Option<(RuleLimits, Vec<Vec<Span>>)> {
        let (shown, span) = (fields.shown, fields.span);
        match (fields.limits, fields.tier, fields.tiers) {
            (Some(limits), None, None) => {
                let (quotas, spans) = self.quotas(limits)?;
                return Some((RuleLimits::Same(quotas), vec![spans]));
            }
            (None, Some(tier), Some(tiers)) => {
                let (tiers, spans) = self.tiers(tier, tiers, shape)?;
                return Some((RuleLimits::Tiered(tiers), spans));
            }
            // An unknown field with a suggestion has been reported.
            (None, None, None) if self.suggestions.contains(&(span, "limits")) => {}
            (None, None, None) => {
                let message = format!("missing field `limits` in {shown}");
                self.error(code::MISSING_FIELD, span, message)
                    .help("such as `limits: 100/min`, or `tier` and `tiers`");
            }
            (None, Some(tier), None) => {
                self.error(code::MISSING_FIELD, tier.span, "`tier` requires `tiers`")
                    .help("such as `tiers: { free: 100/h, pro: 10000/h }`");
            }
            (None, None, Some(tiers)) => {
                self.error(code::MISSING_FIELD, tiers.span, "`tiers` requires `tier`")
                    .help("such as `tier: { header: x-plan, default: free }`");
            }
            (Some(limits), _, _) => {
                let message = "expected either `limits`, or `tier` and `tiers`";
                self.error(code::CONTRADICTION, limits.span, message)
                    .help("move limits for all clients to a rule of their own");
            }
        }
        None
    }

    pub(super) fn quotas(
        &mut self,
        field: &Spanned<OneOrMany<schema::Limit>>,
    ) -> Option<(Quotas, Vec<Span>)> {
        let limits = &field.get()?.0;
        let mut quotas = Vec::new();
        let mut spans = Vec::new();
        for limit in limits {
            let (name, quota) = match limit.get() {
                None => continue,
                Some(Shorthand::Value(quota)) => (None, quota),
                Some(Shorthand::Map(limit)) => (limit.name.as_ref(), &limit.quota),
            };
            let span = quota.span;
            let quota = self.quota(quota);
            let name = match name {
                None => Some(None),
                Some(name) => self.name(name).map(Some),
            };
            if let (Some(name), Some(quota)) = (name, quota) {
                quotas.push((name, quota));
                spans.push(span);
            }
        }
        if quotas.len() < limits.len() {
            return None;
        }
        let error = match Quotas::new(quotas) {
            Ok(quotas) => return Some((quotas, spans)),
            Err(error) => error,
        };
        let (code, span, help) = match &error {
            QuotasError::Empty => (code::NO_VALUE, field.span, "such as `limits: 100/min`"),
            QuotasError::TooMany { .. } => (
                code::TOO_MANY,
                field.span,
                "two or three are usually enough",
            ),
            QuotasError::SameName { index, .. } => (
                code::DUPLICATE_LIMIT,
                spans[*index],
                "name one of them: `{ quota: 10/s, name: burst }`, or remove the looser one",
            ),
        };
        // Without the hint of the error.
        let message = error.to_string();
        let message = message.split("; ").next().unwrap_or_default();
        self.error(code, span, message).help(help);
        None
    }

    fn tiers(
        &mut self,
        tier: &Spanned<schema::Tier>,
        tiers: &Spanned<Table<OneOrMany<schema::Limit>>>,
        shape: KeyShape<'_>,
    ) -> Option<(Tiers, Vec<Vec<Span>>)> {
        let entries = tiers.get().map_or(&[][..], |table| &table.0);
        let mut list = Vec::new();
        let mut spans = Vec::new();
        for (name, limits) in entries {
            let (name, quotas) = (self.name(name), self.quotas(limits));
            if let (Some(name), Some((quotas, quota_spans))) = (name, quotas) {
                list.push((name, quotas));
                spans.push(quota_spans);
            }
        }
        if tiers.get().is_some_and(|table| table.0.is_empty()) {
            self.error(code::NO_VALUE, tiers.span, "`tiers` is empty");
        }
        let lookup = tier.get()?;
        // Including tiers that are invalid themselves.
        let known = entries.iter().filter_map(|(name, _)| name.get());
        let known: Vec<&str> = known.map(|name| name.text.as_str()).collect();
        let by = self.tier_by(lookup, tier.span, &known, shape);
        let default = self.tier_name(&lookup.default, &known);
        if list.is_empty() || list.len() < entries.len() {
            return None;
        }
        match Tiers::new(by?, default?, list) {
            Ok(tiers) => Some((tiers, spans)),
            Err(error) => {
                self.error(code::TIER, tier.span, error.to_string());
                None
            }
        }
    }

    fn tier_by(
        &mut self,
        tier: &schema::Tier,
        span: Span,
        known: &[&str],
        shape: KeyShape<'_>,
    ) -> Option<TierBy> {
        let fields = [
            ("header", tier.header.is_some()),
            ("keys", tier.keys.is_some()),
        ];
        let help = "such as `tier: { header: x-plan, default: free }`";
        self.exactly_one("`tier`", span, &fields, help)?;
        if let Some(header) = &tier.header {
            return self.header_name(header).map(TierBy::Header);
        }
        let mut by_key: Vec<(KeyText, Name)> = Vec::new();
        let mut valid = true;
        for (name, keys) in &tier.keys.value()?.0 {
            let name = self.tier_name(name, known);
            valid &= name.is_some() && keys.value.is_some();
            for key in keys.get().map_or(&[][..], |keys| &keys.0) {
                let text = key
                    .get()
                    .and_then(|parts| self.key_text(parts, key.span, shape));
                valid &= text.is_some();
                by_key.extend(text.zip(name.clone()));
            }
        }
        valid.then_some(TierBy::Keys(by_key))
    }

    /// The name of an existing tier.
    fn tier_name(&mut self, field: &Spanned<Text>, known: &[&str]) -> Option<Name> {
        let text = field.get()?;
        if known.contains(&text.text.as_str()) {
            // An invalid name is reported where the tier is defined.
            return text.text.parse().ok();
        }
        let help = did_you_mean(&text.text, known.iter().copied());
        let message = format!("unknown tier {}", text.quoted());
        self.error(code::TIER, field.span, message)
            .maybe_help(help.filter(|_| text.is_literal()));
        None
    }
}
