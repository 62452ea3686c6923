//! OTLP export, set up from the arguments and the environment.

use crate::cli::ServeArgs;
use crate::error::Failure;
use crate::otlp::{Client, Settings};

/// The client of the OTLP endpoint; none by default.
pub(super) fn from_args(args: &ServeArgs) -> Result<Option<Client>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let off = variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let endpoint = args.otlp.as_deref().filter(|_| !off);
    let settings = Settings::new(endpoint, args.otlp_sample, &variable).map_err(Failure::Input)?;
    let client = settings.map(Client::new).transpose();
    client.map_err(Failure::Outside)
}
