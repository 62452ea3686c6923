//! What is allowed and yet probably not meant.

use super::checked::Checked;
use super::problem::Problem;

pub(super) const INCLUDES_NOTHING: &str = "rules::includes-nothing";

/// Looks for what is questionable.
pub(super) fn lint(_checked: &Checked, _problems: &mut Vec<Problem>) {}
