//! `flowcell runs show RUN NODE`: prints the inputs, calls and outputs of a task for people.

use std::fmt::Write;

use flowcell::{
    Host, Json, RunId, Runs,
    inputs::{AttemptInput, Input, InputDigest, MadeCall, PAGE_BYTES, Reply, TaskInputs, Window},
};

use crate::{
    arguments::{quote, shell_word},
    cli_error::CliError,
    terminal::{Paint, counted, inert},
};

/// Maximum number of attempts on one page.
const ATTEMPTS_PER_PAGE: usize = 200;
/// Maximum number of characters shown of a text.
const MAX_TEXT_CHARS: usize = 400;
/// Maximum number of items shown of a list, and of members shown of an object.
const MAX_PARTS: usize = 30;
/// Maximum number of values shown of an input, with nested ones.
const MAX_VALUES: usize = 600;

/// Reads a page of the inputs of a task, beginning with the attempt number `from`. The call `whole_call` has its whole reply.
/// If the task has no attempts, the error gives the reason.
pub(super) fn read(
    host: &Host,
    reader: &dyn Runs,
    at: (&RunId, &str),
    (from, whole_call): (u64, Option<u32>),
) -> Result<TaskInputs, CliError> {
    let (run, task) = at;
    let window = Window { from, limit: ATTEMPTS_PER_PAGE, end: u64::MAX, whole_call, bytes: PAGE_BYTES };
    let inputs = host.task_inputs(Some(reader), run, task, window)?;
    let Some(why) = inputs.missing() else { return Ok(inputs) };
    let problem = CliError::wrong(why);
    Err(match inputs.elsewhere.as_slice() {
        [] => problem.hint(format!("`flowcell runs show {}` shows the tasks of the run", shell_word(run.as_str()))),
        elsewhere => problem.hint(format!("the addresses of the node include {}", elsewhere.join(", "))),
    })
}

/// Fails if the page `inputs` is empty because its first attempt, `from`, is beyond the last attempt.
pub(super) fn require_attempt(
    host: &Host,
    reader: &dyn Runs,
    at: (&RunId, &str),
    from: u64,
    inputs: &TaskInputs,
) -> Result<(), CliError> {
    if from == 0 || !inputs.attempts.is_empty() {
        return Ok(());
    }
    let (mut there, mut next) = (0, Some(0));
    while let Some(from) = next {
        let page = read(host, reader, at, (from, None))?;
        there = from + page.attempts.len() as u64;
        next = page.next.filter(|next| *next > from);
    }
    let (run, task) = at;
    let attempts = counted(usize::try_from(there).unwrap_or(usize::MAX), "attempt");
    let problem = CliError::wrong(format!("the run `{run}` has {attempts} at `{task}`; attempt {from} does not exist"));
    Err(problem.hint(format!("attempts count from 0; the last one is `--from {}`", there.saturating_sub(1))))
}

/// Returns the inputs of a task as text for people. Long values are cut, and the text then names the command that
/// prints them completely. `selection`: the options of this command that select the tenant and the store.
pub(super) fn render(inputs: &TaskInputs, at: (&RunId, &str), selection: &str, paint: Paint) -> String {
    let node_type = inputs.node_type.as_deref().unwrap_or_default();
    let mut text = format!("{}  {}\n", paint.name(&inert(&inputs.task)), inert(node_type));
    let mut cuts = 0;
    for attempt in &inputs.attempts {
        text.push_str(&head(attempt, paint));
        match &attempt.input {
            Input::Whole { input, config } => {
                put(&mut text, "input", input.json(), &mut cuts);
                if let Some(config) = config.as_ref().filter(|config| config.text() != "{}") {
                    put(&mut text, "config", config.json(), &mut cuts);
                }
            }
            Input::Same { .. } => text.push_str("    input: same as before\n"),
            Input::Failed { input_error, input } => {
                put(&mut text, "no input", input_error, &mut cuts);
                put(&mut text, "its renderable members", input.json(), &mut cuts);
            }
            Input::TooLarge { input_error } => put(&mut text, "no input", input_error, &mut cuts),
        }
        for call in &attempt.calls {
            put_call(&mut text, call, &mut cuts);
        }
        if let Some(output) = &attempt.output {
            put(&mut text, "output", output.json(), &mut cuts);
        }
        if let Some(error) = &attempt.error {
            put(&mut text, "error", error, &mut cuts);
        }
    }
    let (run, task) = at;
    let command =
        format!("flowcell runs show {} {}{}", shell_word(run.as_str()), inert(&quote(task)), inert(selection));
    if cuts > 0 {
        text.push_str(
            &paint.faint(&format!("values with ⟨cut⟩ are shortened; `{command} --json` prints them completely\n")),
        );
    }
    let mut calls = inputs.attempts.iter().flat_map(|attempt| &attempt.calls);
    if calls.any(|call| matches!(call.reply, Some(Reply::Cut { .. }))) {
        text.push_str(&paint.faint(&format!("`{command} --json --call N` prints the whole reply of call N\n")));
    }
    if let Some(next) = inputs.next {
        text.push_str(&paint.faint(&format!("`{command} --from {next}` shows the next attempts\n")));
    }
    text
}

