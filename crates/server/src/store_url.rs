//! The store that `--store` and its certificate options select.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tallygate::RedisStore;
use tallygate::store::RedisStoreBuilder;

use crate::cli::StoreArgs;
use crate::error::Failure;

/// How long the servers may take. Longer than the defaults: a command can wait for a slow server.
const PATIENCE: Duration = Duration::from_secs(5);

#[allow(clippy::large_enum_variant, reason = "there is one in a process")]
pub(crate) enum StoreUrl {
    Memory,
    Redis(RedisStoreBuilder),
}

impl StoreUrl {
    /// The store of a command that runs once. Reads the certificate files; the URL is checked when
    /// the store is opened.
    pub(crate) fn from_args(args: &StoreArgs) -> Result<Self, Failure> {
        Ok(match Self::with_default_timeouts(args)? {
            StoreUrl::Memory => StoreUrl::Memory,
            StoreUrl::Redis(builder) => {
                let builder = builder.connect_timeout(PATIENCE).response_timeout(PATIENCE);
                StoreUrl::Redis(builder)
            }
        })
    }

    /// The store of a server, which recovers as fast as the library.
    pub(crate) fn with_default_timeouts(args: &StoreArgs) -> Result<Self, Failure> {
        if args.url == "memory" {
            if args.ca_cert.is_some() || args.client_cert.is_some() {
                let text = "certificates are given, but --store memory does not use them";
                return Err(Failure::Input(text.to_owned()));
            }
            return Ok(StoreUrl::Memory);
        }
        let mut builder = RedisStore::builder(&args.url);
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
