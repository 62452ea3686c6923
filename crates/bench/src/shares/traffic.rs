//! Requests of groups of members, at times that a seed determines.

use fastrand::Rng;

/// Members that ask alike.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What they are called.
    pub name: &'static str,
    /// How many they are.
    pub members: u32,
    /// Requests a second of each.
    pub per_second: f64,
    /// The weight of each.
    pub weight: u32,
    /// When they begin.
    pub from_s: u64,
    /// When they end.
    pub until_s: u64,
    /// Whether they ask for less than their share.
    pub is_light: bool,
}

impl Group {
    /// Members of weight 1 that ask all the time.
    pub const fn new(name: &'static str, members: u32, per_second: f64) -> Self {
        Group {
            name,
            members,
            per_second,
            weight: 1,
            from_s: 0,
            until_s: u64::MAX,
            is_light: false,
        }
    }
}

/// How the requests of a member are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Evenly, from a random time on.
    Regular,
    /// Independently of each other.
    Poisson,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Since the start.
    pub at_us: u64,
    /// Counted through all groups.
    pub member: u32,
    /// The number of the group.
    pub group: usize,
}

/// The requests of all groups until a second, in order.
pub fn requests(groups: &[Group], spacing: Spacing, until_s: u64, seed: u64) -> Vec<Request> {
    let mut rng = Rng::with_seed(seed);
    let mut requests = Vec::new();
    let mut member = 0;
    for (number, group) in groups.iter().enumerate() {
        let end_us = (group.until_s.min(until_s) * 1_000_000) as f64;
        let gap_us = 1e6 / group.per_second;
        for _ in 0..group.members {
            let mut at_us = (group.from_s * 1_000_000) as f64;
            at_us += match spacing {
                Spacing::Regular => gap_us * rng.f64(),
                Spacing::Poisson => exponential(&mut rng, gap_us),
            };
            while at_us < end_us {
                requests.push(Request {
                    at_us: at_us as u64,
                    member,
                    group: number,
                });
                at_us += match spacing {
                    Spacing::Regular => gap_us,
                    Spacing::Poisson => exponential(&mut rng, gap_us),
                };
            }
            member += 1;
        }
    }
    requests.sort_unstable();
    requests
}

fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    // Never the logarithm of 0.
    -(1.0 - rng.f64()).ln() * mean
}
