//! Plots of a simulation as SVG, readable on light and on dark pages.

use std::fmt::Write;

use tallygate::simulation::{Point, Results, Scenario};

use super::title;

/// The size of a plot, in user units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 240.0;
/// Around the area of the curves: left, right, top and bottom.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 28.0;
/// Marks of an axis, at most.
const MARKS: f64 = 5.0;

/// The style of plots. The colours differ in brightness too, and curves in their dashes.
pub(super) const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#59636e;--line:#d1d9e0;--page:#fff;\
--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#cf222e}\
@media(prefers-color-scheme:dark){:root{--ink:#f0f6fc;--soft:#9198a1;--line:#3d444d;--page:#0d1117;\
--c0:#58a6ff;--c1:#f0883e;--c2:#3fb950;--c3:#bc8cff;--c4:#ff7b72}}\
svg{font:12px system-ui,sans-serif}\
.t{fill:var(--ink);font-weight:600}.m{fill:var(--soft)}.g{stroke:var(--line)}\
.f{fill:var(--c4);opacity:.12}.p{fill:none;stroke-width:1.8}\
.p0{stroke:var(--c0)}.p1{stroke:var(--c1);stroke-dasharray:6 3}.p2{stroke:var(--c2);stroke-dasharray:2 2}\
.s0{fill:var(--c0)}.s1{fill:var(--c1)}.s2{fill:var(--c2)}.s3{fill:var(--c3)}.s4{fill:var(--c4)}";

/// One curve: its name, and its value at each point.
pub(super) struct Curve {
    name: &'static str,
    values: Vec<f64>,
}

/// Curves over the time of a simulation.
pub(super) struct Plot {
    pub(super) title: &'static str,
    unit: &'static str,
    curves: Vec<Curve>,
}

/// Text inside of XML.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in XML.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The plots of a simulation.
pub(super) fn plots(results: &Results) -> Vec<Plot> {
    let seconds = seconds_per_point(results);
    let rate = |name, value: fn(&Point) -> u64| Curve {
        name,
        values: results
            .series
            .iter()
            .map(|point| value(point) as f64 / seconds)
            .collect(),
    };
    let millis = |name, value: fn(&Point) -> u64| Curve {
        name,
        values: results
            .series
            .iter()
            .map(|point| value(point) as f64 / 1e3)
            .collect(),
    };
    vec![
        Plot {
            title: "Requests",
            unit: "per second",
            curves: vec![
                rate("admitted", |point| point.admitted),
                rate("admitted by an exact limiter", |point| point.exact_admitted),
                rate("asked", |point| point.requests),
            ],
        },
        Plot {
            title: "Script calls, and decisions without servers",
            unit: "per second",
            curves: vec![
                rate("calls", |point| point.calls),
                rate("decided by policy", |point| point.degraded),
            ],
        },
        Plot {
            title: "Time to a decision",
            unit: "ms",
            curves: vec![
                millis("median", |point| point.latency.p50_us),
                millis("99th percentile", |point| point.latency.p99_us),
            ],
        },
    ]
}

fn seconds_per_point(results: &Results) -> f64 {
    let step = match results.series.get(1) {
        Some(second) => second.at_us,
        None => results.duration_us,
    };
    (step as f64 / 1e6).max(1e-6)
}

/// The plots of a simulation, one below the other, as a file.
pub(super) fn picture(scenario: &Scenario, results: &Results) -> String {
    let plots = plots(results);
    let height = HEIGHT * plots.len() as f64 + 30.0;
    let mut svg = String::new();
    let name = escaped(title(scenario));
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <title>{name}</title><style>{STYLE}</style>\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--page)\"/>\
         <text class=\"t\" x=\"{LEFT}\" y=\"22\" font-size=\"15\">{name}</text>"
    );
    for (number, plot) in plots.iter().enumerate() {
        let y = 30.0 + HEIGHT * number as f64;
        let _ = write!(svg, "<g transform=\"translate(0 {y})\">");
        svg.push_str(&drawing(plot, scenario, results));
        svg.push_str("</g>");
    }
    svg.push_str("</svg>\n");
    svg
}

/// One plot, as an element of a page.
pub(super) fn svg(plot: &Plot, scenario: &Scenario, results: &Results) -> String {
    let title = plot.title;
    let drawing = drawing(plot, scenario, results);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title}\">{drawing}</svg>"
    )
}

/// Where something is in the area of the curves.
struct Area {
    seconds: f64,
    top: f64,
}

