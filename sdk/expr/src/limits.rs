//! The limits of expressions. Flows are untrusted text, so every cost is bounded.

/// Maximum size of an expression or a path in bytes.
pub const EXPRESSION_BYTES: usize = 16 * 1024;

/// Maximum number of tokens in an expression.
pub const TOKENS: usize = 1_000;

/// Maximum nesting depth of brackets, negations and `if`s in an expression.
pub const NESTING: usize = 32;

/// Maximum number of instructions in one evaluation.
pub const FUEL: u64 = 100_000;

/// Maximum work of the filters in one evaluation, in bytes of text. A list item counts as [`ITEM_WORK`] bytes.
pub const WORK: usize = 16 << 20;

/// The work of processing one list item, in units of [`WORK`].
pub const ITEM_WORK: usize = 16;

/// The fixed work of evaluating one expression, or one test of a condition, in units of [`WORK`]. An expression
/// that is a plain path does not count. The work is counted only if several evaluations share a limit
/// (`allowance.rs`).
pub const EVALUATION_WORK: u64 = 1_024;

/// Maximum size in bytes of a text that an expression or a template creates. Existing texts may be longer.
pub const TEXT_BYTES: usize = 1 << 20;

/// Maximum size in bytes, as JSON text, of a constant that a binding stores in place of the expression that gives it. A
/// larger one is computed with each rendering.
pub const FOLDED_BYTES: usize = 4 * 1024;

/// Maximum number of new values in the result of an expression. A list or an object that already existed counts as one.
pub const VALUES: usize = 1_000_000;

/// Maximum number of lists that `slice` creates, and of fillings that `batch` adds to the last list.
pub const GROUPS: usize = 10_000;

/// Maximum nesting depth of bindings and results.
pub const DEPTH: usize = 128;

/// Maximum nesting depth of JSON text that is read, and of values that are measured.
pub const JSON_DEPTH: usize = 127;

/// Maximum number of values in JSON text that is read. Each item of a list and each member of an object counts as one
/// value. A list or an object counts as [`CONTAINER`] values more, because a list needs 150 bytes of memory even if its
/// text is short.
pub const JSON_VALUES: usize = 1_000_000;

/// The number of values for which a list or an object counts in [`JSON_VALUES`], beyond the one value for which it
/// counts as an item or a member.
pub const CONTAINER: usize = 5;

/// Maximum nesting depth of operators in a condition.
pub const CONDITION_DEPTH: usize = 64;

/// Maximum number of operators in a condition.
pub const CONDITION_TERMS: usize = 1_000;

/// Maximum size of a `matches` pattern in bytes.
pub const PATTERN_BYTES: usize = 1_024;

/// Maximum size of a compiled pattern in bytes.
pub const PATTERN_PROGRAM_BYTES: usize = 32 * 1024;

/// Maximum cost of a search by `matches`: bytes of the text times bytes of the compiled pattern, which bounds the time.
/// The smallest patterns can search 1 MiB, the largest 8 KiB.
pub const SEARCH_WORK: usize = 256 << 20;

/// Number of units of [`SEARCH_WORK`] that count as one unit of [`WORK`].
pub const SEARCH_PER_WORK: usize = 32;

/// The work of reading the rules of a time zone, once in an evaluation, in units of [`WORK`].
pub const ZONE_WORK: usize = 8 * 1024;

/// Maximum cost of all searches in one evaluation of a condition, as a multiple of [`SEARCH_WORK`].
pub const SEARCHES: usize = 4;

/// The largest index for which a captured field includes one item of a list without the rest of the list. For a larger
/// index, or a negative one, which counts from the end, the field includes the whole list.
pub const CAPTURED_INDEX: i64 = 1_023;
