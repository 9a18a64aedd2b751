//! Reads the agentic dialect from a YAML tree. Reports unknown keys and wrong types.

use crate::{
    agentic::{
        agent,
        flow_session::{FlowSession, read_flow_session},
        name::{is_kebab_case, kebab_case},
        predicate::Predicate,
        template::Template,
        unsupported::unsupported,
    },
    diagnostic::Diagnostics,
    duration::{self, DurationError},
    fields::{check_keys_or, entries, flag, for_message, list, map, required, required_or_empty, text, whole_number},
    key_hints,
    limits::{MAX_ATTEMPTS, MAX_PASSES, MAX_TIMEOUT_MS, STEP_TIMEOUT_MS},
    yaml::{Entry, Kind, Span, Tree},
};

/// A flow as its file defines it.
pub(crate) struct RawSteps<'t> {
    /// Display title. The flow's name comes from its file.
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) disabled: bool,
    /// JSON Schema of the arguments.
    pub(crate) args: Option<&'t Tree>,
    pub(crate) session: FlowSession,
    /// The steps in the order of the file. A run starts with the first step.
    pub(crate) steps: Vec<RawStep<'t>>,
    pub(crate) head: Span,
}

/// A step as its file defines it.
pub(crate) struct RawStep<'t> {
    pub(crate) id: String,
    pub(crate) id_span: Span,
    pub(crate) agent: Option<(String, Span)>,
    pub(crate) fork: bool,
    pub(crate) prompt: Template,
    pub(crate) prompt_span: Span,
    /// JSON Schema of the structured output.
    pub(crate) output: Option<&'t Tree>,
    /// Maximum number of calls of the model in one run of the step. With `None` the agent's own limit applies.
    pub(crate) max_turns: Option<u64>,
    /// Maximum number of iterations of the loop around the step, and the place of this number.
    pub(crate) max_iterations: Option<(u32, Span)>,
    /// Timeout of one attempt in milliseconds.
    pub(crate) timeout_ms: u64,
    pub(crate) rules: Vec<RawRule>,
    pub(crate) fallback: Fallback,
}

/// A rule as its file defines it.
pub(crate) struct RawRule {
    pub(crate) when: Option<Predicate>,
    /// The text and the position of `if`.
    pub(crate) written: Option<(String, Span)>,
    pub(crate) then: (String, Span),
    pub(crate) postpone: bool,
    /// The place of `cycle: true`: the rule may lead back to a step that has run.
    pub(crate) cycle: Option<Span>,
    pub(crate) span: Span,
}

/// The settings for the case that a step fails.
#[derive(Default)]
pub(crate) struct Fallback {
    /// Number of attempts after the first one.
    pub(crate) retry: u32,
    pub(crate) delay_ms: u64,
    pub(crate) to: Option<(String, Span)>,
}

const TOP_LEVEL_KEYS: [&str; 4] = ["name", "disabled", "description", "flow"];
const FLOW_KEYS: [&str; 3] = ["args", "session", "steps"];
const STEP_KEYS: [&str; 10] =
    ["id", "agent", "session", "prompt", "output", "maxTurns", "maxIterations", "timeout", "rules", "fallback"];
const RULE_KEYS: [&str; 4] = ["if", "then", "postpone", "cycle"];
const FALLBACK_KEYS: [&str; 3] = ["retry", "delay", "to"];
/// The largest `maxTurns` of a step.
const MAX_TURNS: u64 = 10_000;
/// Keys of other workflow formats, and the Flowcell keys that replace them.
const RENAMED: [(&str, &str); 8] = [
    ("type", "agent"),
    ("input", "prompt"),
    ("schema", "output: { schema: … }"),
    ("fork", "session: { fork: … }"),
    ("next", "rules: [{ then: … }]"),
    ("then", "rules: [{ then: … }]"),
    ("edges", "rules: [{ if: …, then: … }]"),
    ("retry", "fallback: { retry: … }"),
];

