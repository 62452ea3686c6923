//! The cost of a rule's requests: before they are forwarded, and as their responses say.

use super::{OneOrMany, OptionalField, OptionalList, Span, Spanned, Text, Validator, code, schema};
use crate::config::schema::{Integer, Shorthand, Table};
use crate::http::{ActualCost, ActualSource, JsonPath};
use crate::rules::{Cost, CostSource, Glob, Matcher, PathPattern};

/// Every path of a request is matched against all patterns.
const MAX_PATHS: usize = 1_000;
/// Every text is compared with all others.
const MAX_TEXTS: usize = 1_000;
const MAX_SOURCES: usize = 16;

/// One place where a request may say what it costs.
struct SourceFields<'f> {
    header: &'f Option<Spanned<Text>>,
    json: &'f Option<Spanned<Text>>,
    map: &'f Option<Spanned<Table<Integer>>>,
    or: &'f Option<Spanned<OneOrMany<Box<schema::CostFallback>>>>,
}

impl Validator<'_> {
    /// A cost, and where the response says the actual one. The matcher is that of its rule, and the
    /// spans are those of its paths.
    pub(super) fn cost(
        &mut self,
        field: &schema::Cost,
        span: Span,
        matcher: &Matcher,
        path_spans: &[Span],
    ) -> Option<(Cost, Option<ActualCost>)> {
        let source = match field {
            Shorthand::Value(field) => {
                let cost = self.integer("cost", field, 0..=u32::MAX);
                return cost.map(|cost| (Cost::Constant(cost), None));
            }
            Shorthand::Map(source) => source,
        };
        let actual = match &source.actual {
            None => None,
            Some(field) => Some(self.actual(field)?),
        };
        let cost = self.estimate(source, span, matcher, path_spans)?;
        Some((cost, actual))
    }

    /// The cost that is charged before the response.
    fn estimate(
        &mut self,
        source: &schema::CostSource,
        span: Span,
        matcher: &Matcher,
        path_spans: &[Span],
    ) -> Option<Cost> {
        let default = self.cost_or("default", &source.default, 1)?;
        let fields = [
            ("header", source.header.is_some()),
            ("json", source.json.is_some()),
            ("method", source.method.is_some()),
            ("path", source.path.is_some()),
        ];
        let is_constant = fields.iter().all(|(_, given)| !given) && source.actual.is_some();
        if !is_constant {
            let help = "such as `cost: { path: { /search: 5 }, default: 1 }`";
            self.exactly_one("`cost`", span, &fields, help)?;
        }
        if source.header.is_some() || source.json.is_some() {
            return self.cost_by_value(source, default);
        }
        for (name, span) in [
            ("at_least", source.at_least.span()),
            ("at_most", source.at_most.span()),
            ("or", source.or.span()),
        ] {
            if let Some(span) = span {
                let message = format!("`{name}` requires a cost by `header` or `json`");
                self.error(code::CONTRADICTION, span, message);
            }
        }
        self.map_requires_json(&source.map, &source.json);
        match &source.path {
            Some(paths) => self.cost_by_path(paths, default, matcher, path_spans),
            None if is_constant => Some(Cost::Constant(default)),
            None => self.cost_by_method(source.method.value()?, default),
        }
    }

    fn map_requires_json(
        &mut self,
        map: &Option<Spanned<Table<Integer>>>,
        json: &Option<Spanned<Text>>,
    ) {
        if let (Some(map), None) = (map, json) {
            self.error(code::CONTRADICTION, map.span, "`map` requires `json`")
                .help("such as `cost: { json: model, map: { large: 20 }, default: 1 }`");
        }
    }

    fn cost_by_value(&mut self, source: &schema::CostSource, default: u32) -> Option<Cost> {
        let fields = SourceFields {
            header: &source.header,
            json: &source.json,
            map: &source.map,
            or: &source.or,
        };
        let mut sources = Vec::new();
        let valid = self.cost_sources(&fields, &mut sources).is_some();
        let by_number = |source: &CostSource| !matches!(source, CostSource::JsonText { .. });
        let has_numbers = sources.iter().any(by_number);
        if valid && !has_numbers {
            for field in [&source.at_least, &source.at_most].into_iter().flatten() {
                let message = "`at_least` and `at_most` require a cost that is a number";
                self.error(code::CONTRADICTION, field.span, message)
                    .help("the costs of a `map` are those of the file; remove it");
            }
        }
        // A text may be free.
        let least = self.cost_or("at_least", &source.at_least, u32::from(has_numbers))?;
        let most = self.cost_or("at_most", &source.at_most, u32::MAX)?;
        if least > most
            && let Some(field) = source.at_most.as_ref().or(source.at_least.as_ref())
        {
            let message = "`at_most` is below `at_least`, which is 1 by default";
            self.error(code::CONTRADICTION, field.span, message);
            return None;
        }
        if let Some(field) = &source.default
            && !(least..=most).contains(&default)
        {
            let message = "`default` is not between `at_least` and `at_most`";
            self.error(code::CONTRADICTION, field.span, message)
                .help("`at_least` is 1 by default");
            return None;
        }
        if !valid {
            return None;
        }
        let (default, min, max) = (default.clamp(least, most), least, most);
        Some(match <[CostSource; 1]>::try_from(sources) {
            Ok([CostSource::Header(name)]) => Cost::Header {
                name,
                default,
                min,
                max,
            },
            Ok(sources) => Cost::FirstOf {
                sources: sources.into(),
                default,
                min,
                max,
            },
            Err(sources) => Cost::FirstOf {
                sources,
                default,
                min,
                max,
            },
        })
    }

    /// Adds the sources of a cost and its fallbacks. `None` if one is invalid.
    fn cost_sources(
        &mut self,
        fields: &SourceFields<'_>,
        sources: &mut Vec<CostSource>,
    ) -> Option<()> {
        self.map_requires_json(fields.map, fields.json);
        let own = match (fields.header, fields.json, fields.map) {
            (Some(header), _, _) => self.header_name(header).map(CostSource::Header),
            (None, Some(json), None) => self.json_path(json).map(CostSource::Json),
            (None, Some(json), Some(map)) => {
                let (path, costs) = (self.json_path(json), self.costs_of_texts(map));
                path.zip(costs)
                    .map(|(path, costs)| CostSource::JsonText { path, costs })
            }
            (None, None, _) => None,
        };
        let mut valid = own.is_some();
        sources.extend(own);
        let help = "such as `or: { json: max_tokens }`";
        for field in self.non_empty("or", fields.or, help) {
            let Some(fallback) = field.get() else {
                valid = false;
                continue;
            };
            let given = [
                ("header", fallback.header.is_some()),
                ("json", fallback.json.is_some()),
            ];
            let fields = SourceFields {
                header: &fallback.header,
                json: &fallback.json,
                map: &fallback.map,
                or: &fallback.or,
            };
            valid &= self.exactly_one("`or`", field.span, &given, help).is_some()
                && self.cost_sources(&fields, sources).is_some();
            if sources.len() > MAX_SOURCES {
                return self.too_many_sources(field.span);
            }
        }
        valid.then_some(())
    }

    fn too_many_sources(&mut self, span: Span) -> Option<()> {
        let message = format!("a cost has more than {MAX_SOURCES} sources");
        self.error(code::TOO_MANY, span, message);
        None
    }

    fn json_path(&mut self, field: &Spanned<Text>) -> Option<JsonPath> {
        self.parse(code::COST, field)
    }

    fn costs_of_texts(&mut self, field: &Spanned<Table<Integer>>) -> Option<Vec<(Glob, u32)>> {
        let texts = &field.get()?.0;
        if texts.is_empty() {
            self.error(code::NO_VALUE, field.span, "`map` is empty")
                .help("such as `map: { large: 20, small: 1 }`");
            return None;
        }
        if let Some((name, _)) = texts.get(MAX_TEXTS) {
            let message = format!("more than {MAX_TEXTS} texts with a cost");
            self.error(code::TOO_MANY, name.span, message);
            return None;
        }
        let costs = texts.iter().map(|(name, cost)| {
            let help = |_: &_| "such as `gpt-4*`".to_owned();
            let text = self.parse_or_help::<Glob>(code::COST, name, help);
            let cost = self.integer("map", cost, 0..=u32::MAX);
            text.zip(cost)
        });
        // Every one is reported.
        let costs: Vec<Option<(Glob, u32)>> = costs.collect();
        costs.into_iter().collect()
    }

    fn actual(&mut self, field: &Spanned<Box<schema::Actual>>) -> Option<ActualCost> {
        let mut sources = Vec::new();
        self.actual_sources(field.get()?, field.span, &mut sources)?;
        Some(ActualCost::new(sources))
    }

    fn actual_sources(
        &mut self,
        actual: &schema::Actual,
        span: Span,
        sources: &mut Vec<ActualSource>,
    ) -> Option<()> {
        let mut valid = true;
        if actual.header.is_none() && actual.json.is_none() {
            valid = false;
            // An unknown field with a suggestion has been reported.
            if !self.suggestions.iter().any(|(of, _)| *of == span) {
                let message = "missing field in `actual`: expected `header` or `json`";
                self.error(code::MISSING_FIELD, span, message)
                    .help("such as `actual: { json: usage.total_tokens }`");
            }
        }
        if let Some(header) = &actual.header {
            let name = self.header_name(header);
            valid &= name.is_some();
            sources.extend(name.map(ActualSource::Header));
        }
        if let Some(json) = &actual.json {
            let path = self.json_path(json);
            valid &= path.is_some();
            sources.extend(path.map(ActualSource::Json));
        }
        self.non_empty(
            "or",
            &actual.or,
            "such as `or: { json: usage.total_tokens }`",
        );
        for field in actual.or.items() {
            let fallback = field.get();
            valid &= fallback.is_some_and(|fallback| {
                self.actual_sources(fallback, field.span, sources).is_some()
            });
            if sources.len() > MAX_SOURCES {
                return self.too_many_sources(field.span);
            }
        }
        valid.then_some(())
    }

    fn cost_by_method(&mut self, methods: &Table<Integer>, default: u32) -> Option<Cost> {
        let mut costs = Vec::new();
        for (name, cost) in &methods.0 {
            let method = self.method(name);
            let cost = self.integer("method", cost, 0..=u32::MAX);
            costs.extend(method.zip(cost));
        }
        Some(Cost::Method { costs, default })
    }

    fn cost_by_path(
        &mut self,
        field: &Spanned<Table<Integer>>,
        default: u32,
        matcher: &Matcher,
        path_spans: &[Span],
    ) -> Option<Cost> {
        let paths = &field.get()?.0;
        if paths.is_empty() {
            self.error(code::NO_VALUE, field.span, "`path` is empty")
                .help("such as `path: { /search: 5 }`");
            return None;
        }
        if let Some((name, _)) = paths.get(MAX_PATHS) {
            let message = format!("more than {MAX_PATHS} paths with a cost");
            self.error(code::TOO_MANY, name.span, message);
            return None;
        }
        let mut costs: Vec<(PathPattern, u32)> = Vec::new();
        for (name, cost) in paths {
            let pattern = self.parse::<PathPattern>(code::PATH, name);
            let cost = self.integer("path", cost, 0..=u32::MAX);
            let (Some(pattern), Some(cost)) = (pattern, cost) else {
                continue;
            };
            let own = &matcher.paths;
            if let Some(span) = path_spans.first()
                && !own.iter().any(|path| path.overlaps(&pattern))
            {
                let message = format!("no request of this rule has the path `{pattern}`");
                self.error(code::COST, name.span, message)
                    .related(*span, "the rule matches other paths")
                    .help("add the path to `match`, or correct it here");
            }
            costs.push((pattern, cost));
        }
        Some(Cost::Path { costs, default })
    }
}
