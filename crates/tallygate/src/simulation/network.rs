//! The delays and losses of messages.

use fastrand::Rng;

use super::scenario::Network;

/// The delay of a message; `None` if it is lost.
pub(super) fn delay_us(network: &Network, rng: &mut Rng) -> Option<u64> {
    if network.loss > 0.0 && rng.f64() < network.loss {
        return None;
    }
    let jitter = match network.jitter_us {
        0 => 0.0,
        mean => -(1.0 - rng.f64()).ln() * mean as f64,
    };
    Some(network.delay_us + jitter as u64)
}
