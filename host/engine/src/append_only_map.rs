//! An append-only map that is read without a lock. It holds the packs of an engine.

use std::sync::{Arc, OnceLock};

use flowcell_contract::Digest;

const BUCKETS: usize = 256;

/// Values by digest. If a digest is inserted again, the first value stays.
pub(crate) struct AppendOnlyMap<T> {
    buckets: Box<[Link<T>]>,
}

type Link<T> = OnceLock<Box<Entry<T>>>;

struct Entry<T> {
    digest: Digest,
    value: Arc<T>,
    next: Link<T>,
}

impl<T> AppendOnlyMap<T> {
    pub(crate) fn new() -> AppendOnlyMap<T> {
        AppendOnlyMap { buckets: (0..BUCKETS).map(|_| OnceLock::new()).collect() }
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<&Arc<T>> {
        let mut link = self.bucket(digest);
        while let Some(entry) = link.get() {
            if entry.digest == *digest {
                return Some(&entry.value);
            }
            link = &entry.next;
        }
        None
    }

    pub(crate) fn insert(&self, digest: &Digest, value: T) {
        let mut fresh = Box::new(Entry { digest: digest.clone(), value: Arc::new(value), next: OnceLock::new() });
        let mut link = self.bucket(digest);
        while let Err(back) = link.set(fresh) {
            fresh = back;
            match link.get() {
                Some(entry) if entry.digest == *digest => return,
                Some(entry) => link = &entry.next,
                None => {}
            }
        }
    }

    fn bucket(&self, digest: &Digest) -> &Link<T> {
        // The last bytes of a digest in hexadecimal are evenly distributed.
        let tail = digest.0.len().saturating_sub(2);
        let number = digest.0.get(tail..).and_then(|text| usize::from_str_radix(text, 16).ok()).unwrap_or(0);
        &self.buckets[number % BUCKETS]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn colliding_digests_stay_apart_and_the_first_value_stays() {
        let map = AppendOnlyMap::new();
        let digests: Vec<_> = (0..600).map(|number| Digest(format!("{number:x}-{:02x}", number % 3).into())).collect();
        for (number, digest) in digests.iter().enumerate() {
            map.insert(digest, number);
        }
        for (number, digest) in digests.iter().enumerate() {
            map.insert(digest, 9_999);
            assert_eq!(**map.get(digest).unwrap(), number);
        }
        assert!(map.get(&Digest("absent-00".into())).is_none());
    }
}
