//! Keys of skewed popularity: key k is drawn with a probability proportional to `1 / k^skew`.
//!
//! Rejection inversion (Hörmann and Derflinger, 1996): constant time and memory for any number of
//! keys.

use fastrand::Rng;

pub(super) struct Zipf {
    keys: u64,
    skew: f64,
    /// The integral of the density up to the first key.
    first: f64,
    /// And up to the last.
    last: f64,
    accepted: f64,
}

impl Zipf {
    /// A skew of 0: all keys are equally popular.
    pub(super) fn new(keys: u64, skew: f64) -> Self {
        let mut zipf = Zipf {
            keys,
            skew,
            first: 0.0,
            last: 0.0,
            accepted: 0.0,
        };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(keys as f64 + 0.5);
        zipf.accepted = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A key from 1 on.
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        if self.skew == 0.0 {
            return rng.u64(1..=self.keys);
        }
        loop {
            let area = self.last + rng.f64() * (self.first - self.last);
            let x = self.inverse(area);
            let key = ((x + 0.5) as u64).clamp(1, self.keys);
            let k = key as f64;
            if k - x <= self.accepted || area >= self.integral(k + 0.5) - self.density(k) {
                return key;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.skew * x.ln()).exp()
    }

    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        exp_ratio((1.0 - self.skew) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.skew)).max(-1.0);
        (log_ratio(t) * area).exp()
    }
}

/// `(e^x - 1) / x`, also near 0.
fn exp_ratio(x: f64) -> f64 {
    match x.abs() > 1e-8 {
        true => x.exp_m1() / x,
        false => 1.0 + x * 0.5,
    }
}

/// `ln(1 + x) / x`, also near 0.
fn log_ratio(x: f64) -> f64 {
    match x.abs() > 1e-8 {
        true => x.ln_1p() / x,
        false => 1.0 - x * 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_drawn_as_often_as_their_popularity() {
        for (keys, skew) in [(10, 0.0), (10, 0.5), (100, 1.0), (1_000, 1.2), (50, 3.0)] {
            let zipf = Zipf::new(keys, skew);
            let mut rng = Rng::with_seed(7);
            let draws = 200_000;
            let mut counts = vec![0_u32; usize::try_from(keys).unwrap() + 1];
            for _ in 0..draws {
                counts[usize::try_from(zipf.draw(&mut rng)).unwrap()] += 1;
            }
            assert_eq!(counts[0], 0);
            let sum: f64 = (1..=keys).map(|k| (k as f64).powf(-skew)).sum();
            for k in [1, 2, 3, keys / 2, keys] {
                let expected = f64::from(draws) * (k as f64).powf(-skew) / sum;
                let found = f64::from(counts[usize::try_from(k).unwrap()]);
                let tolerance = 5.0 * expected.sqrt() + 1.0;
                assert!(
                    (found - expected).abs() < tolerance,
                    "{keys} keys, skew {skew}, key {k}: {found} of {expected}"
                );
            }
        }
    }

    #[test]
    fn one_key_and_ten_million_are_fine() {
        let mut rng = Rng::with_seed(1);
        let one = Zipf::new(1, 1.1);
        assert!((0..1_000).all(|_| one.draw(&mut rng) == 1));
        let many = Zipf::new(10_000_000, 1.0);
        let largest = (0..10_000).map(|_| many.draw(&mut rng)).max();
        assert!((1_000_000..=10_000_000).contains(&largest.unwrap()));
    }
}
