//! The manifests of `ops/kubernetes`, and the rules in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tallygate_testkit::program;

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/kubernetes")
}

/// The resources of the kustomization.
fn resources() -> Vec<PathBuf> {
    let text = fs::read_to_string(manifests().join("kustomization.yaml")).unwrap();
    let resources = text.lines().skip_while(|line| *line != "resources:");
    let resources = resources
        .skip(1)
        .map_while(|line| line.strip_prefix("  - "));
    resources.map(|name| manifests().join(name)).collect()
}

#[test]
fn the_manifests_fit_the_schemas_of_kubernetes() {
    let resources = resources();
    assert_eq!(resources.len(), 3, "{resources:?}");
    let output = Command::new(program::python("kubernetes"))
        .args(["-m", "kubernetes_validate", "--strict"])
        .args(&resources)
        .output()
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches(" passed for resource ").count(), 8, "{said}");
}

#[test]
fn the_rules_of_the_manifests_are_good() {
    let output = Command::new(env!("CARGO_BIN_EXE_tallygate"))
        .args(["config", "check", "--strict"])
        .arg(manifests().join("rules.yaml"))
        .output()
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{said}");
}
