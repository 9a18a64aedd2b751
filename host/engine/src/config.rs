//! The settings of the engine that an operator can choose.

use std::path::PathBuf;

use flowcell_contract::GrantedLimits;

use crate::{Compiler, Limits};

/// The configuration of an engine.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The folder of the cache of compiled code. `None`: the engine has no cache.
    pub cache_dir: Option<PathBuf>,
    /// The command that compiles packs from outside this program. `None`: this process compiles them, without a limit
    /// on memory and time.
    pub compiler: Option<Compiler>,
    /// The limits of one attempt.
    pub limits: Limits,
    /// The number of threads that run guests. `None`: one for each core.
    pub threads: Option<usize>,
    /// The maximum number of concurrent instances, at least 32; further attempts wait. An instance that waits for a
    /// call counts too. `None`: as many as the machine can hold, at most 1,000. To reserve an instance costs 2 µs when
    /// the engine starts, so a short-lived process should set a lower number.
    pub instances: Option<u32>,
    /// The bytes of linear memory that all instances share, beyond the first 4 MiB of each. `None`: a quarter of the
    /// machine's memory. A tenant that has some of this memory gets more only if it then has no more bytes than are
    /// still free.
    pub memory: Option<u64>,
    /// The largest limits that node types may ask for. Default: the usual limits. Attempts with more memory than
    /// [`Limits::memory`] have memory beside the memory that all instances share.
    pub granted: GrantedLimits,
    /// True if [`Engine::measure`](crate::Engine::measure) makes profiles with whole stacks. Otherwise they have 4 frames.
    pub profiles: bool,
}
