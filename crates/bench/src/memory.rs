//! The memory store beside its peers, all in this process: what `--bench memory` measures.
//!
//! [`contender`] holds one small file per contender; everything else knows contenders only by their
//! traits.

pub mod contender;
pub mod expiry;
pub mod lane;
pub mod resident;
pub mod scenario;
pub mod target;
