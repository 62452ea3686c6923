//! Environment variables in scalars: `${NAME}` and `${NAME:-default}`. Expanded after parsing, so
//! that a value cannot change the structure of the file.

use super::diagnostic::{Diagnostics, code, quoted};
use super::source::{Sources, Span};
use super::yaml::{Kind, Node, Scalar};

const MAX_EXPANDED_BYTES: usize = 64 << 10;

pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(crate) fn expand(
    node: &mut Node,
    sources: &Sources,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) {
    match &mut node.kind {
        Kind::Null | Kind::Invalid => {}
        Kind::Scalar(scalar) => {
            if let Err(error) = expand_scalar(scalar, environment) {
                // Point at the variable if it is in the file literally.
                let span = match sources.slice(node.span).find(&error.part) {
                    Some(at) => {
                        let start = node.span.start as usize + at;
                        Span::new(node.span.file, start..start + error.part.len())
                    }
                    None => node.span,
                };
                diagnostics
                    .error(code::VARIABLE, span, error.message)
                    .maybe_help(error.help);
                node.kind = Kind::Invalid;
            }
        }
        Kind::List(items) => {
            for item in items {
                expand(item, sources, environment, diagnostics);
            }
        }
        Kind::Map(entries) => {
            for entry in entries {
                expand(&mut entry.value, sources, environment, diagnostics);
            }
        }
    }
}

struct ExpandError {
    /// The part of the scalar that is wrong.
    part: String,
    message: String,
    help: Option<String>,
}

fn expand_scalar(scalar: &mut Scalar, environment: Environment<'_>) -> Result<(), ExpandError> {
    const SYNTAX: &str = "write `${NAME}` or `${NAME:-default}`";
    let text = scalar.text.clone();
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(dollar) = rest.find('$') {
        expanded.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$$") {
            expanded.push('$');
            rest = after;
            continue;
        }
        let error = |part: &str, message: String, help: Option<String>| {
            let part = part.to_owned();
            Err(ExpandError {
                part,
                message,
                help,
            })
        };
        let Some(inside) = rest.strip_prefix("${") else {
            let name: String = rest[1..].chars().take_while(|&c| is_name(c)).collect();
            let help = match name.is_empty() {
                true => "write `$$` for a dollar sign".to_owned(),
                false => format!("write `${{{name}}}` for the variable, `$${name}` for the text"),
            };
            return error(&rest[..1 + name.len()], "unescaped `$`".into(), Some(help));
        };
        let Some(end) = inside.find('}') else {
            return error(
                rest,
                "missing `}` of a variable".into(),
                Some(SYNTAX.into()),
            );
        };
        let whole = &rest[..end + 3];
        let (name, default) = match inside[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inside[..end], None),
        };
        if name.is_empty() || !name.chars().all(is_name) || name.starts_with(char::is_numeric) {
            let message = format!("invalid variable name {}", quoted(name));
            return error(whole, message, Some(SYNTAX.into()));
        }
        // As in a shell, `:-` also replaces an empty value.
        let value = environment(name).filter(|value| default.is_none() || !value.is_empty());
        match (value, default) {
            (Some(value), _) => {
                expanded.push_str(&value);
                scalar.variables.push(name.to_owned());
            }
            (None, Some(default)) => expanded.push_str(default),
            (None, None) => {
                let message = format!("environment variable `{name}` is not set");
                let help = format!("set it, or add a default: `${{{name}:-…}}`");
                return error(whole, message, Some(help));
            }
        }
        if expanded.len() > MAX_EXPANDED_BYTES {
            let message = format!("the expanded text is longer than {MAX_EXPANDED_BYTES} bytes");
            return error(whole, message, None);
        }
        rest = &inside[end + 1..];
    }
    expanded.push_str(rest);
    scalar.text = expanded;
    Ok(())
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand_text(text: &str) -> Option<(String, Vec<String>)> {
        let mut scalar = Scalar {
            text: text.to_owned(),
            variables: Vec::new(),
        };
        let environment = |name: &str| match name {
            "SET" => Some("value".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${SET}".to_owned()),
            _ => None,
        };
        expand_scalar(&mut scalar, &environment).ok()?;
        Some((scalar.text, scalar.variables))
    }

    #[test]
    fn variables_and_defaults_are_expanded() {
        for (text, expected) in [
            ("a ${SET} b", "a value b"),
            ("${SET}${SET}", "valuevalue"),
            ("${UNSET:-default}", "default"),
            ("${UNSET:-}", ""),
            ("${EMPTY:-default}", "default"),
            ("${EMPTY}", ""),
            ("$$", "$"),
            ("$${SET}", "${SET}"),
            ("${UNSET:-a:-b}", "a:-b"),
        ] {
            assert_eq!(expand_text(text).unwrap().0, expected, "{text}");
        }
    }

    #[test]
    fn values_are_not_expanded_again() {
        let (text, variables) = expand_text("${NESTED}").unwrap();
        assert_eq!((text.as_str(), variables.len()), ("${SET}", 1));
    }

    #[test]
    fn only_values_from_the_environment_are_recorded() {
        assert!(expand_text("${UNSET:-x}").unwrap().1.is_empty());
        assert_eq!(expand_text("${SET:-x}").unwrap().1, ["SET"]);
    }

    #[test]
    fn invalid_variables_are_rejected() {
        for text in [
            "${UNSET}", "$SET", "a $ b", "${SET", "${}", "${a b}", "${1}", "$",
        ] {
            assert!(expand_text(text).is_none(), "{text}");
        }
    }
}
