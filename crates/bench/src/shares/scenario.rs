//! The rows of the table: who asks how often, what is measured, and the figures to reproduce.

use crate::shares::run::{Quotas, Run, run};
use crate::shares::traffic::{Group, Spacing, requests};

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The letter and the traffic.
    pub name: &'static str,
    /// Who asks.
    pub groups: &'static [Group],
    /// How the requests of a member are spaced.
    pub spacing: Spacing,
    /// The seconds measured: from, until.
    pub seconds: (u64, u64),
    /// Over how many seeds the figures are means.
    pub seeds: u64,
    /// The figures of the reference model.
    pub reference: Reference,
}

/// Percentages: of what light members asked, what they got; of what the limit allows, what was used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// `None` without light members.
    pub light: Option<f64>,
    /// Of the limit.
    pub used: f64,
}

/// The figures of the reference model, and how far another random generator may be from them.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// Without shares.
    pub without: Figures,
    /// With shares.
    pub shared: Figures,
    /// Percentage points, for light members without shares; `None` where chance decides.
    pub tolerance_without: Option<f64>,
    /// The same with shares.
    pub tolerance_shared: f64,
    /// What light members get at least; `None` where the table promises nothing.
    pub light_at_least: Option<f64>,
}

/// The percentage of the limit that is used at least, in every row.
pub const USED_AT_LEAST: f64 = 95.0;
/// How far the used percentage may be from the reference.
pub const USED_TOLERANCE: f64 = 0.5;

