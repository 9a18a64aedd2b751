//! File values in expressions. Using a file value as if it were its content is an error.

use std::fmt::Display;

use crate::{
    error::ExprError,
    json::{self, Object},
};

/// The names of the members that a file value may have.
const MEMBERS: [&str; 5] = ["kind", "fileId", "size", "mime", "name"];

/// The names of the members that the host may add to the output of a node.
const RECORDED: [&str; 5] = ["skipped", "cancelled", "failed", "error", "attempts"];

/// Maximum number of paths to file values in an error message.
const MAX_NAMED_FILES: usize = 3;

/// The place of a value: the root `nodes`, perhaps the output of a node, or a part of another value. Only the output of
/// a node can have the members in [`RECORDED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// The root `nodes`, whose members are outputs of nodes.
    Nodes,
    /// A value that may be the output of a node.
    Output,
    /// A part of another value.
    Part,
}

impl Rank {
    /// Returns the rank of a root's value.
    pub(crate) fn from_root(name: &str) -> Rank {
        if name == "nodes" { Rank::Nodes } else { Rank::Output }
    }

    /// Returns the rank of the parts of a value with this rank.
    pub(crate) fn part_rank(self) -> Rank {
        if self == Rank::Nodes { Rank::Output } else { Rank::Part }
    }
}

/// Returns true if `members` are those of a file value and no file value of this rank can have the key. `None` stands
/// for an index, which no file value has.
pub(crate) fn lacks(members: &Object, key: Option<&str>, rank: Rank) -> bool {
    let may_have = |key: &str| {
        members.contains_key(key) || MEMBERS.contains(&key) || (rank == Rank::Output && RECORDED.contains(&key))
    };
    json::is_file(members) && !key.is_some_and(may_have)
}

/// Returns the message about a missing part of a file value.
pub(crate) fn no_part_message(part: impl Display) -> String {
    format!("a file value has no `{part}`")
}

/// Returns the message about an operator or a filter that does not accept file values.
pub(crate) fn not_usable_message(what: &str) -> String {
    format!("`{what}` does not work on a file value")
}

/// Creates an error about file values used as if they were their content. `files` are the paths to them.
pub(crate) fn misuse_error(mut message: String, files: impl IntoIterator<Item = impl Display>) -> ExprError {
    let mut named: Vec<String> = Vec::new();
    for file in files.into_iter().map(|file| file.to_string()) {
        if named.len() < MAX_NAMED_FILES && !named.contains(&file) {
            message.push_str(&format!("; `{file}` is one"));
            named.push(file);
        }
    }
    ExprError::new(message).hint(HINT)
}

/// The suggested correction for a file value.
const HINT: &str = "its content is stored separately: read it with a node `file.content` (`as: text`, `as: json` \
                    with `at`, or `as: lines`), and use the `content` of that node";
