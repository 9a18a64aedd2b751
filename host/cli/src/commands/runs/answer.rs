//! `flowcell answer`: answers an open question, or shows the question in full.

use clap::Args;
use flowcell::{QuestionRef, RunCommand, RunId, waiting};

use super::record;
use crate::{
    arguments::{run_id, shell_word},
    cli_error::{CliError, Exit},
    options::{PackArgs, TenantArgs},
    output::put_json,
    session::answers,
    terminal::Terminal,
};

/// Arguments of `flowcell answer`.
#[derive(Args)]
pub(crate) struct AnswerArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// The address of the gate: `approve`, `process[3].approve`, or `review/approve` in a flow that the node `review`
    /// called
    gate: String,
    /// The answer
    #[arg(required_unless_present = "show")]
    value: Option<String>,
    /// Answer only if the node is at this attempt, as named in the question
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Answer only if the open question has this digest, as named in the question
    #[arg(long)]
    digest: Option<String>,
    /// Print the question as JSON, with the complete arguments of a call, without answering it
    #[arg(long, conflicts_with_all = ["value", "attempt", "digest"])]
    show: bool,
    #[command(flatten)]
    of: TenantArgs,
}

/// Answers a question. Without a value, prints the question as JSON.
pub(in crate::commands) fn answer(args: &AnswerArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let (run, gate) = (args.run.clone(), args.gate.clone());
    let Some(value) = &args.value else { return show_question(&args.of, &run, &gate) };
    let question = QuestionRef { attempt: args.attempt, digest: args.digest.as_deref().map(Into::into) };
    let reply = RunCommand::reply(gate, answers::answer(value), question);
    record(&args.of, run, reply, terminal).map_err(|problem| match args.of.reading_host(&PackArgs::default()) {
        Ok(host) => answers::with_open_questions(problem, &host, &args.run, &args.gate),
        Err(_) => problem,
    })
}

/// Prints an open question with all its details.
fn show_question(of: &TenantArgs, run: &RunId, gate: &str) -> Result<Exit, CliError> {
    let host = of.reading_host(&PackArgs::default())?;
    let question = waiting::question(&host, run, gate)?;
    let question = question.ok_or_else(|| {
        let problem = CliError::wrong(format!("no question is open at `{gate}` in the run `{run}`")).hint(format!(
            "`flowcell runs show {}{}` shows the open questions",
            shell_word(run.as_str()),
            of.selection()
        ));
        answers::with_open_questions(problem, &host, run, gate)
    })?;
    put_json(&question)?;
    Ok(Exit::Good)
}
