//! Describes the machine and the versions of the peers.

use std::fs;
use std::thread;

/// The machine in one line: processor, cores, last cache, memory, huge pages.
pub fn describe() -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let model = value_in("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown CPU".into());
    let cache = fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size")
        .map_or_else(|_| "unknown".into(), |size| size.trim().to_owned());
    let memory = value_in("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown".into());
    let huge = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .ok()
        .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()))
        .unwrap_or_else(|| "unknown".into());
    format!("{model}, {cores} cores, L3 {cache}, memory {memory}, transparent huge pages {huge}")
}

/// The versions of these crates, from the workspace's lock file.
///
/// `name@0.6` selects one of several versions, as in cargo.
pub fn versions(crates: &[&str]) -> String {
    const LOCK: &str = include_str!("../../../Cargo.lock");
    let version = |spec: &str| {
        let (name, begin) = spec.split_once('@').unwrap_or((spec, ""));
        let start = format!("name = \"{name}\"\nversion = \"{begin}");
        let (_, rest) = LOCK.split_once(&start)?;
        let version = rest.split_once('"')?.0;
        Some(format!("{name} {begin}{version}"))
    };
    crates
        .iter()
        .map(|spec| version(spec).unwrap_or_else(|| format!("{spec} unknown")))
        .collect::<Vec<_>>()
        .join(", ")
}

fn value_in(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_the_peers_are_found() {
        let versions = versions(&["governor", "throttlecrab", "limitador@0.14"]);
        assert!(versions.starts_with("governor 0.10."), "{versions}");
        assert!(versions.contains("limitador 0.14."), "{versions}");
        assert!(!versions.contains("unknown"), "{versions}");
    }
}
