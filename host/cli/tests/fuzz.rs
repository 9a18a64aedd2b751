//! Installs and uses mutated packs: no bytes may cause a panic. Each pack is one of the corpus with a few random
//! changes, or a combination of two. `FLOWCELL_TEST_SCALE` multiplies the rounds, and `FLOWCELL_TEST_SEED` changes the
//! random choices. A pack that has caused a panic is added to the corpus, which is also tried unchanged.

mod mutation;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use flowcell::{
    Host,
    packs::{Arrival, Installer, Lock, PackStore, Source, Trust},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::kit;

/// The number of packs to try, multiplied by `FLOWCELL_TEST_SCALE`.
const ROUNDS: usize = 20_000;
/// The number of packs after which a new host replaces the old one, since a host keeps every pack that it has read.
const PACKS_OF_A_HOST: usize = 1_000;
/// A flow that names a pack and uses its types.
const FLOW: &str = "
flow: { name: fuzzed, packs: [pack.wasm] }
nodes:
  - { id: a, type: acme.x, input: { n: 1 }, grants: { http: ['https://example.com'] } }
  - { id: b, type: acme.y@1.0, input: { list: [1, 2] }, body: [c] }
  - { id: c, type: control.noop }
";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus")
}

/// Reads the packs of the corpus. Each pack is a `.wat` text with its manifest in a `.yaml` file next to it, or the
/// bytes of a `.wasm` file that has caused a panic earlier.
fn packs() -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: PathBuf| match file.extension()?.to_str()? {
        "wat" => {
            let manifest = fs::read_to_string(file.with_extension("yaml")).unwrap();
            Some(flowcell::embed(wat::parse_file(&file).unwrap(), &manifest).unwrap())
        }
        "wasm" => Some(fs::read(file).unwrap()),
        _ => None,
    };
    files.into_iter().filter_map(read).collect()
}

/// A user who installs packs and checks flows.
struct User {
    folder: tempfile::TempDir,
    host: Host,
    packs: usize,
}

impl User {
    fn new() -> User {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("flow.yaml"), FLOW).unwrap();
        User { folder, host: host(), packs: 0 }
    }

    /// Installs and checks a pack. Returns whether it was accepted.
    fn try_pack(&mut self, pack: &[u8]) -> bool {
        self.packs += 1;
        if self.packs.is_multiple_of(PACKS_OF_A_HOST) {
            self.host = host();
        }
        fs::write(self.folder.path().join("pack.wasm"), pack).unwrap();
        let met = catch_unwind(AssertUnwindSafe(|| {
            let installs = self.installs(pack);
            let checked = self.host.check_flow(self.folder.path().join("flow.yaml")).unwrap();
            assert!(checked.flow.is_none() || installs, "it is used, and could not be installed");
            installs
        }));
        met.unwrap_or_else(|_| {
            let kept = corpus().join(format!("found-{:08x}.wasm", crc32fast::hash(pack)));
            fs::write(&kept, pack).unwrap();
            panic!("a pack does harm; it is kept as {}", kept.display());
        })
    }

    /// Returns whether the pack can be installed.
    fn installs(&self, pack: &[u8]) -> bool {
        let (store, trust) = (PackStore::at(self.folder.path().join("packs")), Trust::default());
        let mut lock = Lock::read(&self.folder.path().join("flowcell.lock")).unwrap();
        let arrival = Arrival { source: Source::File("pack.wasm".into()), bytes: pack.to_vec(), signature: None };
        Installer { lock: &mut lock, store: &store, trust: &trust }.examine(arrival).is_ok()
    }
}

fn host() -> Host {
    Host::builder().without_cache().instances(1).build().unwrap()
}

#[test]
fn n27_mutated_packs_cause_no_panic() {
    let (packs, mut user) = (packs(), User::new());
    assert!(packs.iter().all(|pack| user.try_pack(pack) || pack.is_empty()), "the corpus is taken as it is");
    let seed = std::env::var("FLOWCELL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut dice = StdRng::seed_from_u64(seed);
    let (rounds, mut taken) = (ROUNDS * kit::scale(), 0);
    for _ in 0..rounds {
        let (one, other) = (&packs[dice.random_range(0..packs.len())], &packs[dice.random_range(0..packs.len())]);
        taken += usize::from(user.try_pack(&mutation::changed(one, other, &mut dice)));
    }
    // If all or no packs were accepted, the mutations would test nothing.
    assert!((rounds / 100..rounds * 99 / 100).contains(&taken), "{taken} were taken");
}
