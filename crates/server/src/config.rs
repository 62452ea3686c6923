//! The rules file: from text to rules, or to everything that is wrong with it. Knows YAML and the
//! file system; knows nothing of requests.

mod checked;
mod field;
mod lint;
mod load;
mod problem;
mod raw;
mod read;
mod reload;
mod report;
mod schema;
mod source;
mod tree;
mod variable;

pub use checked::{GatewaySetting, StoreSetting};
pub use load::{Loaded, load, load_text, load_with};
pub use reload::{Reloaded, Reloader};
pub(crate) use report::ProblemJson;
pub use report::{Report, Style};
pub use schema::schema_text;