/// Returns true if the text is an agentic flow: `flow` contains `steps`, and the text has no `nodes`. If no step
/// has a prompt but some have a `type`, they are nodes in the wrong place, so the text is no agentic flow.
pub(crate) fn is_agentic(tree: &Tree) -> bool {
    let Some(steps) = tree.member("flow").and_then(|flow| flow.member("steps")) else { return false };
    let any = |key| steps.items().iter().any(|step| step.member(key).is_some());
    tree.member("nodes").is_none() && (any("prompt") || !any("type"))
}

/// Reads a flow.
pub(crate) fn read<'t>(tree: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> RawSteps<'t> {
    check_keys_or(entries(tree, "a flow", diagnostics), &TOP_LEVEL_KEYS, unsupported, diagnostics);
    let mut member = |key| text(tree, key, diagnostics).map(|(text, _)| text);
    let (title, description) = (member("name"), member("description"));
    let disabled = flag(tree, "disabled", diagnostics).unwrap_or_default();
    let head = tree.member("flow").unwrap_or(tree);
    check_keys_or(entries(head, "`flow`", diagnostics), &FLOW_KEYS, suggest_top_level, diagnostics);
    let args = map(head, "args", diagnostics);
    if let Some(args) = args {
        agent::check_object(args, "`args`", diagnostics);
    }
    let written = list(head, "steps", diagnostics);
    if let (Some(steps), true) = (head.member("steps"), written.is_empty()) {
        let help = "write `steps:` and a list of `{ id, prompt }`";
        diagnostics.error("no_steps", steps.span, "the flow has no steps", Some(help.into()));
    }
    let steps = written.iter().filter_map(|step| read_step(step, diagnostics)).collect();
    let session = read_flow_session(head, diagnostics);
    RawSteps { title, description, disabled, args, session, steps, head: head.span }
}

/// Says what to write for a key in `flow` that belongs beside it, into a step, or nowhere.
fn suggest_top_level(entry: &Entry) -> Option<String> {
    match &*entry.key {
        key if TOP_LEVEL_KEYS.contains(&key) => Some(format!("write `{key}` beside `flow`, not in it")),
        "timeout" => Some("write `timeout` in a step; `--total-timeout` limits a whole run".into()),
        key if STEP_KEYS.contains(&key) => Some(format!("write `{key}` in a step")),
        _ => unsupported(entry),
    }
}

fn read_step<'t>(tree: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> Option<RawStep<'t>> {
    if !matches!(tree.kind, Kind::Map(_)) {
        let message = format!("a step must be a map, not {}", tree.type_name());
        diagnostics.error("wrong_type", tree.span, message, Some("write `{ id: …, prompt: … }`".into()));
        return None;
    }
    check_keys_or(
        entries(tree, "a step", diagnostics),
        &STEP_KEYS,
        |entry| unsupported(entry).or_else(|| key_hints::renamed(entry, &RENAMED)),
        diagnostics,
    );
    let (id, id_span) = required(tree, "id", "step", diagnostics);
    if !id.is_empty() {
        check_id(&id, id_span, diagnostics);
    }
    let (_, prompt_span) = required_or_empty(tree, "prompt", "step", diagnostics);
    let prompt = tree.member("prompt").filter(|prompt| prompt.text().is_some());
    let prompt = prompt.map(|prompt| Template::read(prompt, diagnostics));
    if prompt.as_ref().is_some_and(Template::is_blank) {
        let help = "describe the agent's task, for example `prompt: ${args.prompt}`";
        diagnostics.error("empty_prompt", prompt_span, "the prompt is empty", Some(help.into()));
    }
    let session = map(tree, "session", diagnostics);
    if let Some(session) = session {
        check_keys_or(entries(session, "`session`", diagnostics), &["fork"], unsupported, diagnostics);
    }
    Some(RawStep {
        id,
        id_span,
        agent: text(tree, "agent", diagnostics),
        fork: session.and_then(|session| flag(session, "fork", diagnostics)).unwrap_or_default(),
        prompt: prompt.unwrap_or_default(),
        prompt_span,
        output: agent::read_output(tree, diagnostics),
        // Zero is written for no limit of its own.
        max_turns: whole_number(tree, "maxTurns", (0, MAX_TURNS), diagnostics).filter(|turns| *turns > 0),
        max_iterations: read_max_iterations(tree, diagnostics),
        timeout_ms: read_timeout(tree, diagnostics).unwrap_or(STEP_TIMEOUT_MS),
        rules: list(tree, "rules", diagnostics).iter().filter_map(|rule| read_rule(rule, diagnostics)).collect(),
        fallback: map(tree, "fallback", diagnostics).map(|tree| read_fallback(tree, diagnostics)).unwrap_or_default(),
    })
}

