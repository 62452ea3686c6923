//! The JSON Schema of the rules file, generated from the types of `schema`.

use schemars::generate::SchemaSettings;

use super::schema;

/// Returns the JSON Schema of the rules file, as in docs/rules.schema.json.
pub fn json_schema() -> String {
    // The draft with the best support in editors.
    let generator = SchemaSettings::draft07().into_generator();
    let schema = generator.into_root_schema_for::<schema::RulesFile>();
    let text = serde_json::to_string_pretty(&schema);
    text.expect("a schema only has string keys") + "\n"
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use super::json_schema;
    use crate::config::diagnostic::Diagnostics;
    use crate::config::load;
    use crate::config::source::Sources;
    use crate::config::yaml::{self, Kind, Node};

    fn json(node: &Node) -> Value {
        match &node.kind {
            Kind::Null | Kind::Invalid => Value::Null,
            Kind::Scalar(scalar) => match scalar.text.as_str() {
                "true" => true.into(),
                "false" => false.into(),
                text => text
                    .parse::<u64>()
                    .map_or_else(|_| text.into(), Value::from),
            },
            Kind::List(items) => items.iter().map(json).collect(),
            Kind::Map(entries) => {
                let fields = entries.iter();
                let fields = fields.map(|entry| (entry.name().to_owned(), json(&entry.value)));
                Value::Object(fields.collect())
            }
        }
    }

    /// Whether a value has all keywords that our schema uses. Panics at any other keyword.
    fn is_valid(root: &Value, schema: &Value, value: &Value) -> bool {
        let Value::Object(keywords) = schema else {
            return *schema == true;
        };
        let known = keywords.get("properties").and_then(Value::as_object);
        let fits = |schema: &Value| is_valid(root, schema, value);
        keywords.iter().all(|(keyword, expected)| {
            let list = expected.as_array().map_or(&[][..], Vec::as_slice);
            match keyword.as_str() {
                "$ref" => fits(root.pointer(&expected.as_str().unwrap()[1..]).unwrap()),
                "type" if !list.is_empty() => list.iter().any(|name| is_type(value, name)),
                "type" => is_type(value, expected),
                "properties" => expected.as_object().unwrap().iter().all(|(name, schema)| {
                    let value = value.get(name);
                    value.is_none_or(|value| is_valid(root, schema, value))
                }),
                "additionalProperties" => value.as_object().is_none_or(|object| {
                    let is_known = |name| known.is_some_and(|known| known.contains_key(name));
                    let mut others = object.iter().filter(|(name, _)| !is_known(*name));
                    others.all(|(_, value)| is_valid(root, expected, value))
                }),
                "required" => {
                    let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
                    !value.is_object() || list.iter().all(has)
                }
                "items" => value.as_array().is_none_or(|items| {
                    let mut items = items.iter();
                    items.all(|item| is_valid(root, expected, item))
                }),
                "anyOf" => list.iter().any(fits),
                "enum" => list.contains(value),
                "minimum" => value.as_u64() >= expected.as_u64(),
                "pattern" => {
                    assert_eq!(expected, r"\$\{");
                    value.as_str().is_none_or(|text| text.contains("${"))
                }
                "$schema" | "title" | "description" | "definitions" => true,
                other => panic!("unknown keyword {other}"),
            }
        })
    }

    fn is_type(value: &Value, name: &Value) -> bool {
        match name.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64(),
            "number" => value.is_number(),
            "null" => value.is_null(),
            other => panic!("type {other}"),
        }
    }

    fn is_valid_file(text: &str) -> bool {
        let mut sources = Sources::default();
        let file = sources.add("f", None, text.to_owned());
        let node = yaml::parse(&sources, file, &mut Diagnostics::default()).unwrap();
        let root = serde_json::from_str(&json_schema()).unwrap();
        is_valid(&root, &root, &json(&node))
    }

    #[test]
    fn documented_examples_are_valid() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
        for text in load::tests::blocks(&fs::read_to_string(docs).unwrap()) {
            assert!(is_valid_file(&text), "{text}");
        }
    }

    #[test]
    fn unknown_fields_and_wrong_types_are_invalid() {
        for text in [
            "rules: []",
            "version: 1\nruels: []",
            "version: 1\nrules: [{ name: a, limits: 1/s, cost: {} , x: 1 }]",
            "version: 1\nrules: [{ name: a, limits: 1/s, shadow: maybe }]",
            "version: 1\nrules: [{ limits: 1/s }]",
            "version: 1\nrules: [{ name: a, limits: { quota: 1/s, nane: b } }]",
            "version: 1\non_failure: shut",
            "version: 1\nheaders: { ratelimit: newest }",
        ] {
            assert!(!is_valid_file(text), "{text}");
        }
    }

    #[test]
    fn docs_contain_the_current_schema() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.schema.json");
        let text = json_schema();
        if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
            fs::write(&path, text).unwrap();
            return;
        }
        assert!(
            fs::read_to_string(&path).unwrap_or_default() == text,
            "docs/rules.schema.json is outdated; run with UPDATE_GOLDEN=1"
        );
    }
}
