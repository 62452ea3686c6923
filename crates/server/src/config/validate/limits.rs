//! How much is allowed: quotas, and tiers of them. Knows which of them cannot go together.

use super::list::Shape;
use super::{At, Checker, Problem, Span, code, schema};
use crate::config::diagnostic::did_you_mean;
use crate::config::field::{OneOrMany, Table};
use tallygate::rules::{KeyText, Limits, Name, Quotas, QuotasError, TierBy, Tiers};

/// Where quotas stand.
type Places = Vec<Span>;

impl Checker<'_> {
    /// A rule's limits, the same for all or by tier, and where each quota stands.
    pub(super) fn limits(
        &mut self,
        raw: &schema::Rule,
        span: Span,
        shape: Shape<'_>,
    ) -> Option<(Limits, Vec<Places>)> {
        match (&raw.limits, &raw.tier, &raw.tiers) {
            (Some(limits), None, None) => {
                let (quotas, places) = self.quotas(limits)?;
                Some((Limits::Same(quotas), vec![places]))
            }
            (None, Some(tier), Some(tiers)) => {
                let (tiers, places) = self.tiers(tier, tiers, shape)?;
                Some((Limits::Tiered(tiers), places))
            }
            // That has been said: something near it is no field.
            (None, None, None) if self.meant.contains(&(span, "limits")) => None,
            (None, None, None) => {
                let problem = Problem::error(code::MISSING_FIELD, span, "a rule needs `limits`");
                self.refuse(problem.help("such as `limits: 100/min`, or `tier` and `tiers`"))
            }
            (None, Some(at), None) => {
                let problem = Problem::error(code::MISSING_FIELD, at.span, "`tier` needs `tiers`");
                self.refuse(problem.help("such as `tiers: { free: 100/h, pro: 10000/h }`"))
            }
            (None, None, Some(at)) => {
                let problem = Problem::error(code::MISSING_FIELD, at.span, "`tiers` needs `tier`");
                let hint = "what says who is in which? `tier: { header: x-plan, default: free }`";
                self.refuse(problem.help(hint))
            }
            (Some(at), _, _) => {
                let message = "a rule has `limits`, or `tier` and `tiers`, not both";
                let problem = Problem::error(code::CONTRADICTION, at.span, message);
                self.refuse(problem.help("limits for everybody are a rule of their own"))
            }
        }
    }

    /// One or several quotas, and where each stands.
    pub(super) fn quotas(&mut self, at: &At<OneOrMany<schema::Limit>>) -> Option<(Quotas, Places)> {
        let limits = &at.get()?.0;
        let mut quotas = Vec::new();
        let mut places = Vec::new();
        for limit in limits {
            let (name, quota) = match limit.get() {
                None => continue,
                Some(schema::Limit::Text(at)) => (None, at),
                Some(schema::Limit::Map(map)) => (map.name.as_ref(), &map.quota),
            };
            let span = quota.span;
            let quota = self.quota(quota);
            let name = match name {
                None => Some(None),
                Some(at) => self.name(at).map(Some),
            };
            if let (Some(name), Some(quota)) = (name, quota) {
                quotas.push((name, quota));
                places.push(span);
            }
        }
        if quotas.len() < limits.len() {
            return None;
        }
        match Quotas::new(quotas) {
            Ok(quotas) => Some((quotas, places)),
            Err(error) => {
                let (code, span, hint) = match &error {
                    QuotasError::Empty => (code::NO_VALUE, at.span, "such as `limits: 100/min`"),
                    QuotasError::TooMany { .. } => {
                        (code::TOO_MANY, at.span, "two or three are usual")
                    }
                    QuotasError::SameName { index, .. } => (
                        code::DUPLICATE_LIMIT,
                        places[*index],
                        "give one a name: `{ quota: 10/s, name: burst }`; or keep the stricter one",
                    ),
                };
                let whole = error.to_string();
                let (message, _) = whole.split_once("; ").unwrap_or((&whole, ""));
                self.refuse(Problem::error(code, span, message).help(hint))
            }
        }
    }

    fn tiers(
        &mut self,
        tier: &At<schema::Tier>,
        tiers: &At<Table<OneOrMany<schema::Limit>>>,
        shape: Shape<'_>,
    ) -> Option<(Tiers, Vec<Places>)> {
        let mut list: Vec<(Name, Quotas)> = Vec::new();
        let mut places = Vec::new();
        let mut right = true;
        let table = tiers.get();
        for (name, limits) in table.map_or(&[][..], |table| &table.0) {
            match (self.name(name), self.quotas(limits)) {
                (Some(name), Some((quotas, spans))) => {
                    list.push((name, quotas));
                    places.push(spans);
                }
                (None, _) | (_, None) => right = false,
            }
        }
        if table.is_some_and(|table| table.0.is_empty()) {
            let message = "`tiers` is empty";
            self.note(Problem::error(code::NO_VALUE, tiers.span, message));
            right = false;
        }
        let lookup = tier.get()?;
        // Names of tiers that are wrong themselves are known names all the same.
        let known: Vec<&str> = table
            .iter()
            .flat_map(|table| &table.0)
            .filter_map(|(name, _)| Some(name.get()?.text.as_str()))
            .collect();
        let by = self.tier_by(lookup, tier.span, &known, shape);
        let default = self.tier_name(&lookup.default, &known);
        if !right || table.is_none() {
            return None;
        }
        match Tiers::new(by?, default?, list) {
            Ok(tiers) => Some((tiers, places)),
            Err(error) => {
                let problem = Problem::error(code::TIER, tier.span, error.to_string());
                self.refuse(problem)
            }
        }
    }

    /// What says which tier a client is in.
    fn tier_by(
        &mut self,
        lookup: &schema::Tier,
        span: Span,
        known: &[&str],
        shape: Shape<'_>,
    ) -> Option<TierBy> {
        match (&lookup.header, &lookup.keys) {
            (Some(header), None) => self.header_name(header).map(TierBy::Header),
            (None, Some(keys)) => {
                let mut listed: Vec<(KeyText, Name)> = Vec::new();
                let mut right = true;
                for (tier, keys) in &keys.get()?.0 {
                    let tier = self.tier_name(tier, known);
                    for key in keys.get().map_or(&[][..], |keys| &keys.0) {
                        let key = key
                            .get()
                            .and_then(|raw| self.key_text(raw, key.span, shape));
                        right &= key.is_some();
                        listed.extend(key.zip(tier.clone()));
                    }
                    right &= tier.is_some() && keys.value.is_some();
                }
                right.then_some(TierBy::Keys(listed))
            }
            (Some(_), Some(_)) => {
                let message = "a tier is found by a `header` or by `keys`, not both";
                self.refuse(Problem::error(code::CONTRADICTION, span, message))
            }
            (None, None) if self.meant_in(span) => None,
            (None, None) => {
                let message = "`tier` needs a `header` or `keys`";
                let problem = Problem::error(code::MISSING_FIELD, span, message);
                self.refuse(problem.help("such as `tier: { header: x-plan, default: free }`"))
            }
        }
    }

    /// The name of a tier that there is.
    fn tier_name(&mut self, at: &At<crate::config::field::Text>, known: &[&str]) -> Option<Name> {
        let text = at.get()?;
        if known.contains(&text.text.as_str()) {
            // What is wrong with the name is told where the tier is.
            return text.text.parse().ok();
        }
        let message = format!("{} is none of the `tiers`", text.shown());
        let near = did_you_mean(&text.text, known.iter().copied()).filter(|_| text.is_public());
        let problem = Problem::error(code::TIER, at.span, message);
        self.refuse(problem.maybe_help(near))
    }
}
