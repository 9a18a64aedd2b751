//! The expressions of flows: paths, `{{ }}` bindings, conditions (`when`) and templates.
//!
//! The host and the nodes share this implementation: a condition has the same meaning in a component's sandbox as on an
//! edge.
//!
//! ```
//! use flowcell_expr::{Binding, Json};
//!
//! let roots = Json::parse(r#"{ "flow": { "input": { "name": "Ada", "tags": ["a", "b"] } } }"#).unwrap();
//! let binding = Binding::compile(&Json::from("Hello {{ flow.input.name | upper }}!")).unwrap();
//! assert_eq!(binding.render(&roots).unwrap(), Json::from("Hello ADA!"));
//! ```

mod allowance;
mod binding;
mod call;
mod captured;
mod condition;
mod error;
mod file;
pub mod functions;
mod ignored_text;
pub mod json;
mod language;
pub mod limits;
mod misread;
mod order;
mod path;
mod path_use;
mod pattern;
mod place;
mod quoted;
mod rename;
mod roots;
mod statements;
mod suggest;

pub use allowance::{Metered, metered};
pub use binding::Binding;
pub use call::call;
pub use captured::{Captured, CapturedKind};
pub use condition::Condition;
pub use error::ExprError;
pub use ignored_text::without_ignored;
pub use json::Json;
pub use language::{RANDOM, instant_milliseconds, instant_text};
pub use misread::{constant_operand, misread};
pub use order::Ordered;
pub use path::{Path, Segment};
pub use path_use::{PathUse, Reads};
pub use rename::{Edit, NodeIds, apply_edits, node_path, rename_nodes};
pub use roots::{Chain, NoRoots, Roots, Strict};
pub use statements::{Statement, is_one_expression, paths_in_braces, statements};
pub use suggest::{did_you_mean, similar};
