//! The limits of the language. The page `limits` of the manual lists them.

/// Maximum size of a flow's text in bytes.
pub const DOCUMENT_BYTES: usize = 4 << 20;
/// Maximum nesting depth of a flow's text.
pub const DOCUMENT_DEPTH: usize = 64;
/// Maximum number of values in a flow's text.
pub const DOCUMENT_NODES: usize = 500_000;
/// Maximum number of nodes in a flow, including nodes in bodies.
pub const NODES: usize = 10_000;
/// Maximum number of edges in a flow.
pub const EDGES: usize = 50_000;
/// Maximum size of the grants in `flow.defaults`, as JSON, times the number of nodes: as if each node had them in its text.
pub const DEFAULT_GRANTS_BYTES: usize = DOCUMENT_BYTES;
/// Maximum size of the `retry.rules` in `flow.defaults`, as JSON, times the number of nodes. Nodes share the rules, but
/// texts about a flow list them for each node.
pub const DEFAULT_RULES_BYTES: usize = 4 * DOCUMENT_BYTES;
/// Maximum number of `vars` of a flow.
pub const VARS: usize = 256;
/// Maximum number of fragments of a flow.
pub const FRAGMENTS: usize = 256;
/// Maximum number of parameters of a fragment.
pub const FRAGMENT_PARAMS: usize = 64;
/// Maximum nesting depth of bodies.
pub const BODY_DEPTH: usize = 16;
/// Maximum nesting depth of cycles of edges.
pub const CYCLE_DEPTH: usize = 16;
/// Maximum of `maxPasses`: passes of a cycle of edges.
pub const MAX_PASSES: u64 = 1_000_000;
/// Maximum number of edges that leave cycles, counted once for each output of a node on the cycle that an expression
/// outside reads.
pub const CYCLE_WAYS: usize = 10_000_000;
/// Maximum depth of calls between flows.
pub const FLOW_DEPTH: usize = 16;
/// Maximum timeout in milliseconds: 365 days.
pub const MAX_TIMEOUT_MS: u64 = 365 * 24 * 3_600 * 1_000;
/// Maximum number of attempts of one task.
pub const MAX_ATTEMPTS: u64 = 1_000;
/// Maximum number of `rules` in a `retry`.
pub const RETRY_RULES: usize = 16;
/// Maximum number of codes in an `on` of a `retry`.
pub const RETRY_CODES: usize = 64;
/// Maximum length of such a code in bytes.
pub const RETRY_CODE_BYTES: usize = 64;
/// Maximum number of labels of a flow, a trigger or a run.
pub const LABELS: usize = 16;
/// Maximum size of the name and of the value of a label, in bytes.
pub const LABEL_BYTES: usize = 63;
/// Maximum number of triggers of a flow.
pub const TRIGGERS: usize = 16;
/// Maximum number of secrets that may sign the posts to one webhook.
pub const SIGNING_KEYS: usize = 4;
/// Maximum size in bytes of each text among the settings of a webhook, such as the name of a header.
pub const WEBHOOK_TEXT: usize = 256;
/// Time in milliseconds for which a post waits for the answer of its run, and the maximum of `respondTimeoutMs`.
pub const RESPOND_TIMEOUT_MS: u64 = 30_000;
/// Maximum of `maxConcurrency`: attempts that run at the same time.
pub const MAX_CONCURRENCY: u64 = 10_000;
/// Maximum number of diagnostics that are listed.
pub const DIAGNOSTICS: usize = 200;
/// Maximum number of called flows that the check of one flow reads, to find recursive calls.
pub const CALLED_FLOWS: usize = 256;
/// Maximum size in bytes of the texts of called flows that the check of one flow reads. Of further flows it only sees
/// whether they exist.
pub const CALLED_BYTES: usize = 8 << 20;
/// Maximum number of called flows that are checked themselves, to warn of those that cannot run.
pub const CHECKED_FLOWS: usize = 32;
/// Maximum number of names of flows that unknown names in a flow are compared with, all comparisons of a check together.
pub const FLOW_NAMES: usize = 10_000;
/// Maximum number of edges before all nodes with `cancelRest` of a flow, counted once for each of these nodes.
pub const CANCEL_REST_EDGES: usize = 1_000_000;
/// Maximum number of premises per node in the search for branches that exclude each other (module `joins`).
pub const PREMISES: usize = 64;
/// Timeout of one attempt of an agentic step in milliseconds: one day.
pub const STEP_TIMEOUT_MS: u64 = 24 * 3_600 * 1_000;
/// Maximum number of names in an agentic flow with which a misspelled name is compared. It is also the maximum number
/// of misspelled names for which similar ones are sought.
pub const SIMILAR_NAMES: usize = 1_000;
/// Maximum size of a predicate of an agentic rule in bytes, if it has more than one comparison, `sizeof` or parentheses.
pub const PREDICATE_BYTES: usize = 4 * 1024;
/// Maximum number of comparisons in a predicate.
pub const PREDICATE_COMPARISONS: usize = 64;
/// Maximum depth of parentheses in a predicate.
pub const PREDICATE_DEPTH: usize = 16;
