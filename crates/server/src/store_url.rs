//! The store that `--store` and its certificate options select.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tallygate::{RedisStore, RedisStoreBuilder};

use crate::cli::StoreArgs;
use crate::error::Failure;

/// Longer than the defaults: a command can wait for a slow server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) enum StoreUrl {
    Memory,
    Redis(RedisStoreBuilder),
}

impl StoreUrl {
    /// Reads the certificate files; the URL is checked when the store is opened.
    pub(crate) fn from_args(args: &StoreArgs) -> Result<Self, Failure> {
        if args.url == "memory" {
            if args.ca_cert.is_some() || args.client_cert.is_some() {
                let text = "certificates are given, but --store memory does not use them";
                return Err(Failure::Input(text.to_owned()));
            }
            return Ok(StoreUrl::Memory);
        }
        let mut builder = RedisStore::builder(&args.url)
            .connect_timeout(CONNECT_TIMEOUT)
            .response_timeout(RESPONSE_TIMEOUT);
        if let Some(path) = &args.ca_cert {
            builder = builder.root_certificate(read(path)?);
        }
        if let (Some(certificate), Some(key)) = (&args.client_cert, &args.client_key) {
            builder = builder.client_certificate(read(certificate)?, read(key)?);
        }
        Ok(StoreUrl::Redis(builder))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path)
        .map_err(|error| Failure::Input(format!("cannot read {}: {error}", path.display())))
}
