//! The node types of this pack. `node.yaml` describes their inputs and outputs.

use flowcell_sdk::{log, prelude::*};

/// The time in milliseconds that a person has to answer: one day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Deserialize)]
struct Greet {
    name: String,
}

#[derive(Serialize)]
struct Greeting {
    text: String,
}

fn greet(input: Greet) -> Result<Greeting> {
    if input.name.is_empty() {
        return Err(Failure::new("nobody", "the name is empty"));
    }
    Ok(Greeting { text: format!("Hello {}", input.name) })
}

#[derive(Deserialize)]
struct Approve {
    text: String,
}

/// Asks a person. The node's instance ends at the pause. When the answer arrives or the time is up, this function is
/// called again in a new instance.
fn approve(task: &Task, input: Approve) -> Result<Step> {
    let Some(woken) = task.woken()? else {
        let question = Question::new(format!("Is this good? {}", input.text)).choice("yes").choice("no");
        return Ok(Pause::answer(question).or_after_ms(DAY_MS).into());
    };
    if woken.wake == "after" {
        log::warn("the question timed out");
    }
    Step::value(json!({ "approved": woken.value["content"] == "yes" }))
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "acme.greet" => greet,
    "acme.approve" => approve,
}
