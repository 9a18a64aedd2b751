//! The numbers of the language; the README has them in its table.

/// Bytes of a flow's text.
pub const DOCUMENT_BYTES: usize = 4 << 20;
/// Nesting of a flow's text.
pub const DOCUMENT_DEPTH: usize = 64;
/// Values in a flow's text.
pub const DOCUMENT_NODES: usize = 500_000;
/// Nodes of a flow, those in bodies included.
pub const NODES: usize = 10_000;
/// Edges of a flow.
pub const EDGES: usize = 50_000;
/// Bodies within bodies.
pub const BODY_DEPTH: usize = 16;
/// Flows that call flows.
pub const FLOW_DEPTH: usize = 16;
/// The longest timeout: 365 days, in milliseconds.
pub const MAX_TIMEOUT_MS: u64 = 365 * 24 * 3_600 * 1_000;
/// Attempts of one task.
pub const MAX_ATTEMPTS: u64 = 1_000;
/// Triggers of a flow.
pub const TRIGGERS: usize = 16;
/// Secrets that may sign what comes to one webhook.
pub const SIGNING_KEYS: usize = 4;
/// Attempts at a time.
pub const MAX_CONCURRENCY: u64 = 10_000;
/// Findings that are told one by one.
pub const FINDINGS: usize = 200;
/// Flows that are read to see whether a flow leads back to itself.
pub const CALLED_FLOWS: usize = 256;
/// Conditions that are followed from node to node to see which branches exclude each other.
pub const FACTS: usize = 64;
/// Running time of one attempt of a step of the agentic dialect: a day, in milliseconds.
pub const STEP_TIMEOUT_MS: u64 = 24 * 3_600 * 1_000;
/// Names of an agentic flow in which a misspelt one is looked for, and misspelt ones that are looked for.
pub const SIMILAR_NAMES: usize = 1_000;
