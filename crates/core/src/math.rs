//! Products and quotients that stay whole and never overflow. Knows nothing of quotas.

/// Divides `a * b` by `c`, giving quotient and remainder. The quotient must fit in 64 bits.
#[inline]
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> (u64, u64) {
    // 64-bit division is several times cheaper, and nearly every real quota fits.
    if let Some(product) = a.checked_mul(b) {
        return (product / c, product % c);
    }
    div(u128::from(a) * u128::from(b), c)
}

/// Divides a wide number, giving quotient and remainder; a quotient past 64 bits saturates.
#[inline]
pub(crate) fn div(n: u128, d: u64) -> (u64, u64) {
    if let Ok(n) = u64::try_from(n) {
        return (n / d, n % d);
    }
    div_wide(n, d)
}

#[cold]
fn div_wide(n: u128, d: u64) -> (u64, u64) {
    let d = u128::from(d);
    let quotient = u64::try_from(n / d).unwrap_or(u64::MAX);
    let remainder = u64::try_from(n % d).expect("a remainder is below its 64-bit divisor");
    (quotient, remainder)
}

/// Narrows to 32 bits, saturating.
#[inline]
pub(crate) fn narrow(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
