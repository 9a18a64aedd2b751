//! The sweep: the removal of runs, and of blobs that nothing refers to.

use flowcell_contract::{RunId, Tenant};
use serde::{Deserialize, Serialize};

use super::StoreError;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Swept {
    /// The number of blobs that the sweep removed.
    pub blobs: u64,
    /// The number of bytes that the sweep removed.
    pub bytes: u64,
    /// The number of bytes by which the store's file has become smaller. 0 for other stores.
    #[serde(default)]
    pub file_bytes: u64,
}

/// Removes data that a store no longer needs.
pub trait Sweep: Send + Sync {
    /// Removes the units of an ended run and of the runs below it. No other run can have the id of the ended run
    /// afterwards.
    fn forget(&self, tenant: &Tenant, run: &RunId);

    /// Removes the blobs that no stored text refers to, except those that were put a short time ago. Waits until the
    /// sweep has ended. All earlier calls of [`Sweep::forget`] take effect before the sweep.
    fn sweep(&self, tenant: &Tenant) -> Result<Swept, StoreError>;
}

/// The length of a hash in hexadecimal digits.
const HASH: usize = 64;

/// Returns the SHA-256 hashes in a text: all words of [`HASH`] hexadecimal digits.
pub(crate) fn hashes(text: &[u8]) -> impl Iterator<Item = &str> {
    let words = text.split(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    words.filter(|word| word.len() == HASH).filter_map(|word| std::str::from_utf8(word).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_a_whole_word() {
        let hash = "0123456789abcdef".repeat(4);
        let text = format!("{{\"a\":\"{hash}\",\"b\":\"sha256:{hash}\",\"c\":\"{hash}0\",\"d\":\"é{}\"}}", &hash[1..]);
        assert_eq!(hashes(text.as_bytes()).collect::<Vec<_>>(), [hash.as_str(), hash.as_str()]);
    }
}
