//! The node `control.gate`: asks a person and waits for the answer.

use flowcell_sdk::prelude::*;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    prompt: String,
    #[serde(default)]
    choices: Vec<String>,
    allow_text: Option<bool>,
    timeout_ms: Option<u64>,
}

/// Asks a person and waits for the answer.
pub(crate) fn run(task: &Task, input: Input) -> Result<Step> {
    match task.woken_by()?.map(|woken| woken.wake).as_deref() {
        None => ask(input),
        Some("after") => {
            let ms = input.timeout_ms.unwrap_or_default();
            Err(Failure::new("gate_timeout", format!("the gate was not answered within {ms} ms")))
        }
        Some(_) => Ok(Output::object().with("response", Source::woken("/value")).into()),
    }
}

fn ask(input: Input) -> Result<Step> {
    if input.choices.is_empty() && input.allow_text == Some(false) {
        return Err(Failure::invalid_input("with `allowText: false`, a gate needs `choices`"));
    }
    let question = input.choices.into_iter().fold(Question::new(input.prompt), Question::choice);
    let question = match input.allow_text {
        Some(allow_text) => question.allow_text(allow_text),
        None => question,
    };
    let pause = Pause::answer(question);
    Ok(match input.timeout_ms {
        Some(ms) => pause.or_after_ms(ms).into(),
        None => pause.into(),
    })
}
