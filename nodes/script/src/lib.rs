//! The pack `script`: JavaScript that reaches nothing but services.
//!
//! | room | what it is |
//! |---|---|
//! | input | which script is meant, and what it is given |
//! | script | a script that was loaded, and its functions, each followed until it has settled |
//! | text | the text of a script, which is read no deeper than the sandbox's stack allows |
//! | syntax | where a text is no JavaScript, and where it uses a name |
//! | session | what a script and the host's side of it share while it runs |
//! | outline | what a script has said of itself |
//! | declare | the object `flow` of `setup(flow)` |
//! | services | the object `services`: inputs, outputs, and a function for every service |
//! | calls | calls of services that are under way |
//! | console | the object `console` |
//! | rejections | promises that were rejected and that nobody looks at |
//! | value | values of JavaScript as JSON, and back |
//! | thrown | errors that scripts can catch |
//! | trouble | why a script has failed, with its place |

mod calls;
mod console;
mod declare;
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

use flowcell_sdk::{Result, Step, Task};
use serde_json::json;

use crate::{input::Input, script::Script};

/// What a script says of itself. Its `run` is not called.
fn inspect(task: &Task) -> Result<Step> {
    let mut script = Script::load(Input::read(task)?)?;
    Step::value(script.outline()?)
}

/// Runs a script.
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
