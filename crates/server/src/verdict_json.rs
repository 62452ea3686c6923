//! The figures of a verdict as JSON, to the byte: the same in a replay and from a server. Knows
//! nothing of what stands before and after them.

use tallygate_core::Verdict;

/// Writes the figures from the value of `allowed` to that of `delay_us`.
pub(crate) fn figures(to: &mut Vec<u8>, verdict: &Verdict) {
    to.extend(if verdict.allowed() {
        &b"true"[..]
    } else {
        b"false"
    });
    to.extend(b",\"granted\":");
    number(to, verdict.granted());
    to.extend(b",\"limit\":");
    number(to, verdict.limit);
    to.extend(b",\"remaining\":");
    number(to, verdict.remaining);
    to.extend(b",\"retry_after_us\":");
    match verdict.retry_after_us() {
        Some(us) => number(to, us),
        None => to.extend(b"null"),
    }
    to.extend(b",\"reset_after_us\":");
    number(to, verdict.reset_after_us);
    to.extend(b",\"delay_us\":");
    number(to, verdict.delay_us());
}

/// Writes a number.
pub(crate) fn number(to: &mut Vec<u8>, n: impl itoa::Integer) {
    to.extend(itoa::Buffer::new().format(n).as_bytes());
}
