//! Two tenants in one bucket, a greedy one and a light one: first come, first served, and shared.

use std::io::{self, Write};

use tallygate_core::{Algorithm, Caller, Quota, State, Verb, evaluate_by};

use super::simulation::{START_US, TICK_US, TICKS};
use super::{Code, Style, row, ruler};
use crate::describe;
use crate::format::write_wrapped;

const WITHOUT: &str = "token-bucket 10/s burst 16";
const SHARED: &str = "token-bucket 10/s burst 16 shared 4";

/// When the greedy tenant asks, and how often a tick.
const GREEDY: std::ops::Range<usize> = 8..54;
const GREEDY_A_TICK: u32 = 4;
/// The light tenant asks once in so many ticks: less than half of the limit.
const LIGHT_EVERY: usize = 3;

/// What one tenant asked and got, by tick.
#[derive(Clone, Copy)]
struct Tenant {
    asked: [u32; TICKS],
    admitted: [u32; TICKS],
}

impl Tenant {
    fn refused(&self) -> [u32; TICKS] {
        std::array::from_fn(|tick| self.asked[tick] - self.admitted[tick])
    }
}

/// The greedy tenant, which is always first, and the light one.
fn tenants() -> [Tenant; 2] {
    let tenant = |asked: fn(usize) -> u32| Tenant {
        asked: std::array::from_fn(asked),
        admitted: [0; TICKS],
    };
    [
        tenant(|tick| u32::from(GREEDY.contains(&tick)) * GREEDY_A_TICK),
        tenant(|tick| u32::from(tick % LIGHT_EVERY == 1)),
    ]
}

fn run(quota: &Quota) -> [Tenant; 2] {
    let mut tenants = tenants();
    let mut state = State::New;
    for tick in 0..TICKS {
        let now = START_US + tick as u64 * TICK_US;
        for (member, tenant) in (1..).zip(&mut tenants) {
            let caller = Caller {
                member,
                ..Caller::NONE
            };
            for _ in 0..tenant.asked[tick] {
                let verdict = evaluate_by(quota, &mut state, &caller, Verb::Check, 1, now);
                tenant.admitted[tick] += u32::from(verdict.allowed());
            }
        }
    }
    tenants
}

pub(super) fn draw(style: Style, out: &mut impl Write) -> io::Result<()> {
    let title = "Fair shares: a greedy tenant and a light one share 10 requests per second";
    writeln!(out, "{}\n", style.paint(Code::Bold, title))?;
    ruler(style, out)?;
    let [greedy, light] = tenants();
    row(out, "greedy", &greedy.asked, style, Code::Bold)?;
    row(out, "light", &light.asked, style, Code::Bold)?;

    let [without, shared]: [Quota; 2] =
        [WITHOUT, SHARED].map(|text| text.parse().expect("the demo's quotas are valid"));
    let text = describe::demo(Algorithm::SharedTokenBucket);
    let runs = [
        (
            without,
            "first come, first served",
            "The greedy tenant takes every unit as it comes back. The light one asks for a third of \
             the limit, and gets nothing once the burst is spent.",
        ),
        (shared, text.effect, text.caption),
    ];
    for (quota, effect, caption) in runs {
        writeln!(
            out,
            "\n{}: {effect}",
            style.paint(Code::Bold, &quota.to_string())
        )?;
        for (name, tenant) in ["greedy", "light"].into_iter().zip(run(&quota)) {
            row(out, name, &tenant.admitted, style, Code::Green)?;
            row(out, "  refused", &tenant.refused(), style, Code::Red)?;
        }
        write_wrapped(caption, 2, 74, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_light_tenant_gets_all_it_asks_for_only_with_shares() {
        let [without, shared] = [WITHOUT, SHARED].map(|text| {
            let [greedy, light] = run(&text.parse().unwrap());
            let sum = |ticks: &[u32; TICKS]| ticks.iter().sum::<u32>();
            [&greedy, &light].map(|tenant| (sum(&tenant.asked), sum(&tenant.admitted)))
        });
        let (asked, admitted) = without[1];
        assert!(3 * admitted < 2 * asked, "{admitted} of {asked}");
        assert_eq!(shared[1].0, shared[1].1);
        // Nothing is lost: together they get the same, but for the reserve.
        let total = |run: [(u32, u32); 2]| run[0].1 + run[1].1;
        assert!(total(shared) + 4 >= total(without));
    }
}
