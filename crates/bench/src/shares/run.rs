//! Decides the traffic of one scenario and one seed.

use tallygate_core::{Caller, Quota, State, Verb, Weight, evaluate_by};

use crate::shares::scenario::Scenario;
use crate::shares::traffic::{Group, Request};

/// The limit's rate, a second, and its burst.
pub const RATE: u64 = 100;
const START_US: u64 = 1_700_000_000_000_000;

/// The same limit without shares and with them.
#[derive(Clone, Copy, Debug)]
pub struct Quotas {
    /// First come, first served.
    pub without: Quota,
    /// Shared by weight.
    pub shared: Quota,
}

impl Quotas {
    /// `token-bucket 100/s burst 100`, and the same `shared 4`.
    ///
    /// # Panics
    ///
    /// Never: both are valid.
    pub fn new() -> Self {
        let quota = |suffix| {
            let text = format!("token-bucket {RATE}/s burst {RATE}{suffix}");
            text.parse().expect("the quotas are valid")
        };
        Quotas {
            without: quota(""),
            shared: quota(" shared 4"),
        }
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas::new()
    }
}

/// What became of one traffic.
#[derive(Clone, Debug)]
pub struct Run {
    /// Percent of what light members asked that they got.
    pub light: Option<f64>,
    /// Percent of what the limit allows.
    pub used: f64,
    /// Admitted a second, by group.
    pub rates: Vec<f64>,
    /// The same as `light`, of the member that got least of those that asked at least 50 times.
    pub worst_light: Option<f64>,
    /// Whether some span had more than the limit's worst case.
    pub is_above_bound: bool,
}

/// Requests and admissions.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    asked: u64,
    admitted: u64,
}

impl Count {
    fn percent(self) -> Option<f64> {
        (self.asked > 0).then(|| 100.0 * self.admitted as f64 / self.asked as f64)
    }
}

/// A leaky bucket of the limit, kept apart from the core: what it drains, and nothing else, may be
/// added again.
#[derive(Clone, Copy, Debug, Default)]
struct Bound {
    /// As time to drain.
    level_us: u64,
    at_us: u64,
    is_broken: bool,
}

impl Bound {
    fn admit(&mut self, at_us: u64) {
        const UNIT_US: u64 = 1_000_000 / RATE;
        self.level_us = self.level_us.saturating_sub(at_us - self.at_us) + UNIT_US;
        self.at_us = at_us;
        self.is_broken |= self.level_us > RATE * UNIT_US;
    }
}

/// Decides the requests of a scenario with one quota.
pub fn run(scenario: &Scenario, quota: &Quota, requests: &[Request]) -> Run {
    let groups = scenario.groups;
    let (from, until) = scenario.seconds;
    let measured = from * 1_000_000..until * 1_000_000;
    let members: u32 = groups.iter().map(|group| group.members).sum();
    let mut by_group = vec![Count::default(); groups.len()];
    let mut by_member = vec![(Count::default(), false); members as usize];
    let mut bound = Bound::default();
    decide(quota, groups, requests, |request, is_admitted| {
        if is_admitted {
            bound.admit(request.at_us);
        }
        if !measured.contains(&request.at_us) {
            return;
        }
        let (own, is_light) = &mut by_member[request.member as usize];
        *is_light = groups[request.group].is_light;
        for count in [own, &mut by_group[request.group]] {
            count.asked += 1;
            count.admitted += u64::from(is_admitted);
        }
    });

    let seconds = until - from;
    // The burst is there when a run starts.
    let allowed = RATE * seconds + if from == 0 { RATE } else { 0 };
    let counts = || groups.iter().zip(&by_group);
    let light = counts().filter(|(group, _)| group.is_light);
    let light = light.fold(Count::default(), |sum, (_, count)| Count {
        asked: sum.asked + count.asked,
        admitted: sum.admitted + count.admitted,
    });
    let admitted: u64 = by_group.iter().map(|count| count.admitted).sum();
    let each = by_member.iter().filter(|(count, _)| count.asked >= 50);
    let each = each.filter_map(|(count, is_light)| count.percent().filter(|_| *is_light));
    Run {
        light: light.percent(),
        used: 100.0 * admitted as f64 / allowed as f64,
        rates: counts()
            .map(|(_, count)| count.admitted as f64 / seconds as f64)
            .collect(),
        worst_light: each.reduce(f64::min),
        is_above_bound: bound.is_broken,
    }
}

/// Calls `each` with every request and whether it was admitted.
pub(super) fn decide(
    quota: &Quota,
    groups: &[Group],
    requests: &[Request],
    mut each: impl FnMut(&Request, bool),
) {
    let mut state = State::New;
    for request in requests {
        let caller = caller(request.member, &groups[request.group]);
        let now = START_US + request.at_us;
        let verdict = evaluate_by(quota, &mut state, &caller, Verb::Check, 1, now);
        each(request, verdict.allowed());
    }
}

fn caller(member: u32, group: &Group) -> Caller {
    Caller {
        // As scattered as a hash.
        member: u64::from(member + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        weight: Weight::new(group.weight).expect("the weights are 1 to 1000"),
        ..Caller::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::scenario::SCENARIOS;

    /// Every row but the largest; one seed is enough where the table promises a figure.
    #[test]
    fn light_members_get_what_the_table_says_and_the_limit_is_used() {
        let quotas = Quotas::new();
        for scenario in SCENARIOS.iter().take(13) {
            let reference = &scenario.reference;
            let seeds = match reference.light_at_least {
                Some(_) => 1,
                None => scenario.seeds,
            };
            let results = scenario.measure(&quotas, seeds);
            let context = format!("{}: {results:?}", scenario.name);
            assert!(!results.is_above_bound, "{context}");
            assert!(results.without.used >= 99.9, "{context}");
            assert!(results.shared.used >= 98.0, "{context}");
            let (Some(light), Some(expected)) = (results.shared.light, reference.shared.light)
            else {
                continue;
            };
            let least = reference.light_at_least.unwrap_or(0.0);
            assert!(light >= least, "{context}");
            let difference = (light - expected).abs();
            assert!(difference <= reference.tolerance_shared, "{context}");
            assert!(results.without.light < Some(50.0), "{context}");
        }
    }

    #[test]
    fn weights_divide_the_limit_where_all_are_greedy() {
        let results = Scenario::row('F').measure(&Quotas::new(), 1);
        let [(_, one), (_, four)] = results.rates[..] else {
            panic!("two groups");
        };
        let ratio = four / one;
        assert!((3.8..4.2).contains(&ratio), "1 : {ratio}");
    }

    #[test]
    fn the_bound_sees_one_admission_too_many() {
        let mut bound = Bound::default();
        (0..RATE).for_each(|_| bound.admit(0));
        assert!(!bound.is_broken);
        let mut later = bound;
        later.admit(10_000);
        assert!(!later.is_broken);
        bound.admit(9_999);
        assert!(bound.is_broken);
    }
}
