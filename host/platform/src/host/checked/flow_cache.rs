//! A cache of values that are computed from the text of a flow, with a limit for each tenant and one for all tenants.
//!
//! A checked flow takes about 60 times as much memory as its text, so the limits are far below the memory of a machine.
//! The cache drops the least recently used flows, one at a time, so no insertion frees much memory at once.

use std::hash::Hash;

use flowcell_contract::Tenant;
use lru::LruCache;

/// Maximum size in bytes of the text of one flow, with the files that it names.
pub(super) const MAX_FLOW_TEXT_BYTES: usize = 1024 * 1024;
/// Maximum number of bytes of text of the flows of one tenant.
const MAX_TENANT_TEXT_BYTES: usize = 2 * 1024 * 1024;
/// Maximum number of bytes of text of the flows of all tenants.
const MAX_TEXT_BYTES: usize = 8 * 1024 * 1024;

/// Values of flows, each under its tenant and a key.
pub(super) struct FlowCache<K: Hash + Eq, V> {
    tenants: LruCache<Tenant, Share<K, V>>,
    text: usize,
    max_flows: usize,
}

/// The flows of one tenant.
struct Share<K: Hash + Eq, V> {
    flows: LruCache<K, (V, usize)>,
    text: usize,
}

impl<K: Hash + Eq, V> Share<K, V> {
    /// Drops the least recently used flow. Returns the size of its text.
    fn drop_oldest(&mut self) -> Option<usize> {
        let (_, (_, text)) = self.flows.pop_lru()?;
        self.text -= text;
        Some(text)
    }
}

impl<K: Hash + Eq, V> FlowCache<K, V> {
    /// Returns an empty cache that keeps at most this number of flows per tenant.
    pub(super) fn new(max_flows: usize) -> FlowCache<K, V> {
        FlowCache { tenants: LruCache::unbounded(), text: 0, max_flows }
    }

    /// Returns the value of a flow, which counts as used now.
    pub(super) fn get(&mut self, tenant: &Tenant, key: &K) -> Option<&V> {
        self.tenants.get_mut(tenant)?.flows.get(key).map(|(value, _)| value)
    }

    /// Keeps a value. `text` is the size in bytes of the flow's text, with the files that it names. A larger flow than
    /// [`MAX_FLOW_TEXT_BYTES`] is not kept.
    pub(super) fn put(&mut self, tenant: &Tenant, key: K, value: V, text: usize) {
        if text > MAX_FLOW_TEXT_BYTES {
            return;
        }
        let share = self.tenants.get_or_insert_mut(tenant.clone(), || Share { flows: LruCache::unbounded(), text: 0 });
        let before = share.text;
        if let Some((_, replaced)) = share.flows.put(key, (value, text)) {
            share.text -= replaced;
        }
        share.text += text;
        while share.flows.len() > self.max_flows || share.text > MAX_TENANT_TEXT_BYTES {
            share.drop_oldest();
        }
        self.text = self.text - before + share.text;
        while self.text > MAX_TEXT_BYTES {
            self.drop_from_oldest_tenant();
        }
    }

    /// Drops one flow of the least recently active tenant.
    fn drop_from_oldest_tenant(&mut self) {
        let Some((tenant, mut share)) = self.tenants.pop_lru() else { return };
        self.text -= share.drop_oldest().unwrap_or_default();
        if !share.flows.is_empty() {
            self.tenants.push(tenant.clone(), share);
            self.tenants.demote(&tenant);
        }
    }

    /// Drops all flows.
    pub(super) fn clear(&mut self) {
        self.tenants.clear();
        self.text = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    fn tenant(number: usize) -> Tenant {
        format!("t{number}").as_str().into()
    }

    /// Returns the keys that the cache still has for a tenant. Looks at them in the order of their numbers.
    fn kept(cache: &mut FlowCache<usize, usize>, tenant: &Tenant, keys: std::ops::Range<usize>) -> Vec<usize> {
        keys.filter(|key| cache.get(tenant, key).is_some()).collect()
    }

    #[test]
    fn what_was_used_least_recently_leaves_first() {
        let (mut cache, one) = (FlowCache::new(3), tenant(1));
        (0..3).for_each(|key| cache.put(&one, key, key * 10, KIB));
        assert_eq!(cache.get(&one, &0), Some(&0));
        cache.put(&one, 3, 30, KIB);
        assert_eq!(kept(&mut cache, &one, 0..4), [0, 2, 3]);
        // A value that takes another's place counts once.
        (0..9).for_each(|_| cache.put(&one, 3, 31, KIB));
        assert_eq!((kept(&mut cache, &one, 0..4), cache.get(&one, &3).copied()), (vec![0, 2, 3], Some(31)));
        assert_eq!(cache.text, 3 * KIB);
    }

    #[test]
    fn a_tenant_that_brings_large_flows_loses_only_its_own() {
        let (mut cache, greedy, other) = (FlowCache::new(64), tenant(1), tenant(2));
        cache.put(&other, 0, 0, KIB);
        cache.put(&greedy, 99, 0, MAX_FLOW_TEXT_BYTES + 1);
        assert_eq!(cache.get(&greedy, &99), None);
        (0..50).for_each(|key| cache.put(&greedy, key, 0, MAX_FLOW_TEXT_BYTES));
        assert_eq!(kept(&mut cache, &greedy, 0..50), [48, 49]);
        assert_eq!(kept(&mut cache, &other, 0..1), [0]);
    }

    #[test]
    fn many_tenants_stay_within_the_limit_of_all() {
        let mut cache = FlowCache::new(64);
        for number in 0..9 {
            (0..2).for_each(|key| cache.put(&tenant(number), key, 0, MAX_FLOW_TEXT_BYTES));
            assert!(cache.text <= MAX_TEXT_BYTES);
            // The first tenant uses its flows all the time.
            assert_eq!(kept(&mut cache, &tenant(0), 0..2), [0, 1], "{number}");
        }
        assert!(kept(&mut cache, &tenant(1), 0..2).is_empty(), "the oldest");
        assert_eq!(kept(&mut cache, &tenant(8), 0..2), [0, 1]);
        let shares =
            cache.tenants.iter().map(|(_, share)| share.flows.iter().map(|(_, (_, text))| text).sum::<usize>());
        assert_eq!(cache.text, shares.sum::<usize>());
        cache.clear();
        assert_eq!((cache.text, kept(&mut cache, &tenant(0), 0..2)), (0, vec![]));
    }
}
