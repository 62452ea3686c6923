//! Memory hints to the processor and the system: all `unsafe` code of the crate.

/// Prefetches every cache line of a value without waiting. Where there is no such instruction, reads
/// it with `load`, which the processor may wait for.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline(always)]
pub(super) fn prefetch<T: ?Sized, R>(value: &T, _load: impl FnOnce(&T) -> R) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    const CACHE_LINE_BYTES: usize = 64;
    let start = std::ptr::from_ref(value).cast::<i8>();
    for offset in (0..size_of_val(value)).step_by(CACHE_LINE_BYTES) {
        // SAFETY: a prefetch is a hint. It faults at no address and neither reads nor writes memory
        // as far as the program can observe.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn prefetch<T: ?Sized, R>(value: &T, load: impl FnOnce(&T) -> R) {
    // `black_box`: an unused load would be removed.
    std::hint::black_box(load(value));
}

/// Requests huge pages for memory that is not used yet: fewer TLB misses. Best effort.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(super) fn request_huge_pages<T>(memory: &mut [T]) {
    /// The huge page size of x86-64 and of most ARM systems.
    const PAGE_BYTES: usize = 2 << 20;
    let range = memory.as_mut_ptr_range();
    // Only pages that lie entirely within the memory.
    let start = range.start.addr().next_multiple_of(PAGE_BYTES);
    let end = range.end.addr() / PAGE_BYTES * PAGE_BYTES;
    if start < end {
        let first = range.start.with_addr(start).cast();
        // SAFETY: the range is within memory that is exclusively borrowed, and `MADV_HUGEPAGE` does
        // not change its contents.
        let _ = unsafe { libc::madvise(first, end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn request_huge_pages<T>(_: &mut [T]) {}
