//! Which limit `RateLimit` and `X-RateLimit-*` show.

use tallygate_core::Verdict;

/// The limit to show: of those that refuse the one with the longest retry, otherwise the one with
/// the smallest remaining part of its capacity. The first of equals.
pub(in crate::http) fn shown<'v, T>(
    limits: impl IntoIterator<Item = (T, &'v Verdict)>,
) -> Option<(T, &'v Verdict)> {
    limits
        .into_iter()
        .reduce(|best, next| match precedes(next.1, best.1) {
            true => next,
            false => best,
        })
}

fn precedes(verdict: &Verdict, other: &Verdict) -> bool {
    match (verdict.retry(), other.retry()) {
        (Some(retry), Some(other)) => match (retry.us(), other.us()) {
            (Some(us), Some(other)) => us > other,
            (None, Some(_)) => true,
            (_, None) => false,
        },
        (Some(_), None) => true,
        (None, Some(_)) => false,
        (None, None) => smaller_part(
            (verdict.remaining, verdict.limit),
            (other.remaining, other.limit),
        ),
    }
}

/// Compares the remaining parts of two capacities, without a division.
pub(super) fn smaller_part((remaining, limit): (u32, u32), other: (u32, u32)) -> bool {
    let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
    product(remaining, other.1) < product(other.0, limit)
}

#[cfg(test)]
mod tests {
    use tallygate_core::{Outcome, Retry};

    use super::*;

    fn admitted(remaining: u32, limit: u32) -> Verdict {
        Verdict {
            outcome: Outcome::Admitted {
                granted: 1,
                delay_us: 0,
            },
            limit,
            remaining,
            reset_after_us: 1,
        }
    }

    fn refused(retry: Retry) -> Verdict {
        Verdict {
            outcome: Outcome::Refused { retry },
            ..admitted(0, 10)
        }
    }

    #[test]
    fn the_smallest_part_or_the_longest_retry_is_shown() {
        let after = |us| refused(Retry::after_us(us));
        let never = refused(Retry::Never);
        let max = u32::MAX;
        for (verdicts, expected) in [
            (vec![], None),
            (vec![admitted(5, 10)], Some(0)),
            // 9 % is less than 50 %, although 90 is more than 5.
            (vec![admitted(5, 10), admitted(90, 1_000)], Some(1)),
            (vec![admitted(1, 3), admitted(2, 6)], Some(0)),
            (vec![admitted(0, 1), admitted(0, 9)], Some(0)),
            (vec![admitted(max, max), admitted(max - 1, max)], Some(1)),
            (vec![admitted(0, 10), after(1)], Some(1)),
            (vec![after(1), admitted(0, 10)], Some(0)),
            (vec![after(1), after(2)], Some(1)),
            (vec![after(2), after(2)], Some(0)),
            (vec![after(u64::MAX), never, never], Some(1)),
        ] {
            let found = shown(verdicts.iter().enumerate().collect::<Vec<_>>());
            assert_eq!(found.map(|(i, _)| i), expected, "{verdicts:?}");
        }
    }
}
