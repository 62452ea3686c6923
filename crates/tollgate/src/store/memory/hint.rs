//! Asks for memory that will be wanted soon; the one `unsafe` there is. Knows nothing of what is
//! kept there.

/// Starts to bring something near, every cache line of it, and does not wait. Where there is no
/// instruction for that, looks at it, which the processor may wait for.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline(always)]
pub(super) fn prefetch<T, R>(wanted: &T, _look: impl FnOnce(&T) -> R) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    const LINE: usize = 64;
    let start = std::ptr::from_ref(wanted).cast::<i8>();
    for line in (0..size_of::<T>()).step_by(LINE) {
        // SAFETY: a prefetch is a hint. It faults at no address, and what is there is neither read
        // nor written as far as the program can tell.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn prefetch<T, R>(wanted: &T, look: impl FnOnce(&T) -> R) {
    // A load that nobody looks at would not be made.
    std::hint::black_box(look(wanted));
}
