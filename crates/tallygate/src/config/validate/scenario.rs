//! Scenarios of `tallygate simulate`.

use std::collections::HashMap;
use std::time::Duration;

use tallygate_core::Quota;

use super::rule::RuleDefaults;
use super::{
    Diagnostics, Integer, OptionalField, OptionalList, Sources, Span, Spanned, Suggestion, Text,
    Validator, code,
};
use crate::config::schema::{Shorthand, scenario as schema};
use crate::limit::Limit;
use crate::simulation::{
    Bound, Clocks, CountedBy, Defect, Fault, FaultKind, Network, Scenario, ScenarioLimit,
    ServiceTime, Stream,
};
use crate::store::RefusalCacheSettings;
use crate::store::simulated::unsupported;

const MAX_NODES: u32 = 1_000;
const MAX_SHARDS: u32 = 100;
const MAX_KEYS: u64 = 10_000_000;
const MAX_LIMITS: usize = 8;
const MAX_STREAMS: usize = 32;
const MAX_FAULTS: usize = 100;
const MAX_BOUNDS: usize = 100;
const MAX_DRIFT_PPM: u32 = 100_000;
/// A simulation takes about a microsecond for each, and 24 bytes if it is admitted.
const MAX_REQUESTS: f64 = 100_000_000.0;
const MAX_DURATION: Duration = Duration::from_secs(3_600);
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
const MAX_DELAY: Duration = Duration::from_secs(10);
const MAX_SERVICE: Duration = Duration::from_secs(1);
const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);
const DEFAULT_KEYS: u64 = 1_000;
const DEFAULT_SKEW: f64 = 1.0;
const MAX_SKEW: f64 = 5.0;

