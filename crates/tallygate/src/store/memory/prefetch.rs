//! Hints about memory, to the processor and to the system; all the `unsafe` there is. Knows nothing
//! of what is kept there.

use std::mem::MaybeUninit;

/// Starts to bring something near, every cache line of it, and does not wait. Where there is no
/// instruction for that, looks at it, which the processor may wait for.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline(always)]
pub(super) fn prefetch<T: ?Sized, R>(wanted: &T, _look: impl FnOnce(&T) -> R) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    const LINE: usize = 64;
    let start = std::ptr::from_ref(wanted).cast::<i8>();
    for line in (0..size_of_val(wanted)).step_by(LINE) {
        // SAFETY: a prefetch is a hint. It faults at no address, and what is there is neither read
        // nor written as far as the program can tell.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn prefetch<T: ?Sized, R>(wanted: &T, look: impl FnOnce(&T) -> R) {
    // A load that nobody looks at would not be made.
    std::hint::black_box(look(wanted));
}

/// Asks for memory that is about to be filled, and then read all over, to come in large pages: the
/// processor remembers where few pages are, and has to look up where others are. Takes no memory
/// more, and does without where there are none to be had.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(super) fn large_pages<T>(room: &mut [MaybeUninit<T>]) {
    /// Those of the most common processors. Where they are larger nothing is lost.
    const PAGE: usize = 2 << 20;
    let bytes = room.as_mut_ptr_range();
    let (start, end) = (bytes.start.addr(), bytes.end.addr());
    // Whole ones only: no other memory is any part of them.
    let (start, end) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
    if start < end {
        let first = bytes.start.with_addr(start).cast();
        // SAFETY: the range is within memory that is ours alone for now, and what is in it stays
        // as it is: this is a hint, and whether it is followed makes no difference to a program.
        let _ = unsafe { libc::madvise(first, end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn large_pages<T>(_: &mut [MaybeUninit<T>]) {}
