//! JSON Schema on a budget: the only place of the host that builds validators.
//!
//! Schemas are text of tenants, packs and tool servers. A small one may cost any amount of work: references unfold to
//! 2^40 visits, a pattern takes a minute for one text, a cycle of references fills the stack. So every schema is measured
//! before it is compiled, and every check counts its visits, looks at the clock and at the stack, and stops.
//!
//! | room | content |
//! |---|---|
//! | [`measure`] | the size of a schema with its references unfolded |
//! | [`meter`] | the budget of one check |
//! | [`pattern`] | regular expressions, refused when pattern and text are too large together |
//! | [`tree`] | the values as the validator sees them; each look at one is a visit |
//!
//! A check may compute for [`TIME`]. Callers on a thread of an async runtime use [`Budget::SHORT`], and give what exceeds it
//! to a thread that may block.

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

pub use self::meter::TooCostly;
use self::tree::Tree;

/// Schemas that one schema may consist of with its references unfolded, when a flow or a pack is new.
pub const NODES: u64 = 10_000;
/// Parts of a schema, and schemas that its references unfold to, when a flow or a pack has it already.
pub const MOST_NODES: u64 = 200_000;
/// Schemas nested in each other, references included. It bounds the stack that compiling takes.
pub const DEPTH: usize = 128;
/// Visits of one check. A large value has 16 for each of its parts, if that is more.
pub const VISITS: u64 = 1_000_000;
/// Wall-clock time of one check, and of compiling one schema.
pub const TIME: Duration = Duration::from_secs(1);
/// Bytes of one compiled pattern.
pub const PATTERN_BYTES: usize = 1 << 20;
/// Bytes of a text times positions of a pattern that it is matched against.
pub const PATTERN_STEPS: u64 = 200_000_000;
/// Visits that each part of a large value adds to a check.
const VISITS_PER_PART: u64 = 16;

/// The work that a check may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    visits: u64,
    time: Duration,
}

impl Budget {
    /// [`VISITS`] and [`TIME`]; only for threads that may block.
    pub const FULL: Budget = Budget { visits: VISITS, time: TIME };
    /// About a millisecond, for threads of an async runtime.
    pub const SHORT: Budget = Budget { visits: VISITS / 50, time: Duration::from_millis(20) };
}

/// Why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// Its size, or compiling it, exceeds a limit.
    #[error(transparent)]
    TooCostly(#[from] TooCostly),
    /// A reference has no target that can be measured, so a new flow may not have it.
    #[error("the reference `{0}` cannot be followed; write it as `#/$defs/NAME`")]
    LostReference(String),
    /// It is not a JSON Schema.
    #[error(transparent)]
    Invalid(Box<ValidationError<'static>>),
}

/// A compiled schema. No `$ref` leaves it, and its patterns take linear time.
pub struct Schema {
    validator: Validator<Tree>,
    nodes: u64,
    key_positions: u64,
    lost: Option<String>,
}

impl Schema {
    /// Measures and compiles a schema within [`Budget::FULL`]. It may block for [`TIME`].
    pub fn compile(schema: &Value) -> Result<Schema, SchemaError> {
        let budget = Budget { visits: MOST_NODES, time: TIME };
        let measured = meter::within(budget, 0, || measure::measure(schema));
        let measured =
            measured.map_err(|error| if error == TooCostly::Visits { TooCostly::Nodes } else { error })??;
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES);
        let options =
            jsonschema::options_for::<Tree>().with_pattern_options(patterns).with_keyword("pattern", pattern::compile);
        let built = meter::within(Budget::FULL, 0, || options.build(schema))?;
        let validator = built.map_err(|error| SchemaError::Invalid(Box::new(error)))?;
        let measure::Measured { nodes, key_positions, lost } = measured;
        Ok(Schema { validator, nodes, key_positions, lost })
    }

    /// The schemas that it consists of with its references unfolded. Those of a cycle count once for each way into it.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Returns an error if a new flow may not have this schema: its size exceeds [`NODES`], or cannot be measured.
    pub fn check_new(&self) -> Result<(), SchemaError> {
        match &self.lost {
            Some(reference) => Err(SchemaError::LostReference(reference.clone())),
            None if self.nodes > NODES => Err(TooCostly::Nodes.into()),
            None => Ok(()),
        }
    }

    /// Checks a value.
    pub fn is_valid(&self, value: &Json, budget: Budget) -> Result<bool, TooCostly> {
        self.within(value, budget, || self.validator.is_valid(value))
    }

    /// Checks a value and lists what is wrong with it: only the first error if listing all exceeds the budget. Errors show at
    /// most 1 KiB of the value.
    pub fn errors<'v>(&'v self, value: &'v Json, budget: Budget) -> Result<Vec<ValidationError<'v>>, TooCostly> {
        if self.is_valid(value, budget)? {
            return Ok(Vec::new());
        }
        let all = meter::within(budget, self.key_positions, || self.validator.iter_errors(value).collect());
        all.or_else(|_| self.within(value, budget, || self.validator.validate(value).err().into_iter().collect()))
    }

    /// Does something within a budget, which grows with a large value.
    fn within<T>(&self, value: &Json, budget: Budget, check: impl Fn() -> T) -> Result<T, TooCostly> {
        let done = meter::within(budget, self.key_positions, &check);
        if !matches!(done, Err(TooCostly::Visits)) || budget != Budget::FULL {
            return done;
        }
        let visits = tree::size(value).saturating_mul(VISITS_PER_PART);
        if visits <= VISITS { done } else { meter::within(Budget { visits, ..budget }, self.key_positions, &check) }
    }
}
