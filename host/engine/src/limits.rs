//! The limits of a sandbox, of a component file and of its compilation.

/// The limits of attempts and packs. Each field says what happens beyond its limit. No other attempt is affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory, over all memories of a component. Default: 64 MiB. More is `out_of_memory`.
    pub memory: usize,
    /// Elements of one table. Default: 20,000. More is `limit_exceeded`.
    pub table_elements: usize,
    /// Bytes of stack. Default: 512 KiB. More is `stack_overflow`.
    pub stack: usize,
    /// Resource handles held at the same time. Default: 1,000. More is `limit_exceeded`.
    pub handles: usize,
    /// Bytes that one host call may copy out of the sandbox. Default: 4 MiB. More is `limit_exceeded`.
    pub call_bytes: usize,
    /// Host calls. The writes to standard output, and those to standard error, each have the same limit. Default:
    /// 100,000. More is `limit_exceeded`.
    pub calls: u32,
    /// Bytes of log text, including standard output and standard error. Default: 256 KiB. The host drops further text
    /// and logs a line about it.
    pub log_bytes: usize,
    /// Bytes of output. Default: 4 MiB. More is `output_too_large`.
    pub output: usize,
    /// Bytes of a pause's state. Default: 256 KiB. More is `output_too_large`.
    pub state: usize,
    /// Random bytes in one call. Default: 64 KiB. More is a trap.
    pub random_bytes: u64,
    /// Core instances in one component. Default: 64. The engine refuses a pack with more.
    pub core_instances: u32,
    /// Memories in one component. Default: 8. The engine refuses a pack with more.
    pub memories: u32,
    /// Tables in one component. Default: 64. The engine refuses a pack with more.
    pub tables: u32,
    /// Bytes of a component file. Default: 32 MiB. The engine refuses a larger pack.
    pub component: usize,
    /// Bytes of memory of the process that compiles a pack. Default: 2 GiB. The engine refuses a pack that needs more.
    pub compile_memory: u64,
    /// Seconds of computing of that process, over all its threads. Default: 120. The engine refuses a pack that needs
    /// more.
    pub compile_seconds: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory: 64 << 20,
            table_elements: 20_000,
            stack: 512 << 10,
            handles: 1_000,
            call_bytes: 4 << 20,
            calls: 100_000,
            log_bytes: 256 << 10,
            output: 4 << 20,
            state: 256 << 10,
            random_bytes: 64 << 10,
            core_instances: 64,
            memories: 8,
            tables: 64,
            component: 32 << 20,
            compile_memory: 2 << 30,
            compile_seconds: 120,
        }
    }
}

impl Limits {
    /// Returns the bytes that may cross the sandbox boundary in one call, including the node's answer. It is slightly
    /// more than the largest output, so that an output reaches its own limit first.
    pub(crate) fn boundary_bytes(&self) -> usize {
        self.call_bytes.max(self.output) + (64 << 10)
    }
}
