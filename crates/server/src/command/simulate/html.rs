//! The report of a simulation: one HTML page without scripts and foreign resources.

use std::fmt::Write;

use tallygate::simulation::{Results, Scenario};

use super::plot::{self, STYLE, escaped};
use super::{figures, fleet, percent, title};

const PAGE_STYLE: &str = "\
body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:46rem;\
margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{color:var(--soft);margin:.2rem 0}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .75rem .25rem 0;\
border-bottom:1px solid var(--line);vertical-align:top}\
svg{display:block;width:100%;margin:.75rem 0}pre{border:1px solid var(--line);padding:.75rem;overflow:auto}\
.holds{color:var(--c2)}.broken{color:var(--c4);font-weight:600}\
.k{display:inline-block;width:.8em;height:.8em;margin-right:.4em}\
.k0{background:var(--c0)}.k1{background:var(--c1)}.k2{background:var(--c2)}.k3{background:var(--c3)}\
.k4{background:var(--c4)}";

pub(super) fn page(scenario: &Scenario, results: &Results, source: &str) -> String {
    let mut page = String::new();
    let name = escaped(title(scenario));
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{name}</title><style>{STYLE}{PAGE_STYLE}</style></head>\n<body>\
         <h1>{name}</h1><p>{} · simulated by Tallygate {}</p>\n",
        escaped(&fleet(scenario)),
        env!("CARGO_PKG_VERSION")
    );
    bounds(results, &mut page);
    for plot in plot::plots(results) {
        page.push_str(&plot::svg(&plot, scenario, results));
        page.push('\n');
    }
    faults(scenario, &mut page);
    decided_by(results, &mut page);
    page.push_str("<h2>Figures</h2><table>");
    for (name, text) in figures(results) {
        let _ = write!(
            page,
            "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>",
            escaped(&text)
        );
    }
    let _ = write!(
        page,
        "</table>\n<h2>Scenario</h2><pre>{}</pre>\n</body></html>\n",
        escaped(source)
    );
    page
}

fn bounds(results: &Results, page: &mut String) {
    if results.bounds.is_empty() {
        return;
    }
    page.push_str("<h2>Bounds</h2><table>");
    for bound in &results.bounds {
        let (class, text) = match bound.holds {
            true => ("holds", "holds"),
            false => ("broken", "broken"),
        };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>found {}</td><td class=\"{class}\">{text}</td></tr>",
            escaped(&bound.bound),
            escaped(&bound.found)
        );
    }
    page.push_str("</table>\n");
}

fn faults(scenario: &Scenario, page: &mut String) {
    let faults: Vec<String> = scenario
        .faults()
        .map(|(at, length, what)| {
            let (from, to) = (at.as_secs_f64(), (at + length).as_secs_f64());
            format!("{} from {from} s to {to} s", escaped(&what))
        })
        .collect();
    if !faults.is_empty() {
        let _ = writeln!(page, "<p>Shaded: {}.</p>", faults.join("; "));
    }
}

fn decided_by(results: &Results, page: &mut String) {
    let answers = &results.answers;
    let parts = [
        ("servers", answers.servers),
        ("policy, failure", answers.failure),
        ("leases", answers.leases),
        ("refusal cache", answers.refusal_cache),
        ("policy, overload", answers.overload),
    ];
    let _ = write!(
        page,
        "<h2>What decided the requests</h2>{}<p>",
        plot::bar(&parts)
    );
    for (number, (name, part)) in parts.iter().enumerate().filter(|(_, (_, part))| *part > 0) {
        let share = percent(*part, results.requests);
        let _ = write!(
            page,
            "<span class=\"k k{number}\"></span>{name} {share} &ensp;"
        );
    }
    page.push_str("</p>\n");
}
