//! The types of scripts for editors: `flow.d.ts`.

use std::fmt::Write as _;

use flowcell::contract::functions::{Function, FunctionKind, functions};
use flowcell_assist::is_plain_name;

/// The name of the file beside scripts.
pub(in super::super) const FILE: &str = "flow.d.ts";

/// Returns the types of a script's arguments, and of the functions of expressions.
pub(in super::super) fn declarations() -> String {
    let mut text = include_str!("flow.d.ts").to_owned();
    let is_test = |function: &&Function| function.kind == FunctionKind::Test;
    interface(&mut text, "FlowTests", "", functions().filter(is_test));
    let tests = "  /** The tests of expressions. */\n  is: FlowTests;\n";
    interface(&mut text, "FlowFunctions", tests, functions().filter(|function| !is_test(function)));
    text
}

/// Adds an interface with `members` and with functions by all their names.
fn interface<'f>(text: &mut String, name: &str, members: &str, functions: impl Iterator<Item = &'f Function>) {
    _ = write!(text, "\ninterface {name} {{\n{members}");
    for Function { names, signature, summary, example, result, .. } in functions {
        // The text cannot end the comment.
        let about = format!("`{signature}`: {summary} `{example}` gives `{result}`").replace("*/", "* /");
        for name in names.iter().filter(|name| is_plain_name(name)) {
            _ = write!(text, "  /** {about} */\n  {name}(...values: any[]): any;\n");
        }
    }
    text.push_str("}\n");
}
