//! What expressions may cost. A flow is text from somebody else, so every growth has an end.

/// Bytes of one expression or path.
pub const EXPRESSION_BYTES: usize = 16 * 1024;

/// Words, numbers, texts and signs of one expression.
pub const TOKENS: usize = 1_000;

/// Brackets, negations and `if`s inside each other in one expression.
pub const NESTING: usize = 32;

/// Instructions that one evaluation may execute.
pub const FUEL: u64 = 100_000;

/// Bytes of text and items of lists (an item counts as [`ITEM_WORK`]) that the filters of one evaluation may touch.
pub const WORK: usize = 16 << 20;

/// What touching one item of a list counts in [`WORK`].
pub const ITEM_WORK: usize = 16;

/// Bytes of a text that an expression or a template makes. Texts that are only passed on have no limit here.
pub const TEXT_BYTES: usize = 1 << 20;

/// Values in a result that an expression makes; values that it only passes on count as one.
pub const VALUES: usize = 1_000_000;

/// Groups that `batch` and `slice` make or fill.
pub const GROUPS: usize = 10_000;

/// Lists and objects inside each other, in bindings and in results.
pub const DEPTH: usize = 128;

/// Lists and objects inside each other in JSON text that is read, and in values that are measured.
pub const JSON_DEPTH: usize = 127;

/// Values in JSON text that is read: an item or a member counts once, a list or an object [`CONTAINER`] times more. A list takes
/// 150 bytes of memory, however short its text is.
pub const JSON_VALUES: usize = 1_000_000;

/// What a list or an object counts in [`JSON_VALUES`], beside being an item itself.
pub const CONTAINER: usize = 5;

/// Operators inside each other in one condition.
pub const CONDITION_DEPTH: usize = 64;

/// Operators of one condition.
pub const CONDITION_TERMS: usize = 1_000;

/// Bytes of a pattern of `matches`.
pub const PATTERN_BYTES: usize = 1_024;

/// Bytes of a compiled pattern.
pub const PATTERN_PROGRAM_BYTES: usize = 32 * 1024;

/// Bytes of a text that `matches` searches, times bytes of the compiled pattern: what the time of a search grows with.
/// The smallest patterns search 1 MiB, the largest 8 KiB.
pub const SEARCH_WORK: usize = 256 << 20;

/// How much [`SEARCH_WORK`] counts as one unit of [`WORK`].
pub const SEARCH_PER_WORK: usize = 32;

/// Full searches that one evaluation of a condition may amount to.
pub const SEARCHES: usize = 4;

/// The largest list index that is captured by itself; beyond it, and for indices from the end, the list is captured.
pub const CAPTURED_INDEX: i64 = 1_023;
