//! Settings from the `gateway` section of a rules file.

use tallygate::config::{GatewaySizes, GatewayTimeouts};

use super::{Limits, Timeouts};

impl From<&GatewayTimeouts> for Timeouts {
    fn from(config: &GatewayTimeouts) -> Self {
        let defaults = Timeouts::default();
        Timeouts {
            header: config.header.unwrap_or(defaults.header),
            body_idle: config.body_idle.unwrap_or(defaults.body_idle),
            keep_alive: config.keep_alive.unwrap_or(defaults.keep_alive),
            write: config.write.unwrap_or(defaults.write),
            connect: config.connect.unwrap_or(defaults.connect),
            first_byte: config.first_byte.unwrap_or(defaults.first_byte),
            answer_idle: config.answer_idle.unwrap_or(defaults.answer_idle),
            whole: config.whole.unwrap_or(defaults.whole),
            tunnel_idle: config.tunnel_idle.unwrap_or(defaults.tunnel_idle),
            pool_idle: config.pool_idle.unwrap_or(defaults.pool_idle),
            down: config.down.unwrap_or(defaults.down),
            ..defaults
        }
    }
}

impl From<&GatewaySizes> for Limits {
    fn from(config: &GatewaySizes) -> Self {
        let defaults = Limits::default();
        Limits {
            connections: config.connections.unwrap_or(defaults.connections),
            head_bytes: config.head_bytes.unwrap_or(defaults.head_bytes),
            headers: config.headers.unwrap_or(defaults.headers),
            body_bytes: config.body_bytes.unwrap_or(defaults.body_bytes),
            streams: config.streams.unwrap_or(defaults.streams),
            pool: config.pool.unwrap_or(defaults.pool),
            ..defaults
        }
    }
}
