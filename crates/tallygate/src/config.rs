//! The rules file: loading, diagnostics, lints and its JSON Schema.
//!
//! ```
//! use tallygate::rules::Rules;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = b"version: 1\nrules: [{ name: all, key: ip, limits: 100/min }]";
//! // `load` reads a file and the files it includes.
//! let config = tallygate::config::load_bytes("rules.yaml", file, &|_| None)?;
//! let rules = Rules::new(config.rules)?;
//! # Ok(())
//! # }
//! ```

mod deserialize;
mod diagnostic;
mod env;
mod json_schema;
mod lint;
mod load;
mod report;
#[cfg(feature = "simulate")]
mod scenario;
mod schema;
mod source;
mod validate;
mod yaml;

#[cfg(feature = "simulate")]
pub(crate) use diagnostic::{did_you_mean, either};
pub use json_schema::json_schema;
pub use load::{Config, load, load_bytes, load_with_env};
pub use report::{DiagnosticJson, Report, Style};
#[cfg(feature = "simulate")]
pub(crate) use scenario::{load_scenario, load_scenario_bytes};
pub use validate::{
    DEFAULT_KEYS, GatewayConfig, GatewaySizes, GatewayTimeouts, RefusalCacheConfig, StoreConfig,
};
