//! Where counters are kept, as `--store` and its certificates say. Knows no command.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tallygate::{RedisStore, RedisStoreBuilder};

use crate::cli::StoreArgs;
use crate::error::Failure;

/// Nobody waits behind a command line: a slow server is given its time.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What `--store` names.
pub(crate) enum Place {
    /// This process.
    Memory,
    /// Servers, yet to be connected to.
    Redis(RedisStoreBuilder),
}

impl Place {
    /// Reads the files that are named; the URL is looked at when the store is opened.
    pub(crate) fn of(args: &StoreArgs) -> Result<Self, Failure> {
        if args.url == "memory" {
            if args.ca_cert.is_some() || args.client_cert.is_some() {
                let text = "certificates are given, but --store memory has no use for them";
                return Err(Failure::Input(text.to_owned()));
            }
            return Ok(Place::Memory);
        }
        let mut builder = RedisStore::builder(&args.url)
            .connect_timeout(CONNECT_WITHIN)
            .response_timeout(ANSWER_WITHIN);
        if let Some(path) = &args.ca_cert {
            builder = builder.root_certificate(read(path)?);
        }
        if let (Some(certificate), Some(key)) = (&args.client_cert, &args.client_key) {
            builder = builder.client_certificate(read(certificate)?, read(key)?);
        }
        Ok(Place::Redis(builder))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path)
        .map_err(|error| Failure::Input(format!("cannot read {}: {error}", path.display())))
}
