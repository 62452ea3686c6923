//! Values at paths of JSON that passes by, without I/O and without keeping what was read.

mod body;
mod path;
mod scanner;

pub(crate) use body::is_identity;
pub use body::{JsonBody, MAX_JSON_BYTES};
pub use path::JsonPath;
pub use scanner::{JsonScanner, JsonValue, MAX_JSON_PATHS};
