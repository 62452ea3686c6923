//! `include`.

use std::fs;
use std::path::PathBuf;

use tallygate_server::config::load;

/// Creates a directory with files.
fn directory(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    for (name, text) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

#[test]
fn included_rules_follow_in_order() {
    let directory = directory(
        "include-order",
        &[
            (
                "main.yaml",
                "version: 1\non_missing: refuse\ninclude: [z.yaml, 'teams/*.yaml']\n\
                 rules: [{ name: main, limits: 1/s }]",
            ),
            (
                "z.yaml",
                "version: 1\ninclude: deep/own.yaml\nrules: [{ name: z, limits: 2/s }]",
            ),
            (
                "deep/own.yaml",
                "version: 1\nrules: [{ name: deep, limits: 3/s }]",
            ),
            (
                "teams/b.yaml",
                "version: 1\nrules: [{ name: b, limits: 4/s }]",
            ),
            (
                "teams/a.yaml",
                "version: 1\nrules: [{ name: a, key: ip, limits: 5/s }]\n\
                 overrides: [{ for: 192.0.2.1, rule: main, allow: true }]",
            ),
            ("teams/ignored.txt", "nonsense: ["),
        ],
    );
    let config = load(&directory.join("main.yaml")).unwrap();
    let names: Vec<&str> = config
        .rules
        .rules
        .iter()
        .map(|rule| rule.name.as_str())
        .collect();
    assert_eq!(names, ["main", "z", "deep", "a", "b"]);
    assert_eq!(config.files.len(), 5);
    assert_eq!(config.rules.overrides.len(), 1);
    let refuse = tallygate::rules::Missing::Refuse;
    assert!(
        config
            .rules
            .rules
            .iter()
            .all(|rule| rule.on_missing == refuse)
    );
}

#[test]
fn circular_includes_are_rejected() {
    let directory = directory(
        "include-circle",
        &[
            ("main.yaml", "version: 1\ninclude: a.yaml"),
            ("a.yaml", "version: 1\ninclude: b.yaml"),
            ("b.yaml", "version: 1\ninclude: a.yaml"),
        ],
    );
    let report = load(&directory.join("main.yaml")).unwrap_err();
    assert_eq!(report.codes().collect::<Vec<_>>(), ["rules::include"]);
    assert!(report.to_string().contains("b.yaml:2:10"), "{report}");
}

#[test]
fn depth_and_number_of_files_are_bounded() {
    let deep: Vec<(String, String)> = (0..12)
        .map(|n| {
            (
                format!("{n}.yaml"),
                format!("version: 1\ninclude: {}.yaml", n + 1),
            )
        })
        .collect();
    let files: Vec<(&str, &str)> = deep.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let report = load(&directory("include-deep", &files).join("0.yaml")).unwrap_err();
    assert!(report.to_string().contains("deeper than 8"), "{report}");

    let mut many: Vec<(String, String)> = (0..300)
        .map(|n| (format!("parts/{n}.yaml"), "version: 1".to_owned()))
        .collect();
    many.push((
        "main.yaml".into(),
        "version: 1\ninclude: parts/*.yaml".into(),
    ));
    let files: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let report = load(&directory("include-many", &files).join("main.yaml")).unwrap_err();
    assert!(
        report.to_string().contains("more than 256 files"),
        "{report}"
    );
}

#[test]
fn a_pattern_without_files_is_a_warning() {
    let text = "version: 1\ninclude: none/*.yaml\nrules: [{ name: a, limits: 1/s }]";
    let directory = directory("include-nothing", &[("main.yaml", text)]);
    let config = load(&directory.join("main.yaml")).unwrap();
    assert_eq!(
        config.warnings.codes().collect::<Vec<_>>(),
        ["rules::includes-nothing"]
    );
}

#[test]
fn a_missing_file_and_a_folder_are_errors() {
    for path in ["/no/such/rules.yaml", env!("CARGO_MANIFEST_DIR")] {
        let report = load(path.as_ref()).unwrap_err();
        assert_eq!(report.codes().collect::<Vec<_>>(), ["rules::unreadable"]);
    }
}
