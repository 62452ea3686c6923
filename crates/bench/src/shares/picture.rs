//! A picture of greedy members that come and go among light ones, readable on light and on dark pages.

use std::fmt::Write;

use tallygate_core::Quota;

use crate::shares::run::{Quotas, RATE, decide};
use crate::shares::scenario::{greedy, light};
use crate::shares::traffic::{Group, Spacing, requests};

const SEED: u64 = 1;
/// When the greedy members ask, and when the picture ends.
const GREEDY_S: (u64, u64) = (20, 60);
const END_S: u64 = 80;
/// The time of one point of a curve.
const POINT_S: u64 = 2;

/// The size of the picture and of one plot, in user units.
const WIDTH: f64 = 720.0;
const PLOT_HEIGHT: f64 = 210.0;
const HEAD: f64 = 58.0;
/// Around the area of the curves.
const LEFT: f64 = 48.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 26.0;
/// The top of the axis, a second.
const MAX_RATE: f64 = 120.0;

/// The colours differ in brightness too, and the curves in their dashes.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#59636e;--line:#d1d9e0;--page:#fff;\
--c0:#0969da;--c1:#bc4c00;--c2:#59636e}\
@media(prefers-color-scheme:dark){:root{--ink:#f0f6fc;--soft:#9198a1;--line:#3d444d;--page:#0d1117;\
--c0:#58a6ff;--c1:#f0883e;--c2:#9198a1}}\
svg{font:12px system-ui,sans-serif}\
.t{fill:var(--ink);font-weight:600}.m{fill:var(--soft)}.g{stroke:var(--line)}\
.b{fill:var(--c1);opacity:.08}.p{fill:none;stroke-width:2}\
.p0{stroke:var(--c0)}.p1{stroke:var(--c1);stroke-dasharray:7 3}\
.p2{stroke:var(--c2);stroke-width:1.5;stroke-dasharray:2 3}";

const CURVES: [&str; 3] = [
    "95 light members, admitted",
    "5 greedy ones, admitted",
    "light, asked",
];

/// The light members are the first group.
const GROUPS: [Group; 2] = [
    light(95, 0.5),
    Group {
        from_s: GREEDY_S.0,
        until_s: GREEDY_S.1,
        ..greedy(5, 200.0)
    },
];

/// The picture, as SVG.
pub fn draw(quotas: &Quotas) -> String {
    let height = HEAD + 2.0 * PLOT_HEIGHT;
    let title = "One limit of 100 requests a second";
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <title>{title}: with shares, light members get what they ask for while five others ask for \
         200 a second each; without, they get a tenth of it</title><style>{STYLE}</style>\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--page)\"/>\
         <text class=\"t\" x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>"
    );
    let mut x = LEFT;
    for (number, name) in CURVES.iter().enumerate() {
        let _ = write!(
            svg,
            "<path class=\"p p{number}\" d=\"M{x:.0} 42h24\"/>\
             <text class=\"m\" x=\"{:.0}\" y=\"46\">{name}</text>",
            x + 30.0
        );
        x += 60.0 + 6.5 * name.len() as f64;
    }
    for (row, quota) in [&quotas.without, &quotas.shared].into_iter().enumerate() {
        let y = HEAD + PLOT_HEIGHT * row as f64;
        let _ = write!(svg, "<g transform=\"translate(0 {y:.0})\">");
        plot(quota, &mut svg);
        svg.push_str("</g>");
    }
    svg.push_str("</svg>\n");
    svg
}

fn plot(quota: &Quota, svg: &mut String) {
    let points = (END_S / POINT_S) as usize;
    let mut curves = [(); CURVES.len()].map(|()| vec![0_u64; points]);
    let requests = requests(&GROUPS, Spacing::Poisson, END_S, SEED);
    decide(quota, &GROUPS, &requests, |request, is_admitted| {
        let point = (request.at_us / (POINT_S * 1_000_000)) as usize;
        curves[request.group][point] += u64::from(is_admitted);
        curves[2][point] += u64::from(request.group == 0);
    });

    let (bottom, right) = (PLOT_HEIGHT - BOTTOM, WIDTH - RIGHT);
    let x = |seconds: f64| LEFT + (right - LEFT) * seconds / END_S as f64;
    let y = |rate: f64| bottom - (bottom - TOP) * (rate / MAX_RATE).min(1.0);
    let (from, until) = (x(GREEDY_S.0 as f64), x(GREEDY_S.1 as f64));
    let _ = write!(
        svg,
        "<text class=\"t\" x=\"{LEFT}\" y=\"16\">{quota}</text>\
         <rect class=\"b\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>\
         <text class=\"m\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">five ask 200/s each</text>",
        until - from,
        bottom - TOP,
        f64::midpoint(from, until),
        TOP + 14.0
    );
    for rate in (0..=RATE).step_by(25) {
        let y = y(rate as f64);
        let _ = write!(
            svg,
            "<path class=\"g\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text class=\"m\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{rate}/s</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for second in (0..=END_S).step_by(20) {
        let _ = write!(
            svg,
            "<text class=\"m\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{second} s</text>",
            x(second as f64),
            bottom + 17.0
        );
    }
    for (number, values) in curves.iter().enumerate() {
        let point = |(at, value): (usize, &u64)| {
            // At the middle of its time.
            let seconds = (at as f64 + 0.5) * POINT_S as f64;
            let rate = *value as f64 / POINT_S as f64;
            format!("{:.1},{:.1}", x(seconds), y(rate))
        };
        let points: Vec<String> = values.iter().enumerate().map(point).collect();
        let _ = write!(
            svg,
            "<polyline class=\"p p{number}\" points=\"{}\"/>",
            points.join(" ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_in_the_documents_is_the_one_drawn() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images/shares.svg");
        let committed = std::fs::read_to_string(path).unwrap();
        assert_eq!(committed.trim(), draw(&Quotas::new()).trim());
    }
}
