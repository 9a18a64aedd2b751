//! JSON Schema with bounded cost. The host builds validators only in this crate.
//!
//! Schemas come from tenants, packs and tool servers. Even a small schema can be extremely expensive: its references
//! may lead to 2^40 visits, a pattern may need a minute for one text, and cyclic references may overflow the stack.
//! Every schema is therefore measured before it is compiled. A check validates one value against one schema. It counts
//! its visits, and stops with [`TooCostly`] if it exceeds its limit of visits, of time or of stack.
//!
//! A visit is one access of the validator to a part of the value: a list, an object, a member, a number or up to 256
//! bytes of text. To unfold a schema means to replace each reference in it with the schema to which it refers.
//!
//! | module | content |
//! |---|---|
//! | clock | the CPU time of a thread |
//! | [`measure`] | the size of a schema with unfolded references |
//! | [`meter`] | the budget of one check |
//! | [`pattern`] | regular expressions with a limit on pattern size times text size |
//! | [`tree`] | the validator's view of a value, in which each access counts as a visit |
//!
//! A check may run for [`TIME`]. On a thread of an async runtime use [`Budget::SHORT`], and repeat a check that exceeds
//! it on a thread that may block.

mod clock;
mod measure;
mod meter;
mod pattern;
#[cfg(test)]
mod tests;
mod tree;

use std::time::Duration;

use flowcell_contract::Json;
use jsonschema::{PatternOptions, Validator};
pub use jsonschema::{ValidationError, error::ValidationErrorKind};
use serde_json::Value;

use self::tree::Tree;
pub use self::{clock::thread_time, meter::TooCostly};

/// Maximum number of subschemas of a schema in a new flow, counted after unfolding.
pub const NODES: u64 = 10_000;
/// Maximum cost of measuring a schema: 1 for each JSON value in it, 1 for each subschema after unfolding, and 1 for
/// every 16 bytes of its patterns. This limit is higher than [`NODES`], so that larger schemas in stored flows and
/// packs stay usable.
pub const MAX_STORED_NODES: u64 = 200_000;
/// Maximum nesting depth of schemas, references included. It bounds the stack that the compiler needs.
pub const DEPTH: usize = 128;
/// Maximum number of visits in one check with [`Budget::FULL`]. For a large value, the maximum is 16 visits for each
/// part of the value, if that is more.
pub const VISITS: u64 = 1_000_000;
/// Maximum CPU time of one check, and of compiling one schema. Unlike the wall-clock time, it does not depend on what else
/// the machine does.
pub const TIME: Duration = Duration::from_secs(1);
/// Maximum size of a compiled pattern in bytes.
pub const PATTERN_BYTES: usize = 1 << 20;
/// Maximum cost of matching a text against a pattern: the length of the text in bytes times the number of the pattern's
/// positions. A position is a state of the pattern that may be active while one byte is read.
pub const PATTERN_STEPS: u64 = 200_000_000;
/// Number of visits that a check may make for each part of a large value.
const VISITS_PER_PART: u64 = 16;

/// Limits of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    visits: u64,
    time: Duration,
}

impl Budget {
    /// [`VISITS`] and [`TIME`], for threads that may block.
    pub const FULL: Budget = Budget { visits: VISITS, time: TIME };
    /// A fiftieth of [`VISITS`] and 20 ms, for threads of an async runtime.
    pub const SHORT: Budget = Budget { visits: VISITS / 50, time: Duration::from_millis(20) };
}

/// The reason why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The schema, or compiling it, exceeds a limit.
    #[error(transparent)]
    TooCostly(#[from] TooCostly),
    /// A reference has no target in the schema, so the schema cannot be measured. New flows must not contain such a
    /// schema.
    #[error("the reference `{0}` has no target in the schema; write it as `#/$defs/NAME`")]
    UnresolvedReference(String),
    /// The value is not a valid JSON Schema.
    #[error(transparent)]
    Invalid(Box<ValidationError<'static>>),
}

/// A compiled schema. Its references stay inside the schema, and its patterns run in linear time.
pub struct Schema {
    validator: Validator<Tree>,
    nodes: u64,
    key_positions: u64,
    unresolved_reference: Option<String>,
}

impl Schema {
    /// Measures and compiles a schema. Each of the two may take up to [`TIME`].
    pub fn compile(schema: &Value) -> Result<Schema, SchemaError> {
        let budget = Budget { visits: MAX_STORED_NODES, time: TIME };
        let measured = meter::with_budget(budget, 0, || measure::measure(schema));
        let measured =
            measured.map_err(|error| if error == TooCostly::Visits { TooCostly::Nodes } else { error })??;
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES);
        let options =
            jsonschema::options_for::<Tree>().with_pattern_options(patterns).with_keyword("pattern", pattern::compile);
        let built = meter::with_budget(Budget::FULL, 0, || options.build(schema))?;
        let validator = built.map_err(|error| SchemaError::Invalid(Box::new(error)))?;
        let measure::Measured { nodes, key_positions, unresolved_reference } = measured;
        Ok(Schema { validator, nodes, key_positions, unresolved_reference })
    }

    /// Returns the number of subschemas after unfolding. Where a schema contains itself, it counts once more but is not
    /// unfolded again.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Returns an error if a new flow must not contain this schema: its size exceeds [`NODES`] or cannot be measured.
    pub fn check_new(&self) -> Result<(), SchemaError> {
        match &self.unresolved_reference {
            Some(reference) => Err(SchemaError::UnresolvedReference(reference.clone())),
            None if self.nodes > NODES => Err(TooCostly::Nodes.into()),
            None => Ok(()),
        }
    }

    /// Returns true if a value matches the schema.
    pub fn is_valid(&self, value: &Json, budget: Budget) -> Result<bool, TooCostly> {
        self.check_within(value, budget, || self.validator.is_valid(value))
    }

    /// Returns the errors of a value; none if the value is valid. Returns only the first error if collecting all of
    /// them exceeds the budget. An error shows at most 1 KiB of the value.
    pub fn errors<'v>(&'v self, value: &'v Json, budget: Budget) -> Result<Vec<ValidationError<'v>>, TooCostly> {
        if self.is_valid(value, budget)? {
            return Ok(Vec::new());
        }
        let all = meter::with_budget(budget, self.key_positions, || self.validator.iter_errors(value).collect());
        all.or_else(|_| self.check_within(value, budget, || self.validator.validate(value).err().into_iter().collect()))
    }

    /// Runs a check within a budget. If the budget is [`Budget::FULL`] and its visits do not suffice, runs the check
    /// again with [`VISITS_PER_PART`] visits for each part of the value, provided that these are more.
    fn check_within<T>(&self, value: &Json, budget: Budget, check: impl Fn() -> T) -> Result<T, TooCostly> {
        let done = meter::with_budget(budget, self.key_positions, &check);
        if !matches!(done, Err(TooCostly::Visits)) || budget != Budget::FULL {
            return done;
        }
        let visits = tree::visits(value).saturating_mul(VISITS_PER_PART);
        if visits <= VISITS {
            done
        } else {
            meter::with_budget(Budget { visits, ..budget }, self.key_positions, &check)
        }
    }
}
