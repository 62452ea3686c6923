//! Metrics of the process, with the names of Prometheus' client libraries.
//!
//! `prometheus` has a collector, too. It counts whole seconds of CPU time, and with an older version
//! of `procfs`.

// For display only.
#![allow(clippy::float_arithmetic)]

use procfs::process::{LimitValue, Process};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGauge};

pub(super) struct ProcessCollector {
    cpu_seconds: Counter,
    resident_bytes: IntGauge,
    virtual_bytes: IntGauge,
    open_fds: IntGauge,
    max_fds: IntGauge,
    threads: IntGauge,
    start_seconds: Gauge,
}

impl ProcessCollector {
    pub(super) fn new() -> prometheus::Result<Self> {
        let collector = ProcessCollector {
            cpu_seconds: Counter::new(
                "process_cpu_seconds_total",
                "User and system CPU time in seconds.",
            )?,
            resident_bytes: IntGauge::new(
                "process_resident_memory_bytes",
                "Resident memory in bytes.",
            )?,
            virtual_bytes: IntGauge::new(
                "process_virtual_memory_bytes",
                "Virtual memory in bytes.",
            )?,
            open_fds: IntGauge::new("process_open_fds", "Open file descriptors.")?,
            max_fds: IntGauge::new("process_max_fds", "File descriptors that may be open.")?,
            threads: IntGauge::new("process_threads", "Threads.")?,
            start_seconds: Gauge::new(
                "process_start_time_seconds",
                "Start of the process in seconds since the Unix epoch.",
            )?,
        };
        Ok(collector)
    }

    /// Reads what `/proc` says. What cannot be read, for example without free descriptors, keeps its
    /// last value.
    fn update(&self) -> procfs::ProcResult<()> {
        let process = Process::myself()?;
        let stat = process.stat()?;
        let ticks_per_second = procfs::ticks_per_second() as f64;
        let cpu_seconds = (stat.utime + stat.stime) as f64 / ticks_per_second;
        // Two scrapes at the same time may read in another order.
        let new_seconds = (cpu_seconds - self.cpu_seconds.get()).max(0.0);
        self.cpu_seconds.inc_by(new_seconds);
        self.resident_bytes
            .set(super::gauge(stat.rss.saturating_mul(procfs::page_size())));
        self.virtual_bytes.set(super::gauge(stat.vsize));
        self.threads.set(stat.num_threads);
        let boot_seconds = procfs::boot_time_secs()? as f64;
        self.start_seconds
            .set(boot_seconds + stat.starttime as f64 / ticks_per_second);
        // Unlimited is written as 0 by no convention: the last value stays.
        if let LimitValue::Value(max) = process.limits()?.max_open_files.soft_limit {
            self.max_fds.set(super::gauge(max));
        }
        self.open_fds.set(super::gauge(process.fd_count()?));
        Ok(())
    }

    fn metrics(&self) -> [&dyn Collector; 7] {
        [
            &self.cpu_seconds,
            &self.resident_bytes,
            &self.virtual_bytes,
            &self.open_fds,
            &self.max_fds,
            &self.threads,
            &self.start_seconds,
        ]
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        let metrics = self.metrics().into_iter();
        metrics.flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _ = self.update();
        let metrics = self.metrics().into_iter();
        metrics.flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_memory_descriptors_and_a_start() {
        let collector = ProcessCollector::new().unwrap();
        collector.update().unwrap();
        assert!(collector.resident_bytes.get() > 1 << 20);
        assert!(collector.virtual_bytes.get() >= collector.resident_bytes.get());
        assert!((3..=collector.max_fds.get()).contains(&collector.open_fds.get()));
        assert!(collector.threads.get() >= 1);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let age = now.unwrap().as_secs_f64() - collector.start_seconds.get();
        assert!((-5.0..3_600.0).contains(&age), "{age}");
    }

    #[test]
    fn cpu_time_is_counted_by_the_tick_and_never_falls() {
        let collector = ProcessCollector::new().unwrap();
        let mut last = 0.0;
        while collector.cpu_seconds.get() < 0.05 {
            collector.update().unwrap();
            assert!(collector.cpu_seconds.get() >= last);
            last = collector.cpu_seconds.get();
        }
        assert!(last < 600.0, "{last}");
    }
}
