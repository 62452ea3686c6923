//! Random fleets with random faults: whatever happens, admissions stay within the bound of leases.

use fastrand::Rng;

use super::{holds, run};

/// With the bound in quarters: the worst case, and what is leased of those that are no windows.
const QUOTAS: [(&str, u32); 6] = [
    ("fixed-window 300/s", 4),
    ("fixed-window 3000/4s", 4),
    ("500/s", 4),
    ("token-bucket 400/s burst 800", 5),
    ("leaky-bucket 200/s burst 1500", 5),
    ("sliding-window-log 800/2s", 5),
];

fn seed() -> u64 {
    let seed = std::env::var("TALLYGATE_SEED").ok();
    seed.map_or_else(|| fastrand::u64(..), |text| text.parse().unwrap())
}

#[test]
fn random_fleets_with_faults_stay_within_the_bound_of_their_leases() {
    let seed = seed();
    println!("TALLYGATE_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let mut leased = 0;
    for number in 0..24 {
        let (quota, quarters) = QUOTAS[number % QUOTAS.len()];
        let pick = |rng: &mut Rng, options: &[&'static str]| options[rng.usize(..options.len())];
        let nodes = rng.u32(1..8);
        let shards = rng.u32(1..4);
        let mut faults = String::new();
        for _ in 0..rng.u32(..5) {
            let at = rng.u32(..4_000);
            let length = rng.u32(1..1_500);
            let fault = match rng.u8(..4) {
                0 => format!("kill: {}", rng.u32(1..=nodes)),
                1 => format!("stop: {}", rng.u32(1..=nodes)),
                2 => format!("dead: {}", rng.u32(1..=shards)),
                _ => format!("silent: {}", rng.u32(1..=shards)),
            };
            faults += &format!("  - {{ at: {}us, {fault}, for: {length}ms }}\n", at * 1_000);
        }
        let bound = format!("worst <= {}.{}x", quarters / 4, quarters % 4 * 25);
        let text = format!(
            "
seed: {}
duration: 4s
nodes: {nodes}
shards: {shards}
limits: {{ quota: {quota}, lease: {{ max: {}, hold: {} }} }}
# What is counted in a process adds to the bound.
on_failure: closed
traffic:
  - {{ rate: {}/s, keys: {}, skew: {}, cost: {} }}
  # Units that were taken ahead meet a full bucket.
  - {{ rate: 40000/s, keys: 1, from: 1600ms, until: 1650ms }}
  - {{ rate: 40000/s, keys: 1, from: 3100ms, until: 3150ms }}
network: {{ delay: {}, jitter: {}, loss: {} }}
clocks: {{ drift_ppm: {} }}
faults:{}
bounds: {bound}
",
            rng.u32(..),
            rng.u32(2..500),
            pick(&mut rng, &["50ms", "200ms", "1s"]),
            rng.u32(50..1_500),
            rng.u32(1..5),
            pick(&mut rng, &["0", "1", "1.5"]),
            rng.u32(1..4),
            pick(&mut rng, &["50us", "500us", "5ms"]),
            pick(&mut rng, &["10us", "300us", "3ms"]),
            pick(&mut rng, &["0", "0.001", "0.02"]),
            pick(&mut rng, &["0", "400"]),
            if faults.is_empty() {
                " []".to_owned()
            } else {
                format!("\n{faults}")
            },
        );
        let results = run(&text);
        assert!(holds(&results, &bound), "{:?}\n{text}", results.worst);
        leased += results.answers.leases;
    }
    assert!(leased > 5_000, "{leased}");
}