/// Validates a scenario. `None` if errors are reported.
pub(in crate::config) fn validate_scenario(
    file: &schema::ScenarioFile,
    sources: &Sources,
    suggestions: &[Suggestion],
    diagnostics: &mut Diagnostics,
) -> Option<Scenario> {
    let mut validator = Validator {
        sources,
        suggestions,
        diagnostics,
    };
    let scenario = validator.scenario(file);
    scenario.filter(|_| !diagnostics.has_errors())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Validator<'_> {
    fn scenario(&mut self, file: &schema::ScenarioFile) -> Option<Scenario> {
        let duration = self.time("duration", &file.duration, 1, MAX_DURATION);
        let duration_us = micros(duration.unwrap_or(DEFAULT_DURATION));
        let nodes = self.integer("nodes", &file.nodes, 1..=MAX_NODES);
        let shards = self.integer("shards", &file.shards, 1..=MAX_SHARDS);
        let (nodes, shards) = (nodes.unwrap_or(1), shards.unwrap_or(1));
        let limits = self.scenario_limits(file);
        let default = RuleDefaults::default().on_failure;
        let (on_failure, deadline) = match file.on_failure.value() {
            Some(field) => self.on_failure(field, default),
            None => default,
        };
        let refusal_cache = match file.refusal_cache.value() {
            Some(field) => self.refusal_cache(field),
            None => Some(super::RefusalCacheConfig::default()),
        };
        let traffic = self.traffic(file, duration_us);
        let network = self.network_of(file);
        let drift = file
            .clocks
            .value()
            .and_then(|clocks| self.integer("drift_ppm", &clocks.drift_ppm, 0..=MAX_DRIFT_PPM));
        let service = self.service_time(file);
        let faults = self.faults(file, duration_us, nodes, shards);
        let defects = file.defects.items().iter().filter_map(|one| one.get());
        let defects = defects.map(|defect| match defect {
            schema::Defect::OverloadIsFailure => Defect::OverloadIsFailure,
            schema::Defect::OneBreaker => Defect::OneBreaker,
            schema::Defect::ForgottenRefusals => Defect::ForgottenRefusals,
        });
        let bounds = self.bounds(file, &limits);
        let seed = file.seed.value().map_or(1, |Integer(seed)| *seed);
        Some(Scenario {
            title: file
                .title
                .value()
                .map_or_else(String::new, |text| text.text.clone()),
            seed,
            duration_us,
            nodes,
            shards,
            limits,
            on_failure,
            deadline: deadline.unwrap_or(DEFAULT_DEADLINE),
            refusal_cache: refusal_cache.map(|cache| RefusalCacheSettings {
                max_age: cache.max_age,
                keys: cache.keys,
            }),
            batching: file.batching.value().is_none_or(|flag| flag.0),
            traffic,
            network,
            clocks: Clocks {
                drift_ppm: drift.unwrap_or(0),
            },
            service,
            faults,
            defects: defects.collect(),
            bounds,
        })
    }

    fn scenario_limits(&mut self, file: &schema::ScenarioFile) -> Vec<ScenarioLimit> {
        let items = self.non_empty("limits", &file.limits, "such as `limits: 100/s`");
        let mut limits: Vec<ScenarioLimit> = Vec::new();
        let mut names: HashMap<String, Span> = HashMap::new();
        let spans = items.iter().map(|item| item.span);
        self.max_items("limits", spans, MAX_LIMITS);
        for (number, item) in items.iter().enumerate() {
            let Some(value) = item.get() else { continue };
            let (text, options) = match value {
                Shorthand::Value(text) => (text, None),
                Shorthand::Map(options) => (&options.quota, Some(options)),
            };
            let name = options.and_then(|options| options.name.as_ref());
            let span = name.map_or(item.span, |name| name.span);
            let name = match name.and_then(Spanned::get) {
                Some(name) => name.text.clone(),
                None => format!("limit{}", number + 1),
            };
            if let Some(first) = names.insert(name.clone(), span) {
                self.error(code::DUPLICATE_NAME, span, "duplicate limit name")
                    .related(first, "first used here")
                    .help("bounds tell limits apart by their names");
            }
            let Some(quota) = self.quota(text) else {
                continue;
            };
            let limit = Limit::named(&name, quota);
            if let Some(reason) = unsupported(&quota) {
                let message = format!("`{quota}` cannot be simulated: {reason}");
                self.error(code::CONTRADICTION, text.span, message)
                    .help("use a quota that refuses, such as `token-bucket 10/s burst 20`");
                continue;
            }
            let lease = options.map(|options| &options.lease);
            let limit = self.leased_limit(limit, lease.and_then(Option::as_ref), &quota, text.span);
            let by = options.and_then(|options| options.by.value());
            limits.push(ScenarioLimit {
                name,
                limit,
                by: match by {
                    None | Some(schema::CountedBy::Key) => CountedBy::Key,
                    Some(schema::CountedBy::All) => CountedBy::All,
                },
            });
        }
        limits
    }

    fn leased_limit(
        &mut self,
        limit: Limit,
        field: Option<&Spanned<super::schema::Lease>>,
        quota: &Quota,
        span: Span,
    ) -> Limit {
        let Some(field) = field else { return limit };
        let settings = field.get().and_then(|value| self.lease_settings(value));
        let Some(settings) = settings else {
            return limit;
        };
        self.leasable(&settings, quota, span, Some(field.span));
        limit.clone().lease(settings).unwrap_or(limit)
    }

    fn traffic(&mut self, file: &schema::ScenarioFile, duration_us: u64) -> Vec<Stream> {
        let items = self.non_empty("traffic", &file.traffic, "such as `traffic: 1000/s`");
        self.max_items("streams", items.iter().map(|item| item.span), MAX_STREAMS);
        let streams: Vec<Stream> = items
            .iter()
            .filter_map(|item| self.stream(item.get()?, duration_us))
            .collect();
        let requests: f64 = streams.iter().map(Stream::mean_requests).sum();
        if requests > MAX_REQUESTS {
            let message = format!("about {requests:.0} requests are more than {MAX_REQUESTS:.0}");
            self.error(code::OUT_OF_RANGE, file.traffic.span, message)
                .help("lower the rates, or shorten `duration`");
        }
        streams
    }

    fn stream(&mut self, value: &schema::Traffic, duration_us: u64) -> Option<Stream> {
        let options = match value {
            Shorthand::Value(rate) => {
                return Some(Stream {
                    rate: self.rate(rate)?,
                    keys: DEFAULT_KEYS,
                    first_key: 1,
                    skew: DEFAULT_SKEW,
                    cost: 1,
                    from_us: 0,
                    until_us: duration_us,
                });
            }
            Shorthand::Map(options) => options,
        };
        let rate = self.rate(&options.rate);
        let keys = self.integer("keys", &options.keys, 1..=MAX_KEYS);
        let first_key = self.integer("first_key", &options.first_key, 1..=MAX_KEYS);
        let skew = self.decimal("skew", &options.skew, MAX_SKEW);
        let cost = self.integer("cost", &options.cost, 1..=u32::MAX);
        let from = self.time("from", &options.from, 0, MAX_DURATION);
        let until = self.time("until", &options.until, 1, MAX_DURATION);
        let stream = Stream {
            rate: rate?,
            keys: keys.unwrap_or(DEFAULT_KEYS),
            first_key: first_key.unwrap_or(1),
            skew: skew.unwrap_or(DEFAULT_SKEW),
            cost: cost.unwrap_or(1),
            from_us: from.map_or(0, micros),
            until_us: until.map_or(duration_us, micros).min(duration_us),
        };
        if stream.from_us >= stream.until_us
            && let Some(span) = options.from.span()
        {
            let message = "`from` is not before `until`, or the end of the simulation";
            self.error(code::CONTRADICTION, span, message)
                .help("a stream of traffic begins before it ends");
        }
        Some(stream)
    }

    /// Requests a second.
    fn rate(&mut self, field: &Spanned<Text>) -> Option<f64> {
        let text = field.get()?;
        let parsed = format!("fixed-window {}", text.text).parse::<Quota>();
        let is_rate = text.text.starts_with(|c: char| c.is_ascii_digit());
        let Some(quota) = parsed.ok().filter(|_| is_rate) else {
            let message = format!("invalid rate {}", text.quoted());
            self.error(code::QUOTA, field.span, message)
                .help("a number of requests and a time, such as `1000/s` or `90/min`");
            return None;
        };
        Some(Stream::rate_of(quota.limit(), quota.period_us()))
    }

    fn network_of(&mut self, file: &schema::ScenarioFile) -> Network {
        let mut network = Network {
            delay_us: 200,
            jitter_us: 50,
            loss: 0.0,
        };
        if let Some(options) = file.network.value() {
            if let Some(delay) = self.time("delay", &options.delay, 0, MAX_DELAY) {
                network.delay_us = micros(delay);
            }
            if let Some(jitter) = self.time("jitter", &options.jitter, 0, MAX_DELAY) {
                network.jitter_us = micros(jitter);
            }
            network.loss = self.decimal("loss", &options.loss, 1.0).unwrap_or(0.0);
        }
        network
    }

    fn service_time(&mut self, file: &schema::ScenarioFile) -> ServiceTime {
        let mut service = ServiceTime {
            call_us: 10.0,
            counter_us: 2.0,
        };
        if let Some(options) = file.service.value() {
            if let Some(call) = self.time("call", &options.call, 0, MAX_SERVICE) {
                service.call_us = micros(call) as f64;
            }
            if let Some(counter) = self.time("counter", &options.counter, 0, MAX_SERVICE) {
                service.counter_us = micros(counter) as f64;
            }
        }
        service
    }

    fn faults(
        &mut self,
        file: &schema::ScenarioFile,
        duration_us: u64,
        nodes: u32,
        shards: u32,
    ) -> Vec<Fault> {
        let items = file.faults.items();
        self.max_items("faults", items.iter().map(|item| item.span), MAX_FAULTS);
        let faults = items.iter().filter_map(|item| {
            let options = item.get()?;
            self.fault(options, item.span, duration_us, nodes, shards)
        });
        faults.collect()
    }

    fn fault(
        &mut self,
        options: &schema::FaultOptions,
        span: Span,
        duration_us: u64,
        nodes: u32,
        shards: u32,
    ) -> Option<Fault> {
        let fields = [
            ("kill", &options.kill, nodes),
            ("stop", &options.stop, nodes),
            ("dead", &options.dead, shards),
            ("silent", &options.silent, shards),
            ("fail_over", &options.fail_over, shards),
        ];
        let given = fields.map(|(name, field, _)| (name, field.is_some()));
        self.exactly_one(
            "a fault",
            span,
            &given,
            "such as `{ at: 5s, dead: 1, for: 3s }`",
        )?;
        let at_us = micros(self.time("at", &options.at, 0, MAX_DURATION)?);
        let for_us = match &options.r#for {
            None => 1_000_000,
            some => micros(self.time("for", some, 1, MAX_DURATION)?),
        };
        if at_us > duration_us {
            let message = "the fault begins after the end of the simulation";
            self.error(code::OUT_OF_RANGE, options.at.span, message)
                .help("raise `duration`, or lower `at`");
        }
        let (name, number) = fields
            .into_iter()
            .find_map(|(name, field, max)| Some((name, self.integer(name, field, 1..=max)?)))?;
        if name == "fail_over" && for_us > at_us {
            let message =
                "`for` is longer than `at`: the replica cannot lack writes from before the start";
            self.error(code::CONTRADICTION, span, message)
                .help("lower `for`, which is `1s` by default, or raise `at`");
        }
        let kind = match name {
            "kill" => FaultKind::Kill(number),
            "stop" => FaultKind::Stop(number),
            "dead" => FaultKind::Dead(number - 1),
            "silent" => FaultKind::Silent(number - 1),
            _ => FaultKind::FailOver(number - 1),
        };
        Some(Fault {
            at_us,
            for_us,
            kind,
        })
    }

    fn bounds(&mut self, file: &schema::ScenarioFile, limits: &[ScenarioLimit]) -> Vec<Bound> {
        let items = file.bounds.items();
        self.max_items("bounds", items.iter().map(|item| item.span), MAX_BOUNDS);
        let mut bounds = Vec::new();
        let names = || limits.iter().map(|limit| &*limit.name);
        for item in items {
            let Some(text) = item.get() else { continue };
            let parsed = text.text.trim().parse::<Bound>();
            let known = parsed.and_then(|bound| {
                // A limit with errors has no name here.
                if !limits.is_empty() {
                    bound.validate(names())?;
                }
                Ok(bound)
            });
            let error = match known {
                Ok(bound) => {
                    bounds.push(bound);
                    continue;
                }
                Err(error) => error,
            };
            let mut span = item.span;
            if let Some(start) = self.text_start(span, &text.text) {
                let range = error.span();
                span = Span::new(span.file, start + range.start..start + range.end);
            }
            let message = format!("invalid bound: {}", error.problem());
            self.error(code::UNKNOWN_WORD, span, message)
                .help(error.hint());
        }
        bounds
    }

    /// A duration that may be in microseconds, from so many of them on.
    fn time<'f>(
        &mut self,
        name: &str,
        field: impl Into<Option<&'f Spanned<Text>>>,
        min_us: u64,
        max: Duration,
    ) -> Option<Duration> {
        let field = field.into()?;
        let text = field.get()?;
        let digits = text.text.strip_suffix("us").unwrap_or(&text.text);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let parsed = match text.text.ends_with("us") || text.text == "0" {
            true => digits
                .parse()
                .ok()
                .filter(|_| is_number)
                .map(Duration::from_micros),
            false if matches!(&*text.text, "0ms" | "0s" | "0min") => Some(Duration::ZERO),
            false => super::parse_duration(&text.text),
        };
        let bounds = Duration::from_micros(min_us)..=max;
        if let Some(time) = parsed.filter(|time| bounds.contains(time)) {
            return Some(time);
        }
        let message = match parsed {
            Some(time) if time > max => {
                format!("`{name}` {} is above the maximum of {max:?}", text.quoted())
            }
            Some(_) => format!("`{name}` {} is below the minimum of 1us", text.quoted()),
            None => format!("`{name}` {} is not a duration", text.quoted()),
        };
        self.error(code::DURATION, field.span, message)
            .help("expected a duration such as `200us`, `20ms`, `5s` or `1min30s`");
        None
    }

    /// A decimal number from 0 to `max`.
    fn decimal(&mut self, name: &str, field: &Option<Spanned<Text>>, max: f64) -> Option<f64> {
        let field = field.as_ref()?;
        let text = field.get()?;
        let is_decimal = |byte: u8| byte.is_ascii_digit() || byte == b'.' || byte == b'-';
        let number = text.text.parse::<f64>().ok();
        let number = number.filter(|_| text.text.bytes().all(is_decimal));
        if let Some(number) = number.filter(|number| (0.0..=max).contains(number)) {
            return Some(number);
        }
        let message = match number {
            Some(number) if number > max => {
                format!("`{name}` {} is above the maximum of {max}", text.quoted())
            }
            Some(_) => format!("`{name}` {} is below the minimum of 0", text.quoted()),
            None => format!("`{name}` {} is not a number", text.quoted()),
        };
        self.error(code::OUT_OF_RANGE, field.span, message)
            .help(format!("expected a number from 0 to {max}, such as `0.5`"));
        None
    }
}