/// Reads `maxIterations`. Zero is written for no limit of its own.
fn read_max_iterations(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<(u32, Span)> {
    let number = whole_number(tree, "maxIterations", (0, MAX_PASSES), diagnostics).filter(|number| *number > 0)?;
    Some((number as u32, tree.member("maxIterations")?.span))
}

/// Reads `timeout`: whole seconds as a number, or a duration as a text. Returns milliseconds.
fn read_timeout(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<u64> {
    let value = tree.member("timeout")?;
    let problem = match value.text() {
        Some(text) => match duration::read(text) {
            Ok(timeout) => return Some(timeout.as_millis().max(1) as u64),
            Err(DurationError::Form) => format!("`timeout` must be a duration, not `{}`", for_message(text)),
            Err(DurationError::Range(why)) => format!("`timeout`: {why}"),
        },
        None => match value.json().as_u64() {
            Some(seconds) if (1..=MAX_TIMEOUT_MS / 1_000).contains(&seconds) => return Some(seconds * 1_000),
            Some(0) => "`timeout` must be at least 1 second".to_owned(),
            Some(seconds) => format!("`timeout`: {seconds} seconds are too long"),
            None => format!("`timeout` must be a duration, or a whole number of seconds, not {}", value.type_name()),
        },
    };
    let help = "write `timeout: 30m`, or `timeout: 1800` in seconds; at most 365 days";
    diagnostics.error("bad_policy", value.span, problem, Some(help.into()));
    None
}

fn check_id(id: &str, span: Span, diagnostics: &mut Diagnostics<'_>) {
    if is_kebab_case(id) {
        return;
    }
    let help = match kebab_case(id) {
        Some(meant) => format!("write `{meant}`"),
        None => {
            "use lowercase letters, digits and single dashes, at most 64 characters, such as `pick-workflow`".into()
        }
    };
    diagnostics.error("bad_id", span, format!("`{}` is not a valid step id", for_message(id)), Some(help));
}

fn read_rule(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<RawRule> {
    if !matches!(tree.kind, Kind::Map(_)) {
        let message = format!("a rule must be a map, not {}", tree.type_name());
        diagnostics.error("wrong_type", tree.span, message, Some("write `{ if: …, then: … }`".into()));
        return None;
    }
    check_keys_or(entries(tree, "a rule", diagnostics), &RULE_KEYS, unsupported, diagnostics);
    let condition = tree.member("if");
    Some(RawRule {
        when: condition.and_then(|tree| Predicate::read(tree, diagnostics)),
        written: condition.and_then(|tree| Some((tree.text()?.to_owned(), tree.span))),
        then: required(tree, "then", "rule", diagnostics),
        postpone: flag(tree, "postpone", diagnostics).unwrap_or_default(),
        cycle: flag(tree, "cycle", diagnostics).filter(|cycle| *cycle).and_then(|_| Some(tree.member("cycle")?.span)),
        span: tree.span,
    })
}

fn read_fallback(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Fallback {
    check_keys_or(entries(tree, "`fallback`", diagnostics), &FALLBACK_KEYS, unsupported, diagnostics);
    let retry = whole_number(tree, "retry", (0, MAX_ATTEMPTS - 1), diagnostics).unwrap_or_default();
    let delay = whole_number(tree, "delay", (0, MAX_TIMEOUT_MS / 1_000), diagnostics).unwrap_or_default();
    if retry > 10 && delay == 0 {
        let message = format!("{retry} retries without a delay between them");
        diagnostics.error("bad_policy", tree.span, message, Some("add `delay: 10`, in seconds".into()));
    }
    Fallback { retry: retry as u32, delay_ms: delay * 1_000, to: text(tree, "to", diagnostics) }
}
