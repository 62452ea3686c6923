//! The schema is true: what loads is valid, and what it knows is what is read. A small validator
//! for the words our schema uses; one that it does not know makes it fail.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::schema;
use crate::config::source::Sources;
use crate::config::yaml::{self, Kind, Node};

/// A file as JSON has it, numbers and flags told apart as YAML does.
fn json(text: &str) -> Value {
    fn value(node: &Node) -> Value {
        match &node.kind {
            Kind::Nothing | Kind::Broken => Value::Null,
            Kind::Scalar(scalar) => match scalar.text.as_str() {
                "true" => true.into(),
                "false" => false.into(),
                text => text
                    .parse::<u64>()
                    .map_or_else(|_| text.into(), Value::from),
            },
            Kind::List(items) => items.iter().map(value).collect(),
            Kind::Map(entries) => entries
                .iter()
                .map(|entry| (entry.name().to_owned(), value(&entry.value)))
                .collect::<Map<_, _>>()
                .into(),
        }
    }
    let mut sources = Sources::default();
    let file = sources.add("f", None, text.to_owned());
    value(&yaml::parse(&sources, file, &mut Vec::new()).unwrap())
}

/// Checks a value; the path of the first thing that does not hold.
fn valid(root: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let Value::Object(words) = schema else {
        return match schema {
            Value::Bool(true) => Ok(()),
            _ => Err(format!("{path}: nothing is allowed")),
        };
    };
    for (word, wanted) in words {
        let holds = match word.as_str() {
            "$ref" => {
                let pointer = wanted.as_str().unwrap().strip_prefix('#').unwrap();
                valid(root, root.pointer(pointer).unwrap(), value, path)?;
                true
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64(),
                    "number" => value.is_number(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                wanted
                    .as_array()
                    .map_or_else(|| is(wanted), |list| list.iter().any(is))
            }
            "properties" => {
                for (name, schema) in wanted.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        valid(root, schema, value, &format!("{path}.{name}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = words.get("properties").and_then(Value::as_object);
                for (name, value) in value.as_object().into_iter().flatten() {
                    if known.is_none_or(|known| !known.contains_key(name)) {
                        valid(root, wanted, value, &format!("{path}.{name}"))?;
                    }
                }
                true
            }
            "required" => {
                let names = wanted.as_array().unwrap();
                let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
                !value.is_object() || names.iter().all(has)
            }
            "items" => {
                for value in value.as_array().into_iter().flatten() {
                    valid(root, wanted, value, &format!("{path}[]"))?;
                }
                true
            }
            "anyOf" | "oneOf" | "allOf" => {
                let schemas = wanted.as_array().unwrap();
                let fits = |schema: &&Value| valid(root, schema, value, path).is_ok();
                let number = schemas.iter().filter(fits).count();
                match word.as_str() {
                    "anyOf" => number > 0,
                    "oneOf" => number == 1,
                    _ => number == schemas.len(),
                }
            }
            "enum" => wanted.as_array().unwrap().contains(value),
            "const" => wanted == value,
            "minimum" => value.as_u64() >= wanted.as_u64(),
            // The only pattern there is.
            "pattern" => {
                assert_eq!(wanted, r"\$\{");
                value.as_str().is_none_or(|text| text.contains("${"))
            }
            "$schema" | "title" | "description" | "definitions" => true,
            other => panic!("the schema says {other}, which this test does not know"),
        };
        if !holds {
            return Err(format!("{path}: {word} does not hold"));
        }
    }
    Ok(())
}

fn check(text: &str) -> Result<(), String> {
    let root = serde_json::to_value(schema()).unwrap();
    valid(&root, &root, &json(text), "")
}

fn documented() -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
    crate::config::load::tests::blocks(&fs::read_to_string(docs).unwrap())
}

#[test]
fn every_documented_file_is_valid() {
    for text in documented() {
        assert_eq!(check(&text), Ok(()), "{text}");
    }
}

#[test]
fn a_file_with_an_unknown_field_or_a_wrong_type_is_not() {
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
        assert!(check(text).is_err(), "{text}");
    }
}

#[test]
fn the_schema_in_the_docs_is_the_one_that_is_printed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.schema.json");
    let text = super::schema_text();
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == text,
        "docs/rules.schema.json is not what `tallygate config schema` prints; UPDATE_GOLDEN=1"
    );
}
