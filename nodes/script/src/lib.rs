//! The pack `script`: JavaScript that can reach only services.
//!
//! | module | purpose |
//! |---|---|
//! | input | the script and its inputs |
//! | script | loads a script, calls its functions, and waits for the promises that they return |
//! | text | hands the text of a script to the parser; stops if nesting uses too much of the sandbox's stack |
//! | syntax | finds the places of syntax errors, and the uses of a name |
//! | session | the state of a script that the functions of `flow` and `services` share |
//! | outline | the declarations of a script |
//! | declare | the object `flow` of `setup(flow)` |
//! | services | the object `services`: inputs, outputs, and a function for every service |
//! | calls | calls of services that are in progress |
//! | console | the object `console` |
//! | globals | globals whose values are created when a script first uses them |
//! | functions | the global `fn`, with the functions of expressions |
//! | web | names of the web platform, such as `URL` and `crypto` |
//! | rejections | rejected promises without a handler |
//! | value | conversion between JavaScript values and JSON |
//! | thrown | errors that scripts can catch |
//! | trouble | converts a thrown value into the failure of the script, with its place |

mod calls;
mod console;
mod declare;
mod functions;
mod globals;
mod input;
mod outline;
mod rejections;
mod script;
mod services;
mod session;
mod syntax;
#[cfg(test)]
mod tests;
mod text;
mod thrown;
mod trouble;
mod value;
mod web;

use flowcell_sdk::{Result, Step, Task};
use serde_json::json;

use crate::{input::Input, script::Script};

/// Returns the declarations of a script (title, description, inputs and outputs), without calling its `run`.
fn inspect(task: &Task) -> Result<Step> {
    let mut script = Script::load(Input::read(task)?)?;
    Step::value(script.outline()?)
}

/// Runs a script. Returns the result of its `run`, and its outputs.
fn run(task: &Task) -> Result<Step> {
    let mut script = Script::load(Input::read(task)?)?;
    script.check_inputs()?;
    let (result, outputs) = script.run()?;
    Step::value(json!({ "result": result, "outputs": outputs }))
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "script.inspect" => inspect,
    "script.run" => run,
}
