//! A cache of limits by the text of their quota and name: parsing costs more than a lookup.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use tallygate::http::Limits;
use tallygate::{Limit, Quota};

use crate::problem::{Code, Problem};

/// When full, the cache is cleared.
const MAX_ENTRIES: usize = 4_096;
/// Longer texts are not cached.
const MAX_TEXT_BYTES: usize = 256;
const MAX_NAME_BYTES: usize = 64;

#[derive(Default)]
pub(crate) struct QuotaCache(RwLock<HashMap<String, Arc<Limits>>>);

impl QuotaCache {
    /// The limit of a quota, under its own name or the one given.
    pub(crate) fn limit(&self, quota: &str, name: Option<&str>) -> Result<Arc<Limits>, Problem> {
        let named;
        let text = match name {
            None => quota,
            Some(name) => {
                // Neither a quota nor a name contains a 0.
                named = format!("{name}\0{quota}");
                &named
            }
        };
        let cache = self.0.read().unwrap_or_else(|held| held.into_inner());
        if let Some(limits) = cache.get(text) {
            return Ok(Arc::clone(limits));
        }
        drop(cache);
        let limits = Arc::new(read(quota, name)?);
        if text.len() <= MAX_TEXT_BYTES {
            let mut cache = self.0.write().unwrap_or_else(|held| held.into_inner());
            if cache.len() >= MAX_ENTRIES {
                cache.clear();
            }
            cache.insert(text.to_owned(), Arc::clone(&limits));
        }
        Ok(limits)
    }
}

fn read(quota: &str, name: Option<&str>) -> Result<Limits, Problem> {
    let quota: Quota = quota.parse()?;
    let limit = match name {
        None => Limit::from(quota),
        Some(name) => {
            if name.is_empty()
                || name.len() > MAX_NAME_BYTES
                || !name.bytes().all(|b| b.is_ascii_graphic())
            {
                let detail = format!(
                    "a limit's name is not 1 to {MAX_NAME_BYTES} visible ASCII characters without \
                     spaces"
                );
                return Err(Problem::new(Code::BadField, detail));
            }
            Limit::named(name, quota)
        }
    };
    Ok(Limits::new([limit]).expect("one limit is not a duplicate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_returns_the_same_limits() {
        let cache = QuotaCache::default();
        for limit in 1..=2 * MAX_ENTRIES {
            let limits = cache.limit(&format!("{limit}/s"), None).unwrap();
            assert_eq!(u64::from(limits[0].quota().limit()), limit as u64);
        }
        assert!(cache.0.read().unwrap().len() <= MAX_ENTRIES);
        let plain = cache.limit("5/s", None).unwrap();
        let named = cache.limit("5/s", Some("user")).unwrap();
        assert_eq!(plain[0].name(), "sliding-window-counter/s");
        assert_eq!(named[0].name(), "user");
        assert!(Arc::ptr_eq(
            &named,
            &cache.limit("5/s", Some("user")).unwrap()
        ));
    }

    #[test]
    fn a_name_cannot_be_that_of_a_rules_counter() {
        let cache = QuotaCache::default();
        for name in ["", "a b", "a\0b", "é", &"x".repeat(65)] {
            let problem = cache.limit("1/s", Some(name)).unwrap_err();
            assert_eq!(problem.code, Code::BadField);
        }
    }
}
