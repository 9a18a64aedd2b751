//! Prints the result of a run, and chooses the exit code.

use flowcell::{
    BlockReason, Host, RunId, RunResult, RunStatus, Waiting,
    graph::Graph,
    sessions::Sessions,
    shape::{self, time},
    waiting,
};
use serde_json::{Value, json};

use super::{Plan, answers, interrupt::Interruption, lines::shown_choices, summary};
use crate::{
    arguments::{quote, shell_word},
    cli_error::{CliError, Exit},
    duration,
    output::put_json,
    terminal::{Terminal, guarded, inert},
};

/// A function that prints a result, read from the sessions in the store, after the run has ended.
pub(crate) type Prints = Box<dyn Fn(&dyn Sessions) -> Result<(), CliError>>;

/// Prints the outputs of a successful run, or with `--json` an object for any run, to standard output. Prints an
/// explanation to standard error. Returns the exit code.
pub(crate) fn print(
    plan: &Plan,
    graph: &Graph,
    result: &RunResult,
    interrupted: Interruption,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    let exit = exit(result.status, interrupted);
    if plan.json {
        put_json(&object(plan, graph, result))?;
    } else if exit == Exit::Good && !plan.events_to_stdout() {
        put_outputs(graph, result, terminal)?;
    }
    Ok(explain(plan, result, interrupted, terminal))
}

/// Prints the outputs. If the flow declares no `outputs`, and standard output is a terminal, large results of nodes
/// are shortened.
fn put_outputs(graph: &Graph, result: &RunResult, terminal: Terminal) -> Result<(), CliError> {
    let shortened = (graph.outputs.is_none() && terminal.shows_output()).then(|| summary::shortened(&result.outputs));
    let Some(shortened) = shortened.flatten() else { return put_json(&result.outputs) };
    put_json(&shortened)?;
    terminal.say(&terminal.paint().faint(
        "large results are shortened; redirect standard output to a file for complete ones, or declare `outputs` in \
         the flow",
    ));
    Ok(())
}

/// Prints the result like [`print()`], but calls `prints` for standard output if it is set. Returns the exit code.
pub(crate) fn print_as(
    plan: &Plan,
    graph: &Graph,
    result: &RunResult,
    interrupted: Interruption,
    prints: Option<(&Prints, &dyn Sessions)>,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    let Some((prints, of)) = prints else { return print(plan, graph, result, interrupted, terminal) };
    if !plan.events_to_stdout() {
        prints(of)?;
    }
    Ok(explain(plan, result, interrupted, terminal))
}

/// Writes to standard error how the run has ended and what the person can do next. Returns the exit code.
pub(crate) fn explain(plan: &Plan, result: &RunResult, interrupted: Interruption, terminal: Terminal) -> Exit {
    match explanation(plan, result, interrupted) {
        Some(problem) => problem.print(terminal),
        None if plan.quiet => {}
        None => terminal.say(&terminal.paint().faint(&format!("succeeded in {}", duration::show(result.duration)))),
    }
    exit(result.status, interrupted)
}

fn exit(status: RunStatus, interrupted: Interruption) -> Exit {
    match status {
        RunStatus::Succeeded => Exit::Good,
        RunStatus::Cancelled if interrupted != Interruption::None => Exit::Interrupted,
        RunStatus::Parked if interrupted == Interruption::Stopped => Exit::Stopped,
        RunStatus::Parked | RunStatus::NeedsAttention => Exit::Parked,
        RunStatus::Failed | RunStatus::Cancelled => Exit::Failed,
        // The run was lost to another process, or in an outage of the shared store.
        RunStatus::Running => Exit::Unreadable,
    }
}

/// Returns the JSON object that `--json` prints.
fn object(plan: &Plan, graph: &Graph, result: &RunResult) -> Value {
    let mut object = json!({ "runId": result.run_id, "flow": result.flow, "status": result.status });
    for (key, value) in shape::results(graph, &result.outputs) {
        object[key] = json!(value);
    }
    object["durationMs"] = json!(result.duration.as_millis() as u64);
    if let Some(error) = error(plan, result) {
        object["error"] = error;
    }
    object
}

