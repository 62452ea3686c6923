//! Which store a server counts in: the one that its arguments name, or else the one of its rules
//! file, or else memory. Knows both; opens neither.

use crate::cli::{ServeArgs, StoreArgs};
use crate::config::StoreConfig;
use crate::error::Failure;
use crate::store_url::Place;

/// The place that counts.
pub(super) fn url(args: &ServeArgs, setting: &StoreConfig) -> Result<Place, Failure> {
    let certificates = (&args.ca_cert, &args.client_cert, &args.client_key);
    let named = match (&args.store, certificates) {
        (Some(url), (ca_cert, client_cert, client_key)) => StoreArgs {
            url: url.clone(),
            ca_cert: ca_cert.clone(),
            client_cert: client_cert.clone(),
            client_key: client_key.clone(),
        },
        (None, (ca_cert, client_cert, client_key)) => StoreArgs {
            url: setting.url.clone(),
            ca_cert: ca_cert.clone().or_else(|| setting.ca_cert.clone()),
            client_cert: client_cert.clone().or_else(|| setting.client_cert.clone()),
            client_key: client_key.clone().or_else(|| setting.client_key.clone()),
        },
    };
    Place::of(&named)
}
