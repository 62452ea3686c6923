//! Integer products and quotients without overflow.

/// Divides `a * b` by `c`. Returns quotient and remainder. The quotient must fit in 64 bits.
#[inline]
pub(crate) const fn mul_div(a: u64, b: u64, c: u64) -> (u64, u64) {
    // 64-bit division is several times cheaper, and nearly every real quota fits.
    if let Some(product) = a.checked_mul(b) {
        return (product / c, product % c);
    }
    div(a as u128 * b as u128, c)
}

/// Divides a wide number. Returns quotient and remainder; a quotient above 64 bits saturates.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "compared first")]
pub(crate) const fn div(n: u128, d: u64) -> (u64, u64) {
    if n <= u64::MAX as u128 {
        let n = n as u64;
        return (n / d, n % d);
    }
    div_wide(n, d)
}

#[cold]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the quotient is compared first, and a remainder is below its 64-bit divisor"
)]
const fn div_wide(n: u128, d: u64) -> (u64, u64) {
    let d = d as u128;
    let quotient = n / d;
    let quotient = if quotient > u64::MAX as u128 {
        u64::MAX
    } else {
        quotient as u64
    };
    (quotient, (n % d) as u64)
}

/// The reciprocal of a divisor, for [`div_by`].
#[inline]
pub(crate) const fn reciprocal(d: u64) -> u64 {
    u64::MAX / d
}

/// Divides by a number whose reciprocal is known, without a division instruction.
#[inline]
pub(crate) fn div_by(n: u64, d: u64, reciprocal: u64) -> u64 {
    // The reciprocal is less than 2^64/d by at most 1, so the product is less by at most n/2^64 < 1,
    // and the quotient is at most one too small.
    let quotient = ((u128::from(n) * u128::from(reciprocal)) >> 64) as u64;
    quotient + u64::from(n - quotient * d >= d)
}

/// Narrows to 32 bits, saturating.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "compared first")]
pub(crate) const fn narrow(n: u64) -> u32 {
    if n > u32::MAX as u64 {
        u32::MAX
    } else {
        n as u32
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn dividing_by_a_reciprocal_is_dividing() {
        let near = |n: u64| [n.wrapping_sub(1), n, n.wrapping_add(1)];
        let numbers: Vec<u64> = (0..64)
            .flat_map(|bit| near(1 << bit))
            .chain([
                3,
                7,
                10,
                1_000,
                999_999_937,
                1_000_000_007,
                0xaaaa_aaaa_aaaa_aaaa,
            ])
            .collect();
        for &d in numbers.iter().filter(|&&d| d > 0) {
            let r = reciprocal(d);
            for &n in &numbers {
                // Around every kind of multiple, where an error would show.
                let multiple = n / d * d;
                for n in near(n).into_iter().chain(near(multiple)) {
                    assert_eq!(div_by(n, d, r), n / d, "{n} / {d}");
                }
            }
        }
    }
}
