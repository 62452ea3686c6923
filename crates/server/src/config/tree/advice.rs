//! What usually helps where a text is not YAML. Knows the parser's errors and people's habits.

use granit_parser::ErrorKind;

/// What usually helps.
pub(super) fn advice(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => Some("indent with spaces; YAML forbids tabs there"),
        ErrorKind::UnexpectedCharacter { .. } => {
            Some("text that begins with such a character needs quotes")
        }
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::ExpectedFlowSequenceSeparator
        | ErrorKind::InvalidColonPlacement
        | ErrorKind::MismatchedFlowCollectionEnd { .. } => {
            Some("a comma or a closing `]` or `}` is missing before this")
        }
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
            Some("the closing quote is missing, here or in a line before")
        }
        ErrorKind::MappingValueNotAllowed => Some(
            "fields of one mapping begin in the same column; text with `: ` in it needs quotes",
        ),
        ErrorKind::InvalidSimpleKey | ErrorKind::SimpleKeyExpected => {
            Some("`name: value` needs a `:` and a space; text with `: ` in it needs quotes")
        }
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::InvalidIndentation => {
            Some("fields of one mapping, and `-` of one list, begin in the same column")
        }
        _ => None,
    }
}