fn error(plan: &Plan, result: &RunResult) -> Option<Value> {
    match (&result.error, result.status) {
        (_, RunStatus::Succeeded) => None,
        (Some(error), _) => Some(shape::run_error(error)),
        (None, RunStatus::Parked | RunStatus::NeedsAttention) => {
            let code = if result.status == RunStatus::Parked { "parked" } else { "needs_attention" };
            let waiting: Vec<_> = result.waiting.iter().map(shape::waiting).collect();
            let mut message = headline(result);
            message.extend(hints(plan, result).into_iter().map(|hint| format!("; {hint}")));
            let details = json!({ "waiting": waiting });
            Some(json!({ "code": code, "message": message, "retryable": false, "details": details }))
        }
        (None, status) => Some(json!({ "code": status, "message": headline(result), "retryable": false })),
    }
}

/// Returns the error for a run that did not succeed, with its causes and hints. Returns `None` on success.
fn explanation(plan: &Plan, result: &RunResult, interrupted: Interruption) -> Option<CliError> {
    let exit = match exit(result.status, interrupted) {
        Exit::Good => return None,
        Exit::Stopped => return Some(stopped_error(plan, result)),
        exit => exit,
    };
    let mut problem = CliError::ending(exit, headline(result));
    if let Some(error) = &result.error {
        problem = problem.cause(&error.failure.to_string());
        if let Some(details) = &error.failure.details {
            problem = problem.note(format!("details: {details}"));
        }
    }
    for waiting in &result.waiting {
        problem = problem.note(match waiting {
            Waiting::Answer { address, question, .. } => format!("`{address}` asks: {}", question.prompt),
            Waiting::Decision { address, reason } => format!("`{address}` is blocked: {reason}"),
            Waiting::Message { address, agent_run } => format!("`{address}` waits for messages to `{agent_run}`"),
            Waiting::Event { address, name } => format!("`{address}` waits for the event `{name}`"),
        });
    }
    Some(hints(plan, result).into_iter().fold(problem, CliError::hint))
}

fn stopped_error(plan: &Plan, result: &RunResult) -> CliError {
    let problem = CliError::ending(Exit::Stopped, format!("the flow `{}` has not ended", result.flow));
    let run = shell_word(result.run_id.as_str());
    let options = store_arguments(plan).unwrap_or_default() + &reach(plan);
    let drive = match plan.tenant {
        None => format!("`flowcell drive{options}`"),
        Some(_) => "`flowcell serve`".to_owned(),
    };
    problem.hint(format!("continue it with `flowcell runs resume {run}{options}` or {drive}"))
}

fn headline(result: &RunResult) -> String {
    let flow = &result.flow;
    let task = result.error.as_ref().and_then(|error| error.task.as_deref());
    if let (RunStatus::Parked, Some(hold)) = (result.status, &result.quota) {
        let (quota, until) = (&hold.quota, time(hold.until));
        return format!("the quota `{quota}` is used up; the flow `{flow}` goes on by itself at {until}");
    }
    match (result.status, task) {
        (RunStatus::Parked, _) => format!("the flow `{flow}` waits for input"),
        (RunStatus::Cancelled, _) => format!("the flow `{flow}` was cancelled"),
        (RunStatus::NeedsAttention, _) => format!("the flow `{flow}` needs a decision"),
        (RunStatus::Running, _) => format!(
            "the flow `{flow}` has not ended, but this command no longer drives it: the database server was away, or \
             this process stood still, for too long"
        ),
        (_, Some(task)) => format!("the flow `{flow}` failed at `{task}`"),
        (_, None) => format!("the flow `{flow}` failed"),
    }
}

