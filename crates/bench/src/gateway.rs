//! The gateway and the check API compared with nginx and bare hyper, over loopback.

pub mod bare;
pub mod contender;
pub mod overload;
pub mod process;
pub mod recovery;
pub mod scenario;
pub mod target;
pub mod wrk;
