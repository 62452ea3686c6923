//! Whom a server tells what it does, besides those who ask: from the arguments and the environment.

use crate::cli::ServeArgs;
use crate::error::Failure;
use crate::otlp::{Otlp, Settings};

/// What tells them; none where nobody is named.
pub(super) fn from_args(args: &ServeArgs) -> Result<Option<Otlp>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let off = variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let endpoint = args.otlp.as_deref().filter(|_| !off);
    let settings = Settings::new(endpoint, args.otlp_sample, &variable).map_err(Failure::Input)?;
    let otlp = settings.map(Otlp::new).transpose();
    otlp.map_err(Failure::Outside)
}
