//! The JSON Schema of a rules file, for editors. Made of the types that read it, so that it cannot
//! say anything else.

use schemars::Schema;
use schemars::generate::SchemaSettings;

use super::schema;

/// The schema.
pub(crate) fn schema() -> Schema {
    // The version that editors know best.
    let settings = SchemaSettings::draft07();
    settings
        .into_generator()
        .into_root_schema_for::<schema::File>()
}

/// The schema as it is printed and kept in docs/rules.schema.json.
pub fn schema_text() -> String {
    let mut text =
        serde_json::to_string_pretty(&schema()).expect("a schema is made of maps with text keys");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
