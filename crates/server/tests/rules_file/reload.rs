//! Rules that follow their file.

use std::fs;

use http::{Extensions, HeaderMap, Method, Uri};
use tallygate::http::{Head, Policy};
use tallygate_server::config::{Reloaded, Reloader};

use crate::include::folder;

/// How many limits a request comes before.
fn limits(reloader: &Reloader) -> usize {
    let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
    let extensions = Extensions::new();
    let head = Head::new(&Method::GET, &uri, &headers, &extensions);
    let plan = reloader.live().plan(&head);
    plan.charges()
        .iter()
        .map(|charge| charge.limits.len())
        .sum()
}

#[test]
fn a_bad_file_leaves_the_old_rules_in_force_and_says_so() {
    let one = "version: 1\nrules: [{ name: a, limits: 1/s }]";
    let path = folder("reload", &[("rules.yaml", one)]).join("rules.yaml");
    let mut reloader = Reloader::new(&path).unwrap();
    let live = reloader.live().clone();
    assert_eq!(limits(&reloader), 1);
    assert!(matches!(reloader.reload(), Ok(Reloaded::Same)));

    for bad in [
        "version: 1\nrules: [{ name: a, limits: 0/s }]",
        "",
        "version: 2",
        ": [",
    ] {
        fs::write(&path, bad).unwrap();
        let before = live.current();
        let report = reloader.reload().unwrap_err();
        assert!(report.errors() > 0);
        assert!(std::sync::Arc::ptr_eq(&before, &live.current()), "{bad}");
        assert_eq!(limits(&reloader), 1);
    }
    fs::remove_file(&path).unwrap();
    assert!(reloader.reload().is_err());

    let two = "version: 1\nstore: redis://db\nrules: [{ name: a, limits: [1/s, 5/min] }]";
    fs::write(&path, two).unwrap();
    let Ok(Reloaded::Changed {
        before,
        other_store,
    }) = reloader.reload()
    else {
        panic!("the file has changed");
    };
    assert!(other_store);
    assert_eq!(before.rules.len(), 1);
    assert_eq!(limits(&reloader), 2);
    assert_eq!(reloader.loaded().store.url, "redis://db");
}

#[test]
fn a_bad_file_does_not_start() {
    let path = folder("reload-never", &[("rules.yaml", "version: 1\nruels: []")]);
    assert!(Reloader::new(&path.join("rules.yaml")).is_err());
}

#[test]
fn a_limiter_hears_of_new_limits_before_they_are_in_force_and_of_no_bad_ones() {
    let one = "version: 1\nrules: [{ name: a, limits: 1/s }]";
    let path = folder("reload-with", &[("rules.yaml", one)]).join("rules.yaml");
    let mut reloader = Reloader::new(&path).unwrap();
    let live = reloader.live().clone();
    let in_force = || {
        let mut names = Vec::new();
        live.limits(&mut |limit| names.push(limit.name().to_owned()));
        names
    };
    let mut heard = Vec::new();
    fs::write(&path, "version: 2").unwrap();
    assert!(reloader.reload_with(|_| panic!("bad rules")).is_err());
    fs::write(
        &path,
        "version: 1\nrules: [{ name: b, limits: [1/s, 5/min] }]",
    )
    .unwrap();
    let changed = reloader.reload_with(|limit| {
        assert_eq!(in_force(), ["a sliding-window-counter/s"]);
        heard.push(limit.name().to_owned());
    });
    assert!(matches!(changed, Ok(Reloaded::Changed { .. })));
    assert_eq!(
        heard,
        ["b sliding-window-counter/s", "b sliding-window-counter/min"]
    );
    assert_eq!(in_force(), heard);
}