/// Returns the commands with which a person can continue a parked run: answers, messages, events and decisions.
fn hints(plan: &Plan, result: &RunResult) -> Vec<String> {
    let options: Vec<_> = result
        .waiting
        .iter()
        .filter_map(|waiting| match waiting {
            Waiting::Answer { address, question, asked } => {
                let address = match store_arguments(plan) {
                    Some(_) => answers::address_with_digest(address, asked),
                    // A run in memory cannot be resumed. The answer is for a new run, whose questions have other
                    // digests.
                    None => address.clone(),
                };
                Some(format!("--answer {}", quote(&format!("{address}=<{}>", shown_choices(question)))))
            }
            Waiting::Event { .. } | Waiting::Message { .. } | Waiting::Decision { .. } => None,
        })
        .collect();
    let run = shell_word(result.run_id.as_str());
    let state = store_arguments(plan);
    let again = state.as_ref().map(|state| format!("runs resume {run}{state}{}", reach(plan)));
    let mut hints = Vec::new();
    if let (RunStatus::Running, Some(again)) = (result.status, &again) {
        hints.push(format!("the run goes on in a process that drives runs, or with `flowcell {again}`"));
    }
    if !options.is_empty() {
        let anew = || format!("run {}{}", shell_word(&plan.flow.display().to_string()), reach(plan));
        let command = again.clone().unwrap_or_else(anew);
        hints.push(format!("answer on a terminal, or with `flowcell {command} {}`", options.join(" ")));
    }
    let event = result.waiting.iter().find_map(|waiting| match waiting {
        Waiting::Event { name, .. } => Some(name),
        _ => None,
    });
    let message = result.waiting.iter().find_map(|waiting| match waiting {
        Waiting::Message { address, .. } => Some(address),
        _ => None,
    });
    if let (Some(address), Some(again), Some(state)) = (message, &again, &state) {
        let address = shell_word(address);
        hints.push(format!(
            "send a message with `flowcell send {run} --to {address} TEXT{state}`, or end the agent run with \
             `flowcell send {run} --to {address} --close{state}`; then run `flowcell {again}`"
        ));
    }
    let blocked = result.waiting.iter().find_map(|waiting| match waiting {
        Waiting::Decision { address, reason } => Some((address, reason)),
        _ => None,
    });
    if let (Some((address, reason)), Some(state)) = (blocked, &state) {
        let choices = match **reason {
            BlockReason::Ambiguous { .. } => {
                "--repeat (it did not happen), --reply JSON (it did), --output JSON or --fail WHY"
            }
            BlockReason::Nondeterministic { .. } => "--repeat (a new attempt), --output JSON or --fail WHY",
            BlockReason::UndoFailed { .. } => {
                "--repeat (it tries again), --output JSON (it is undone) or --fail WHY (it stays as it is)"
            }
        };
        let address = shell_word(address);
        hints.push(format!("decide with `flowcell runs resolve {run} {address}{state}` and one of {choices}"));
    }
    match (event, again, state) {
        (Some(name), Some(again), Some(state)) => {
            let name = shell_word(name);
            hints.push(format!("send the event with `flowcell emit {run} {name}{state}`, then run `flowcell {again}`"));
        }
        (Some(_), ..) => {
            hints.push("send the event from the program that embeds the run: `hub.emit(name, payload)`".into());
        }
        (None, ..) => {}
    }
    hints
}

/// Prints the open questions of a resumed run if no person can be asked at the terminal. No event repeats these
/// questions.
pub(crate) fn print_open_questions(plan: &Plan, host: &Host, run: &RunId, terminal: Terminal) -> Result<(), CliError> {
    if plan.quiet || terminal.interactive {
        return Ok(());
    }
    for open in waiting::list(host, run)?.iter().filter(|open| open["kind"] == "gate") {
        let text = |name: &str| open[name].as_str().unwrap_or_default().to_owned();
        let (address, state) = (text("address"), store_arguments(plan).unwrap_or_default());
        terminal.say(&format!("  {} asks: {}", inert(&address), guarded(&text("prompt"))));
        let digest = match open["digest"].as_str() {
            Some(digest) if address.contains('#') => format!(" --digest {}", shell_word(digest)),
            _ => String::new(),
        };
        let answer =
            format!("flowcell answer {} {} VALUE{digest}{state}", shell_word(run.as_str()), shell_word(&address));
        terminal.say(&terminal.paint().faint(&format!("  answer with `{answer}`")));
    }
    Ok(())
}

/// Returns the arguments that select the same store in another command. Returns `None` for a store in memory.
fn store_arguments(plan: &Plan) -> Option<String> {
    plan.store.selection(plan.tenant.as_deref())
}

/// Returns the options of this command that a later command has to repeat to resume the run.
fn reach(plan: &Plan) -> String {
    plan.packs
        .given()
        .iter()
        .fold(String::new(), |text, (option, value)| format!("{text} {option} {}", shell_word(value)))
}
