//! The rules file: from text to rules, or to everything that is wrong with it. Knows YAML and the
//! file system; knows nothing of requests.

mod deserialize;
mod diagnostic;
mod env;
mod field;
mod json_schema;
mod lint;
mod load;
mod reload;
mod report;
mod schema;
mod source;
mod validate;
mod yaml;

pub use json_schema::schema_text;
pub use load::{Loaded, load, load_text, load_with};
pub use reload::{Reloaded, Reloader};
pub(crate) use report::ProblemJson;
pub use report::{Report, Style};
pub use validate::{GatewaySetting, StoreSetting};
