//! Rules files: any bytes produce rules or a report in bounded time. A report has errors and shows
//! no value of the environment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tallygate::rules::Rules;
use tallygate_server::config::{Style, load_bytes};

fuzz_target!(|bytes: &[u8]| {
    // Characters that occur in no message.
    const SECRET: &str = "\u{1f511}\u{1f5dd}";
    let environment = |name: &str| name.starts_with('S').then(|| SECRET.to_owned());
    match load_bytes("rules.yaml", bytes, &environment) {
        Ok(config) => {
            let text = config.warnings.render(Style::Terminal { colour: true });
            assert_eq!(text.is_empty(), config.warnings.codes().next().is_none());
            Rules::new(config.rules).expect("a loaded file has no faults");
        }
        Err(report) => {
            assert!(report.errors() > 0);
            let text = report.render(Style::Plain);
            assert!(text.contains("rules::"));
            let given = String::from_utf8_lossy(bytes).contains('\u{1f511}');
            assert!(given || !text.contains('\u{1f511}'), "{text}");
        }
    }
});
