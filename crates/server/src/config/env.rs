//! Environment variables in text: `${NAME}` and `${NAME:-default}`. Runs after YAML is read, so
//! that no value can change what a file means; knows no field.

use super::diagnostic::{self, Problem, code, quoted};
use super::source::{Sources, Span};
use super::yaml::{Kind, Node, Scalar};

/// The longest that one text may become.
const LONGEST: usize = 64 << 10;

/// What the environment holds; a closure, so that a test need not change the process's own.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces every variable below a node.
pub(crate) fn replace(
    node: &mut Node,
    sources: &Sources,
    environment: Environment<'_>,
    problems: &mut Vec<Problem>,
) {
    match &mut node.kind {
        Kind::Nothing | Kind::Broken => {}
        Kind::Scalar(scalar) => {
            if scalar.text.contains('$')
                && let Err(problem) = replace_text(scalar, node.span, sources, environment)
            {
                diagnostic::note(problems, problem);
                node.kind = Kind::Broken;
            }
        }
        Kind::List(items) => {
            for item in items {
                replace(item, sources, environment, problems);
            }
        }
        Kind::Map(entries) => {
            for entry in entries {
                replace(&mut entry.value, sources, environment, problems);
            }
        }
    }
}

fn replace_text(
    scalar: &mut Scalar,
    span: Span,
    sources: &Sources,
    environment: Environment<'_>,
) -> Result<(), Problem> {
    let text = scalar.text.clone();
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(dollar) = rest.find('$') {
        replaced.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$$") {
            replaced.push('$');
            rest = after;
            continue;
        }
        let wrong = |part: &str, message: String| {
            Problem::error(code::VARIABLE, find(sources, span, part), message)
        };
        let Some(inside) = rest.strip_prefix("${") else {
            let name: String = rest[1..].chars().take_while(|&c| is_name(c)).collect();
            let part = &rest[..1 + name.len()];
            let problem = wrong(part, "a lone `$` stands for nothing".into());
            return Err(problem.help(if name.is_empty() {
                "write `$$` for a dollar".to_owned()
            } else {
                format!("write `${{{name}}}` for the variable, `$${name}` for the text")
            }));
        };
        let Some(end) = inside.find('}') else {
            let problem = wrong(rest, "the `}` of a variable is missing".into());
            return Err(problem.help("write `${NAME}` or `${NAME:-default}`"));
        };
        let whole = &rest[..end + 3];
        let (name, default) = match inside[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inside[..end], None),
        };
        if name.is_empty() || !name.chars().all(is_name) || name.starts_with(char::is_numeric) {
            let message = format!("{} is no name of a variable", quoted(name));
            let problem = wrong(whole, message);
            return Err(problem.help("write `${NAME}` or `${NAME:-default}`"));
        }
        // As in a shell, `:-` takes an empty variable for a missing one.
        let value = environment(name).filter(|value| default.is_none() || !value.is_empty());
        match (value, default) {
            (Some(value), _) => {
                replaced.push_str(&value);
                scalar.variables.push(name.to_owned());
            }
            (None, Some(default)) => replaced.push_str(default),
            (None, None) => {
                let message = format!("the environment variable `{name}` is not set");
                let hint = format!("set it, or give a default: `${{{name}:-…}}`");
                return Err(wrong(whole, message).help(hint));
            }
        }
        if replaced.len() > LONGEST {
            let message = format!("the text is longer than {LONGEST} bytes with its variables");
            return Err(wrong(whole, message));
        }
        rest = &inside[end + 1..];
    }
    replaced.push_str(rest);
    scalar.text = replaced;
    Ok(())
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The place of a part of a text: exactly, if it is in the file as it is.
fn find(sources: &Sources, span: Span, part: &str) -> Span {
    match sources.slice(span).find(part) {
        Some(at) => {
            let start = span.start as usize + at;
            Span::new(span.file, start..start + part.len())
        }
        None => span,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml;

    fn replaced(text: &str) -> Result<(String, Vec<String>), String> {
        let mut sources = Sources::default();
        let file = sources.add("f", None, format!("'{text}'"));
        let mut problems = Vec::new();
        let mut node = yaml::parse(&sources, file, &mut problems).unwrap();
        let environment = |name: &str| match name {
            "SET" => Some("value".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${SET}".to_owned()),
            _ => None,
        };
        replace(&mut node, &sources, &environment, &mut problems);
        match (node.kind, problems.pop()) {
            (Kind::Scalar(scalar), None) => Ok((scalar.text, scalar.variables)),
            (_, problem) => Err(problem.unwrap().message),
        }
    }

    #[test]
    fn variables_and_defaults_are_put_in() {
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
            assert_eq!(replaced(text).unwrap().0, expected, "{text}");
        }
    }

    #[test]
    fn a_value_is_not_looked_at_again() {
        let (text, variables) = replaced("${NESTED}").unwrap();
        assert_eq!((text.as_str(), variables.len()), ("${SET}", 1));
    }

    #[test]
    fn only_what_came_from_the_environment_is_marked() {
        assert!(replaced("${UNSET:-x}").unwrap().1.is_empty());
        assert_eq!(replaced("${SET:-x}").unwrap().1, ["SET"]);
    }

    #[test]
    fn what_is_no_variable_is_an_error() {
        for text in [
            "${UNSET}", "$SET", "a $ b", "${SET", "${}", "${a b}", "${1}", "$",
        ] {
            assert!(replaced(text).is_err(), "{text}");
        }
    }
}