fn head(attempt: &AttemptInput, paint: Paint) -> String {
    let mut head = format!("  attempt {}", attempt.attempt);
    if attempt.resumes > 0 {
        let _ = write!(
            head,
            ", resumed {}",
            if attempt.resumes == 1 { "once".into() } else { format!("{} times", attempt.resumes) }
        );
    }
    let digest = match attempt.input_digest {
        InputDigest::Matches => paint.success("input matches its digest"),
        InputDigest::Differs => paint.error("input differs from its digest: the attempt had another input"),
        InputDigest::NotRecorded => paint.warning("the journal has no digest of the input"),
        InputDigest::NotEnded => paint.warning("has not ended, so the journal has no digest yet"),
        InputDigest::NotRun => paint.warning("did not run: it has the output of the repeated run"),
    };
    format!("{head}  {}  {digest}\n", attempt.status)
}

fn put_call(text: &mut String, call: &MadeCall, cuts: &mut usize) {
    let name = format!("call {}: {}.{}", call.call, call.interface, call.function);
    put(text, &inert(&name), &call.about, cuts);
    if !call.preview.is_null() {
        put(text, "it sent", &call.preview, cuts);
    }
    if let Some(error) = &call.error {
        put(text, "its failure", error, cuts);
    }
    match &call.reply {
        Some(Reply::Whole { reply }) => put(text, "its reply", reply, cuts),
        Some(Reply::Cut { reply_cut }) => {
            let name = format!("its reply, {} bytes, begins with", reply_cut.bytes);
            put(text, &name, &Json::from(reply_cut.start.as_str()), cuts);
        }
        None => {}
    }
}

/// Appends a name and its shortened value to the text.
fn put(text: &mut String, name: &str, json: &Json, cuts: &mut usize) {
    let shown = Shortened { left: MAX_VALUES, cuts }.shorten(json);
    let pretty = serde_json::to_string_pretty(&shown).unwrap_or_default();
    let _ = write!(text, "    {name}: ");
    for (index, line) in pretty.lines().enumerate() {
        let indent = if index == 0 { "" } else { "    " };
        let _ = writeln!(text, "{indent}{}", inert(line));
    }
}

/// Shortens one value. `left` is the number of nested values that may still be shown. `cuts` counts the cut places of
/// all values.
struct Shortened<'a> {
    left: usize,
    cuts: &'a mut usize,
}

impl Shortened<'_> {
    fn shorten(&mut self, json: &Json) -> Json {
        self.left = self.left.saturating_sub(1);
        match json {
            Json::String(text) if text.chars().nth(MAX_TEXT_CHARS).is_some() => {
                *self.cuts += 1;
                let shown: String = text.chars().take(MAX_TEXT_CHARS).collect();
                Json::from(format!("{shown}… ⟨cut: {} bytes⟩", text.len()))
            }
            Json::Array(items) => {
                let shown = items.len().min(self.remaining_parts());
                let mut list: Vec<_> = items[..shown].iter().map(|item| self.shorten(item)).collect();
                if shown < items.len() {
                    *self.cuts += 1;
                    list.push(Json::from(format!("⟨cut: shows {shown} of {} items⟩", items.len())));
                }
                Json::array(list)
            }
            Json::Object(members) => {
                let shown = members.len().min(self.remaining_parts());
                let mut list: Vec<_> =
                    members.iter().take(shown).map(|(name, value)| (name.clone(), self.shorten(value))).collect();
                if shown < members.len() {
                    *self.cuts += 1;
                    let cut = format!("shows {shown} of {} members", members.len());
                    list.push(("⟨cut⟩".into(), Json::from(cut)));
                }
                Json::object(list)
            }
            whole => whole.clone(),
        }
    }

    /// Returns the number of items or members that may still be shown.
    fn remaining_parts(&self) -> usize {
        self.left.min(MAX_PARTS)
    }
}
