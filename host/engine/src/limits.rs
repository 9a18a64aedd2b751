//! Every limit of a sandbox.

/// What one attempt may use. Reaching a limit ends the attempt; nobody else notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory, over all memories of a component: 64 MiB. More is `out_of_memory`.
    pub memory: usize,
    /// Elements of one table: 20,000. More is `limit_exceeded`.
    pub table_elements: usize,
    /// Bytes of stack: 512 KiB. More is `stack_overflow`.
    pub stack: usize,
    /// Resource handles at a time: 1,000. More is `limit_exceeded`.
    pub handles: usize,
    /// Bytes that one host call may copy out of the sandbox: 4 MiB. More is `limit_exceeded`.
    pub call_bytes: usize,
    /// Host calls, writes to standard output included: 100,000. More is `limit_exceeded`.
    pub calls: u32,
    /// Bytes of log text, standard output included: 256 KiB. What comes after is dropped, and a line says so.
    pub log_bytes: usize,
    /// Bytes of output: 4 MiB. More is `output_too_large`.
    pub output: usize,
    /// Bytes of a pause's state: 256 KiB. More is `output_too_large`.
    pub state: usize,
    /// Random bytes in one call: 64 KiB. More is a trap.
    pub random_bytes: u64,
    /// Core instances in one component: 64. More refuses the pack.
    pub core_instances: u32,
    /// Memories in one component: 8. More refuses the pack.
    pub memories: u32,
    /// Tables in one component: 64. More refuses the pack.
    pub tables: u32,
    /// Bytes of a component file: 32 MiB. More refuses the pack.
    pub component: usize,
    /// Bytes of memory of the process that compiles a pack: 2 GiB. More refuses the pack.
    pub compile_memory: u64,
    /// Seconds for which that process may compute, over all its threads: 120. More refuses the pack.
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
    /// Bytes that may cross the border in one call, the node's answer included: a little more than the largest output,
    /// so that an output's own limit is met first.
    pub(crate) fn border_bytes(&self) -> usize {
        self.call_bytes.max(self.output) + (64 << 10)
    }
}
