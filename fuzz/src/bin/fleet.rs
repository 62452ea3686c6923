//! Small fleets with any faults: bytes choose processes, servers, a limit, traffic, the network and
//! what goes wrong. The parts of the store that do no I/O (leases, refusal cache, breakers, batches) run
//! on simulated time; admissions stay within the stated bound, and every request is accounted for.
#![no_main]

use std::fmt::Write as _;

use libfuzzer_sys::fuzz_target;
use tallygate::simulation::{Scenario, simulate};

/// With the bound in quarters: the worst case, and what is leased of those that are no windows.
const QUOTAS: [(&str, u32); 8] = [
    ("fixed-window 30/200ms", 4),
    ("fixed-window 200/s", 4),
    ("10/100ms", 4),
    ("150/s", 4),
    ("token-bucket 40/s burst 40", 5),
    ("token-bucket 300/s burst 100", 5),
    ("leaky-bucket 20/s burst 80", 5),
    ("sliding-window-log 80/300ms", 5),
];
const HOLDS: [&str; 4] = ["10ms", "50ms", "200ms", "1s"];
const DELAYS: [&str; 4] = ["0us", "200us", "5ms", "60ms"];
const JITTERS: [&str; 3] = ["0us", "300us", "20ms"];
const LOSSES: [&str; 4] = ["0", "0.001", "0.05", "0.5"];
/// Leases allow for clocks that differ by 0.1 %.
const DRIFTS: [&str; 3] = ["0", "400", "999"];
const SERVICES: [&str; 3] = ["1us", "10us", "3ms"];
const SKEWS: [&str; 3] = ["0", "1", "5"];
const MAX_FAULTS: usize = 6;
const MILLIS: u32 = 500;

/// Zeros once all bytes are used.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    /// True for a fourth of all bytes, 0 among them.
    fn rarely(&mut self) -> bool {
        self.byte().is_multiple_of(4)
    }

    /// A number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        let number = u32::from(self.byte()) << 8 | u32::from(self.byte());
        number % end
    }

    fn pick<T: Copy>(&mut self, options: &[T]) -> T {
        options[usize::from(self.byte()) % options.len()]
    }
}

fuzz_target!(|bytes: &[u8]| {
    let text = scenario(&mut Bytes(bytes.iter()));
    let scenario = Scenario::from_bytes("fleet", text.as_bytes());
    let scenario = scenario.unwrap_or_else(|report| panic!("{report}\n{text}"));
    let results = simulate(&scenario, |_| {});
    let [checked] = &*results.bounds else {
        panic!("one bound, not {:?}\n{text}", results.bounds);
    };
    assert!(checked.holds, "{checked:?}, {:?}\n{text}", results.worst);
    assert_eq!(
        results.admitted + results.refused,
        results.decisions,
        "{text}"
    );
    let accounted = results.decisions + results.unanswered;
    assert_eq!(accounted, results.requests, "{text}");
    assert!(results.leases.returned <= results.leases.taken, "{text}");
});

/// The text of a scenario with a bound.
fn scenario(bytes: &mut Bytes<'_>) -> String {
    let (quota, quarters) = bytes.pick(&QUOTAS);
    let (nodes, shards) = (1 + bytes.below(5), 1 + bytes.below(3));
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a string takes any text");
    };
    line(format_args!("seed: {}", bytes.below(1 << 16)));
    line(format_args!("duration: {MILLIS}ms"));
    line(format_args!("nodes: {nodes}\nshards: {shards}"));
    let lease = match bytes.rarely() {
        true => "false".to_owned(),
        false => {
            let max = 2 + bytes.below(300);
            format!("{{ max: {max}, hold: {} }}", bytes.pick(&HOLDS))
        }
    };
    line(format_args!("limits: {{ quota: {quota}, lease: {lease} }}"));
    // What is counted in a process adds to the bound.
    line(format_args!("on_failure: closed"));
    if bytes.rarely() {
        line(format_args!("refusal_cache: off"));
    }
    line(format_args!("batching: {}", !bytes.rarely()));
    line(format_args!("traffic:"));
    for _ in 0..1 + bytes.below(2) {
        let (rate, keys) = (1 + bytes.below(800), 1 + bytes.below(4));
        let from = bytes.below(MILLIS - 1);
        let until = from + 1 + bytes.below(MILLIS);
        line(format_args!(
            "  - {{ rate: {rate}/s, keys: {keys}, skew: {}, cost: {}, from: {from}000us, until: {until}ms }}",
            bytes.pick(&SKEWS),
            1 + bytes.below(4),
        ));
    }
    line(format_args!(
        "network: {{ delay: {}, jitter: {}, loss: {} }}",
        bytes.pick(&DELAYS),
        bytes.pick(&JITTERS),
        bytes.pick(&LOSSES),
    ));
    line(format_args!(
        "clocks: {{ drift_ppm: {} }}",
        bytes.pick(&DRIFTS)
    ));
    line(format_args!(
        "service: {{ call: {} }}",
        bytes.pick(&SERVICES)
    ));
    let faults = usize::from(bytes.byte()) % (MAX_FAULTS + 1);
    if faults > 0 {
        line(format_args!("faults:"));
    }
    // A fail-over forgets what was admitted: it has no bound.
    for _ in 0..faults {
        let (at, length) = (bytes.below(MILLIS), 1 + bytes.below(400));
        let fault = match bytes.byte() % 4 {
            0 => format!("kill: {}", 1 + bytes.below(nodes)),
            1 => format!("stop: {}", 1 + bytes.below(nodes)),
            2 => format!("dead: {}", 1 + bytes.below(shards)),
            _ => format!("silent: {}", 1 + bytes.below(shards)),
        };
        line(format_args!(
            "  - {{ at: {at}000us, {fault}, for: {length}ms }}"
        ));
    }
    let (whole, hundredths) = (quarters / 4, quarters % 4 * 25);
    line(format_args!("bounds: worst <= {whole}.{hundredths}x"));
    text
}
