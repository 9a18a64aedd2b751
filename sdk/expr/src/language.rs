//! The expression language: a restricted form of MiniJinja's.
//!
//! An expression is parsed, checked and printed in a canonical form before MiniJinja compiles it. In the canonical
//! form, operators that create texts and calls of functions are filters that enforce the limits.

mod arithmetic;
mod budget;
mod call;
mod collections;
mod compare;
mod constants;
mod conversions;
mod dates;
mod decimal;
mod decimals;
mod digests;
mod encodings;
mod environment;
mod filters;
mod formats;
mod items;
mod lists;
mod logic;
mod lookup;
mod names;
mod operands;
mod printer;
mod program;
mod random;
mod scan;
mod searches;
mod shapes;
mod syntax_errors;
mod text;
mod tokens;
mod tree;
mod values;

pub use dates::{instant_milliseconds, instant_text};
pub(crate) use logic::constant_operand_of;
pub use names::RANDOM;
pub(crate) use program::Expression;
pub(crate) use scan::{Piece, pieces, split, whole};
pub(crate) use text::{TextTooLong, push_json};
pub(crate) use tokens::find_ignored;
