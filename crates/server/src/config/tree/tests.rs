//! Bounds of the tree, and what it does with keys and emptiness.

use super::*;

fn parsed(text: &str) -> (Option<Node>, Vec<&'static str>) {
    let mut sources = Sources::default();
    let file = sources.add("f", None, text.to_owned());
    let mut problems = Vec::new();
    let node = parse(&sources, file, &mut problems);
    (node, problems.iter().map(|problem| problem.code).collect())
}

#[test]
fn a_bomb_of_aliases_is_refused_in_little_time() {
    let mut text = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (name, inner) in ["b", "c", "d", "e", "f", "g", "h"]
        .iter()
        .zip("abcdefg".chars())
    {
        let alias = format!("*{inner}, ").repeat(9);
        text += &format!("{name}: &{name} [{alias}]\n");
    }
    assert_eq!(parsed(&text).1, [code::TOO_MANY_ALIASES]);
}

#[test]
fn an_alias_inside_its_own_anchor_is_refused() {
    assert_eq!(parsed("a: &a [*a]").1, [code::YAML]);
}

#[test]
fn depth_is_bounded() {
    assert_eq!(parsed(&"[".repeat(100_000)).1, [code::TOO_DEEP]);
    assert_eq!(parsed(&"- ".repeat(100_000)).1, [code::TOO_DEEP]);
    assert_eq!(parsed(&"a: {".repeat(100)).1, [code::TOO_DEEP]);
}

#[test]
fn every_duplicate_is_told_and_the_first_counts() {
    let (node, codes) = parsed("a: 1\nb: 2\na: 3\nb: 4\n");
    assert_eq!(codes, [code::DUPLICATE_FIELD, code::DUPLICATE_FIELD]);
    let Kind::Map(entries) = node.unwrap().kind else {
        panic!("not a mapping");
    };
    assert_eq!(entries.len(), 2);
}

#[test]
fn nothing_at_all_is_an_empty_file() {
    for text in ["", "\n\n", "# only a comment\n", "---\n", "\u{feff}", "~"] {
        assert_eq!(parsed(text).1, [code::EMPTY], "{text:?}");
    }
}