impl Area {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (seconds / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / self.top).clamp(0.0, 1.0)
    }
}

fn drawing(plot: &Plot, scenario: &Scenario, results: &Results) -> String {
    let values = plot.curves.iter().flat_map(|curve| &curve.values);
    let largest = values.copied().fold(0.0, f64::max);
    let step = nice_step(largest);
    let area = Area {
        seconds: (results.duration_us as f64 / 1e6).max(1e-6),
        top: (largest / step).ceil().max(1.0) * step,
    };
    let mut svg = String::new();
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (at, length, what) in scenario.faults() {
        let (from, to) = (at.as_secs_f64(), (at + length).as_secs_f64());
        let (x, end) = (area.x(from), area.x(to));
        let (width, height) = ((end - x).max(1.0), bottom - TOP);
        let what = escaped(&what);
        let _ = write!(
            svg,
            "<rect class=\"f\" x=\"{x:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\">\
             <title>{what}</title></rect>"
        );
    }
    let mut value = 0.0;
    while value <= area.top * 1.001 {
        let y = area.y(value);
        let _ = write!(
            svg,
            "<path class=\"g\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text class=\"m\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            shown(value)
        );
        value += step;
    }
    let every = nice_step(area.seconds);
    let mut seconds = 0.0;
    while seconds <= area.seconds * 1.001 {
        let _ = write!(
            svg,
            "<text class=\"m\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            area.x(seconds),
            bottom + 16.0,
            shown(seconds)
        );
        seconds += every;
    }
    let _ = write!(
        svg,
        "<text class=\"t\" x=\"{LEFT}\" y=\"14\">{}, {}</text>",
        plot.title, plot.unit
    );
    let mut x = LEFT;
    for (number, curve) in plot.curves.iter().enumerate() {
        // A curve is drawn at the middles of its points.
        let step = area.seconds / curve.values.len().max(1) as f64;
        let points = curve.values.iter().enumerate().map(|(at, value)| {
            let x = area.x((at as f64 + 0.5) * step);
            format!("{x:.1},{:.1}", area.y(*value))
        });
        let points: Vec<String> = points.collect();
        let name = curve.name;
        let _ = write!(
            svg,
            "<polyline class=\"p p{number}\" points=\"{}\"/>\
             <path class=\"p p{number}\" d=\"M{x:.1} 25h22\"/>\
             <text class=\"m\" x=\"{:.1}\" y=\"29\">{name}</text>",
            points.join(" "),
            x + 28.0
        );
        x += 52.0 + 6.5 * name.len() as f64;
    }
    svg
}

/// 1, 2 or 5 times a power of ten, so that an axis has a few marks.
fn nice_step(largest: f64) -> f64 {
    let rough = (largest / MARKS).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let factor = factors.into_iter().find(|factor| power * factor >= rough);
    power * factor.unwrap_or(10.0)
}

/// A mark of an axis: thousands as `k`.
fn shown(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e4 => (value / 1e3, "k"),
        value => (value, ""),
    };
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

/// Shares of a whole, in a row.
pub(super) fn bar(parts: &[(&str, u64)]) -> String {
    let whole: u64 = parts.iter().map(|(_, part)| part).sum();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 30\" role=\"img\" \
         aria-label=\"What decided the requests\">"
    );
    let mut x = 0.0;
    for (number, (name, part)) in parts.iter().enumerate() {
        let width = WIDTH * *part as f64 / (whole as f64).max(1.0);
        let _ = write!(
            svg,
            "<rect class=\"s{number}\" x=\"{x:.1}\" width=\"{width:.1}\" height=\"30\">\
             <title>{name}: {part}</title></rect>"
        );
        x += width;
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_an_axis_are_few_and_round() {
        for (largest, step) in [
            (0.9, 0.2),
            (1.0, 0.2),
            (7.0, 2.0),
            (99.0, 20.0),
            (12_345.0, 5_000.0),
        ] {
            assert!((nice_step(largest) - step).abs() < 1e-9, "{largest}");
        }
        assert!(nice_step(0.0) > 0.0);
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (9_000.0, "9000"),
            (15_000.0, "15k"),
            (2.5e6, "2.5M"),
        ] {
            assert_eq!(shown(value), text);
        }
    }

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(
            escaped("<b a=\"'\">&\u{1}"),
            "&lt;b a=&quot;&#39;&quot;&gt;&amp;\u{fffd}"
        );
    }
}
