//! Keys that other programs for this dialect know and Flowcell does not.

use crate::yaml::Entry;

/// The keys, and what to write in their place.
const UNSUPPORTED: [(&str, &str); 15] = [
    (
        "interactive",
        "remove it: a step asks no person; write a flow of the graph dialect with `control.gate`, or let the \
      step end with a question and a rule with `postpone: true`",
    ),
    ("interaction", "remove it: a step asks no person; write a flow of the graph dialect with `control.gate`"),
    (
        "resume_after",
        "remove it: the next run with the same session prefix resumes the step; start it by a cron job of \
      `flowcell -F FLOW -s PREFIX`",
    ),
    ("resume_on_failure", "write `session: { resume_on_failure: true }` in `flow`; it applies to the whole flow"),
    (
        "on_turns_exhausted",
        "remove it: a step that has used up `maxTurns` succeeds with its last answer; let `output.schema` \
      require a member such as `done`, and test it in a rule",
    ),
    ("prefix", "write `session: { prefix: … }` in `flow`; all steps have the same prefix"),
    ("extends", "copy the keys of the template into the step: a flow is one file"),
    ("include", "copy the templates into the steps: a flow is one file"),
    ("compact", "remove it: the messages of a session are kept as they are"),
    ("context", "remove it: name the files in the prompt, and let the agent read them with a tool"),
    ("langfusePromptPath", "write the prompt in `prompt`"),
    ("langfusePromptLabel", "remove it, and write the prompt in `prompt`"),
    ("maxModelCalls", "write `maxTurns`, which limits the calls of the model in this step"),
    ("loops", "write `maxIterations: …` in the step to which a rule leads back"),
    ("maxFallbackEntries", "write `maxIterations: …` in the step to which a `fallback` leads back"),
];
/// Says what to write in place of a key that only other programs for this dialect know.
pub(super) fn unsupported(entry: &Entry) -> Option<String> {
    let (_, help) = UNSUPPORTED.iter().find(|(key, _)| *key == &*entry.key)?;
    Some((*help).to_owned())
}