/// The means over the seeds of a row.
#[derive(Clone, Debug)]
pub struct Results {
    /// Without shares.
    pub without: Figures,
    /// With shares.
    pub shared: Figures,
    /// Admitted a second with shares, by group.
    pub rates: Vec<(&'static str, f64)>,
    /// The percentage that the worst light member got, with shares.
    pub worst_light: Option<f64>,
    /// Whether some span had more than the limit's worst case.
    pub is_above_bound: bool,
}

pub(super) const fn light(members: u32, per_second: f64) -> Group {
    Group {
        is_light: true,
        ..Group::new("light", members, per_second)
    }
}

pub(super) const fn greedy(members: u32, per_second: f64) -> Group {
    Group::new("greedy", members, per_second)
}

const fn from(second: u64, group: Group) -> Group {
    Group {
        from_s: second,
        ..group
    }
}

/// Figures with light members: light and used without shares, light and used with them.
const fn reference(without: (f64, f64), shared: (f64, f64)) -> Reference {
    Reference {
        without: Figures {
            light: Some(without.0),
            used: without.1,
        },
        shared: Figures {
            light: Some(shared.0),
            used: shared.1,
        },
        tolerance_without: Some(1.0),
        tolerance_shared: 1.0,
        light_at_least: Some(99.0),
    }
}

/// Figures without light members.
const fn used(without: f64, shared: f64) -> Reference {
    Reference {
        without: Figures {
            light: None,
            used: without,
        },
        shared: Figures {
            light: None,
            used: shared,
        },
        tolerance_without: Some(1.0),
        tolerance_shared: 1.0,
        light_at_least: None,
    }
}

/// A row that promises light members nothing.
const fn unpromised(tolerance_shared: f64, reference: Reference) -> Reference {
    Reference {
        tolerance_shared,
        light_at_least: None,
        ..reference
    }
}

/// Every row of the table.
pub const SCENARIOS: [Scenario; 14] = [
    Scenario {
        name: "A 5 x 200/s + 95 x 0.5/s",
        groups: &[greedy(5, 200.0), light(95, 0.5)],
        spacing: Spacing::Poisson,
        seconds: (0, 200),
        seeds: 5,
        reference: reference((9.47, 100.0), (99.75, 99.9)),
    },
    Scenario {
        name: "B 1 x 200/s + 1 x 50/s, regular",
        groups: &[greedy(1, 200.0), light(1, 50.0)],
        spacing: Spacing::Regular,
        seconds: (0, 120),
        seeds: 3,
        // First come is first served: who comes first depends on the phases alone.
        reference: Reference {
            tolerance_without: None,
            ..reference((43.93, 100.0), (100.0, 99.8))
        },
    },
    Scenario {
        name: "C 1 x 200/s + 1 x 50/s, Poisson",
        groups: &[greedy(1, 200.0), light(1, 50.0)],
        spacing: Spacing::Poisson,
        seconds: (0, 200),
        seeds: 5,
        reference: unpromised(1.0, reference((40.14, 100.0), (98.33, 99.9))),
    },
    Scenario {
        name: "D 1 x 200/s + 1 x 45/s, Poisson",
        groups: &[greedy(1, 200.0), light(1, 45.0)],
        spacing: Spacing::Poisson,
        seconds: (0, 120),
        seeds: 3,
        reference: reference((40.93, 100.0), (100.0, 99.8)),
    },
    Scenario {
        name: "E 10 equal x 20/s",
        groups: &[Group::new("equal", 10, 20.0)],
        spacing: Spacing::Poisson,
        seconds: (0, 120),
        seeds: 2,
        reference: used(100.0, 99.8),
    },
    Scenario {
        name: "F weights 1:4, both 200/s",
        groups: &[
            Group::new("weight 1", 1, 200.0),
            Group {
                weight: 4,
                ..Group::new("weight 4", 1, 200.0)
            },
        ],
        spacing: Spacing::Poisson,
        seconds: (0, 120),
        seeds: 2,
        reference: used(100.0, 99.9),
    },
    Scenario {
        name: "G weight 1 x 200/s + weight 4 x 70/s",
        groups: &[
            greedy(1, 200.0),
            Group {
                weight: 4,
                ..light(1, 70.0)
            },
        ],
        spacing: Spacing::Poisson,
        seconds: (0, 120),
        seeds: 3,
        reference: reference((37.20, 100.0), (100.0, 99.8)),
    },
    Scenario {
        name: "H A, and one more at 200/s from 60 s (its first 3 s)",
        groups: &[
            greedy(5, 200.0),
            from(60, Group::new("sudden", 1, 200.0)),
            light(95, 0.5),
        ],
        spacing: Spacing::Poisson,
        seconds: (60, 63),
        seeds: 5,
        reference: reference((8.33, 100.0), (99.58, 99.7)),
    },
    Scenario {
        name: "I 5 x 200/s, a light one at 10/s from 60 s (its first 3 s)",
        groups: &[greedy(5, 200.0), from(60, light(1, 10.0))],
        spacing: Spacing::Poisson,
        seconds: (60, 63),
        seeds: 20,
        // 600 requests: the standard deviation is 1.3 points, of a difference 1.8.
        reference: Reference {
            tolerance_without: Some(5.0),
            ..reference((10.91, 100.0), (100.0, 98.5))
        },
    },
    Scenario {
        name: "J 5 x 200/s + 9,995 x 0.004/s",
        groups: &[greedy(5, 200.0), light(9_995, 0.004)],
        spacing: Spacing::Poisson,
        seconds: (0, 200),
        seeds: 3,
        reference: reference((9.49, 100.0), (100.0, 99.9)),
    },
    Scenario {
        name: "K 500 x 2/s + 500 x 0.05/s, first 60 s",
        groups: &[greedy(500, 2.0), light(500, 0.05)],
        spacing: Spacing::Poisson,
        seconds: (0, 60),
        seeds: 2,
        reference: unpromised(3.0, reference((9.79, 100.0), (80.56, 99.8))),
    },
    Scenario {
        name: "L the same after 200 s",
        groups: &[greedy(500, 2.0), light(500, 0.05)],
        spacing: Spacing::Poisson,
        seconds: (200, 400),
        seeds: 2,
        reference: reference((9.12, 100.0), (99.54, 100.0)),
    },
    Scenario {
        name: "M one alone x 200/s",
        groups: &[Group::new("alone", 1, 200.0)],
        spacing: Spacing::Poisson,
        seconds: (0, 60),
        seeds: 2,
        reference: used(100.0, 100.0),
    },
    Scenario {
        name: "N 5,000 x 1/s + 5,000 x 0.004/s after 300 s",
        groups: &[greedy(5_000, 1.0), light(5_000, 0.004)],
        spacing: Spacing::Poisson,
        seconds: (300, 500),
        seeds: 1,
        reference: unpromised(3.0, reference((1.93, 100.0), (89.31, 100.0))),
    },
];

impl Scenario {
    /// The row of a letter.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn row(letter: char) -> Scenario {
        let mut rows = SCENARIOS.into_iter();
        let row = rows.find(|scenario| scenario.name.starts_with(letter));
        row.expect("the letters are A to N")
    }

    /// Decides the traffic of each seed with shares and without.
    pub fn measure(&self, quotas: &Quotas, seeds: u64) -> Results {
        let (mut without, mut shared) = (Vec::new(), Vec::new());
        for seed in 1..=seeds {
            let requests = requests(self.groups, self.spacing, self.seconds.1, seed);
            without.push(run(self, &quotas.without, &requests));
            shared.push(run(self, &quotas.shared, &requests));
        }
        let figures = |runs: &[Run]| Figures {
            light: mean(runs, |run| run.light),
            used: mean(runs, |run| Some(run.used)).unwrap_or(0.0),
        };
        let rates = self.groups.iter().enumerate().map(|(i, group)| {
            let rate = mean(&shared, |run| run.rates.get(i).copied());
            (group.name, rate.unwrap_or(0.0))
        });
        let worst = shared.iter().filter_map(|run| run.worst_light);
        Results {
            without: figures(&without),
            shared: figures(&shared),
            rates: rates.collect(),
            worst_light: worst.reduce(f64::min),
            is_above_bound: without.iter().chain(&shared).any(|run| run.is_above_bound),
        }
    }
}

fn mean(runs: &[Run], figure: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    let figures: Option<Vec<f64>> = runs.iter().map(figure).collect();
    let figures = figures.filter(|figures| !figures.is_empty())?;
    Some(figures.iter().sum::<f64>() / figures.len() as f64)
}
