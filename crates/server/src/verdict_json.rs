//! A verdict as JSON, the same bytes in a replay and in the check API.

use tallygate_core::Verdict;

/// Writes the fields from the value of `allowed` to that of `delay_us`.
pub(crate) fn write_verdict(to: &mut Vec<u8>, verdict: &Verdict) {
    to.extend(if verdict.allowed() {
        &b"true"[..]
    } else {
        b"false"
    });
    to.extend(b",\"granted\":");
    write_number(to, verdict.granted());
    to.extend(b",\"limit\":");
    write_number(to, verdict.limit);
    to.extend(b",\"remaining\":");
    write_number(to, verdict.remaining);
    to.extend(b",\"retry_after_us\":");
    match verdict.retry_after_us() {
        Some(us) => write_number(to, us),
        None => to.extend(b"null"),
    }
    to.extend(b",\"reset_after_us\":");
    write_number(to, verdict.reset_after_us);
    to.extend(b",\"delay_us\":");
    write_number(to, verdict.delay_us());
}

pub(crate) fn write_number(to: &mut Vec<u8>, n: impl itoa::Integer) {
    to.extend(itoa::Buffer::new().format(n).as_bytes());
}
