//! Rules files: whatever the bytes, there are rules or a report, in bounded time; a report says
//! something and shows no value of the environment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tallygate_server::config::{Style, load_bytes};
use tallygate::rules::Rules;

fuzz_target!(|bytes: &[u8]| {
    // No field, word or hint has such characters.
    const SECRET: &str = "\u{1f511}\u{1f5dd}";
    let environment = |name: &str| name.starts_with('S').then(|| SECRET.to_owned());
    match load_bytes("rules.yaml", bytes, &environment) {
        Ok(loaded) => {
            let text = loaded.warnings.render(Style::Terminal { colour: true });
            assert_eq!(text.is_empty(), loaded.warnings.codes().next().is_none());
            Rules::new(loaded.rules).expect("a loaded file has no faults");
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
