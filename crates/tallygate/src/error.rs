//! `Debug` of errors.

/// Prints the text of an error as its `Debug`: programs that return an error from `main` print it
/// with that.
macro_rules! debug_is_display {
    ($type:ty) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub(crate) use debug_is_display;
