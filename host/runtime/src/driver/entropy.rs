//! Random numbers that follow from a seed.

use sha2::{Digest, Sha256};

use crate::{decide::Entropy, fact::TaskKey};

/// Bytes of a block of SHA-256.
const BLOCK_BYTES: usize = 64;

/// A small generator of random numbers (SplitMix64). Its only state is one number, at first the seed of the run.
pub(super) struct SplitMix(pub(super) u64);

impl Entropy for SplitMix {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// Returns the seed of an attempt: the first 64 bits of HMAC-SHA256 of the task and the attempt, with the seed of the run as
/// the key. A node sees its own seed, and cannot compute those of other attempts from it.
pub(super) fn attempt_seed(run: u64, task: TaskKey, attempt: u32) -> u64 {
    let mut message = b"attempt".to_vec();
    [task.scope.0, task.node.0, attempt].iter().for_each(|number| message.extend(number.to_be_bytes()));
    hmac(&run.to_be_bytes(), &message).iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// Returns the seed of an attempt as older versions did: each seed shows that of the run. The runs that they have begun keep
/// these seeds, so that a repeated attempt draws the same values.
pub(super) fn older_attempt_seed(run: u64, task: TaskKey, attempt: u32) -> u64 {
    let salt = (u64::from(task.scope.0) << 32 | u64::from(task.node.0)) ^ mix(u64::from(attempt));
    mix(run ^ mix(salt))
}

/// Returns HMAC-SHA256 (RFC 2104) of a message. The key has at most [`BLOCK_BYTES`] bytes.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let pad = |with: u8| {
        let mut block = [with; BLOCK_BYTES];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

fn mix(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use flowcell_flow::graph::NodeIx;

    use super::*;
    use crate::fact::ScopeId;

    #[test]
    fn hmac_has_the_values_of_rfc_4231() {
        let told = hex::encode(hmac(b"Jefe", b"what do ya want for nothing?"));
        assert_eq!(told, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let told = hex::encode(hmac(&[0x0b; 20], b"Hi There"));
        assert_eq!(told, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }

    #[test]
    fn each_run_node_attempt_and_pass_has_its_own_seed() {
        let mut seen = HashSet::new();
        for run in [0, 1, u64::MAX] {
            for (scope, node, attempt) in
                [(0, 0, 1), (0, 1, 1), (1, 0, 1), (0, 0, 2), (1, 1, 1), (2, 0, 1), (256, 0, 1)]
            {
                let task = TaskKey { scope: ScopeId(scope), node: NodeIx(node) };
                assert!(seen.insert(attempt_seed(run, task, attempt)), "{run} {scope} {node} {attempt}");
                assert!(seen.insert(older_attempt_seed(run, task, attempt)), "{run} {scope} {node} {attempt}");
            }
        }
    }

    #[test]
    fn runs_of_older_versions_keep_their_seeds() {
        let task = TaskKey { scope: ScopeId(3), node: NodeIx(2) };
        assert_eq!(older_attempt_seed(7, task, 1), 0x4f97_54c8_7f58_0a44);
    }
}
