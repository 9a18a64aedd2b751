//! The expression language: MiniJinja's, fenced in.
//!
//! An expression is parsed, checked and written again in a canonical form before MiniJinja compiles it. The canonical
//! form routes every operator that makes texts through filters that keep the limits, and it calls nothing.

mod arithmetic;
mod bridge;
mod budget;
mod compare;
mod decimal;
mod environment;
mod filters;
mod foreign;
mod lists;
mod lookup;
mod names;
mod operands;
mod printer;
mod program;
mod scan;
mod text;
mod tokens;
mod tree;

pub(crate) use program::Expression;
pub(crate) use scan::{Piece, split, whole};
pub(crate) use text::{TooLong, push_json};
pub(crate) use tokens::ignored;
