//! Leases of rules.

use std::time::Duration;

use tallygate_core::Quota;

use super::{OptionalField, Span, Spanned, Text, Validator, code, schema};
use crate::config::schema::{LeaseMode, Shorthand};
use crate::limit::LeaseSettings;
use crate::rules::{Quotas, RuleLimits};

/// No limit has more units.
const MAX_UNITS: u32 = 1_000_000_000;

impl Validator<'_> {
    /// The leases of a rule with these limits, each quota of which has a span.
    pub(super) fn lease(
        &mut self,
        field: &Option<Spanned<schema::Lease>>,
        limits: Option<(&RuleLimits, &[Vec<Span>])>,
    ) -> Option<LeaseSettings> {
        let (span, value) = field.span().zip(field.value())?;
        let settings = self.lease_settings(value)?;
        let (limits, spans) = limits?;
        for (quotas, spans) in limits.each().into_iter().zip(spans) {
            for ((_, quota), quota_span) in quotas.iter().zip(spans) {
                self.leasable(&settings, quota, *quota_span, Some(span));
            }
        }
        Some(settings)
    }

    pub(super) fn lease_settings(&mut self, value: &schema::Lease) -> Option<LeaseSettings> {
        let mut settings = LeaseSettings::default();
        let options = match value {
            Shorthand::Value(LeaseMode::Off) => return None,
            Shorthand::Value(LeaseMode::On) => return Some(settings),
            Shorthand::Value(LeaseMode::Auto) => return Some(settings.hot_only()),
            Shorthand::Map(options) => options,
        };
        let units = LeaseSettings::MIN_UNITS..=MAX_UNITS;
        if let Some(max) = self.integer("max", &options.max, units) {
            settings.max = Some(max);
        }
        if let Some(hold) = &options.hold
            && let Some(hold) = self.lease_hold(hold)
        {
            settings.hold = hold;
        }
        settings.hot_only = options.hot_only.value().is_some_and(|flag| flag.0);
        Some(settings)
    }

    fn lease_hold(&mut self, field: &Spanned<Text>) -> Option<Duration> {
        let text = field.get()?;
        let bounds = LeaseSettings::MIN_HOLD..=LeaseSettings::MAX_HOLD;
        let hold = super::parse_duration(&text.text).filter(|hold| bounds.contains(hold));
        if hold.is_none() {
            let message = format!("`hold` {} is not 10ms to 1min", text.quoted());
            self.error(code::DURATION, field.span, message)
                .help("how long a process may hold units of a key, such as `1s`");
        }
        hold
    }

    /// Reports limits of an override for leased rules that cannot be leased.
    pub(super) fn leasable_override(
        &mut self,
        settings: &LeaseSettings,
        quotas: &Quotas,
        span: Span,
    ) {
        for (_, quota) in quotas.iter() {
            self.leasable(settings, quota, span, None);
        }
    }

    pub(super) fn leasable(
        &mut self,
        settings: &LeaseSettings,
        quota: &Quota,
        span: Span,
        lease: Option<Span>,
    ) {
        if let Err(error) = settings.validate(quota) {
            let diagnostic = self.error(code::CONTRADICTION, span, error.to_string());
            if let Some(lease) = lease {
                diagnostic.related(lease, "the lease");
            }
            diagnostic.help("remove `lease`, or move this limit to a rule of its own");
        }
    }
}
