//! Golden files: expected output below `tests/golden`.

use std::fs;
use std::path::PathBuf;

/// Compares with `tests/golden/<name>`, or updates it if `UPDATE_GOLDEN=1`.
pub(crate) fn golden(name: &str, page: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(&path, page).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == expected,
        "{name} has changed; if intended, update it with UPDATE_GOLDEN=1. Now:\n{page}"
    );
}
