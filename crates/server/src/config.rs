//! The rules file: loading, diagnostics, lints and its JSON Schema.

mod deserialize;
mod diagnostic;
mod env;
mod json_schema;
mod lint;
mod load;
mod report;
mod schema;
mod source;
mod validate;
mod yaml;

pub use json_schema::json_schema;
pub use load::{Config, load, load_bytes, load_with_env};
pub(crate) use report::DiagnosticJson;
pub use report::{Report, Style};
pub use validate::{GatewayConfig, StoreConfig};
