//! The gateway and the check API beside nginx and what hyper can do at the least, over loopback.

pub mod bare;
pub mod contender;
pub mod process;
pub mod scenario;
pub mod target;
pub mod wrk;
