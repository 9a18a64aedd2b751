//! File values in expressions: what is done with one as if it were its content is an error.

use std::fmt::Display;

use crate::{
    error::ExprError,
    json::{self, Object},
};

/// The members that a file value may have.
const MEMBERS: [&str; 5] = ["kind", "fileId", "size", "mime", "name"];

/// The members that the host may record as the output of a node.
const RECORDED: [&str; 5] = ["skipped", "cancelled", "failed", "error", "attempts"];

/// Paths that an error names at most.
const NAMED: usize = 3;

/// Where a value stands among what an evaluation sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// It is `nodes`: its members are outputs.
    Nodes,
    /// It has a name of its own, so that it may be the output of a node.
    Output,
    /// It is a part of another value.
    Part,
}

impl Rank {
    /// The rank of what a root name stands for.
    pub(crate) fn of_root(name: &str) -> Rank {
        if name == "nodes" { Rank::Nodes } else { Rank::Output }
    }

    /// The rank of a part of a value with this rank.
    pub(crate) fn of_part(self) -> Rank {
        if self == Rank::Nodes { Rank::Output } else { Rank::Part }
    }
}

/// Whether these are members of a file value, which never has this one. No key means an index.
pub(crate) fn lacks(members: &Object, key: Option<&str>, rank: Rank) -> bool {
    let may_have = |key: &str| {
        members.contains_key(key) || MEMBERS.contains(&key) || (rank == Rank::Output && RECORDED.contains(&key))
    };
    json::is_file(members) && !key.is_some_and(may_have)
}

/// The sentence about a part that a file value has not.
pub(crate) fn no_part(part: impl Display) -> String {
    format!("a file value has no `{part}`")
}

/// The sentence about a sign, a filter or an operator that is used on a file value.
pub(crate) fn not_usable(what: &str) -> String {
    format!("`{what}` does not work on a file value")
}

/// The error about file values that are used like their contents; the paths lead to them.
pub(crate) fn misused(mut message: String, files: impl IntoIterator<Item = impl Display>) -> ExprError {
    let mut named: Vec<String> = Vec::new();
    for file in files.into_iter().map(|file| file.to_string()) {
        if named.len() < NAMED && !named.contains(&file) {
            message.push_str(&format!("; `{file}` is one"));
            named.push(file);
        }
    }
    ExprError::new(message).hint(HINT)
}

/// What to do instead.
const HINT: &str = "it stands for a content that is not here: read it with a node `file.content` (`as: text`, `as: json` \
                    with `at`, or `as: lines`), and use the `content` of that node";
