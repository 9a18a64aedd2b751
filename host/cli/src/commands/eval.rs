//! `flowcell eval`: prints the value of an expression.

mod prompt;

use std::{
    fs,
    io::{self, BufRead, IsTerminal, Read},
    path::PathBuf,
};

use clap::{Args, ValueHint};
use flowcell::{EvalError, Evaluated, Host, Json, LoadedFlow, MAX_EXPRESSION_BYTES, RunId, Runs};

use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    options::{PackArgs, TenantArgs},
    output::put_json,
    owner::input_mismatch,
    terminal::{Terminal, finding},
};

/// Arguments of `flowcell eval`.
#[derive(Args)]
pub(crate) struct EvalArgs {
    /// A text with `{{ }}`, or an expression alone. Without it, standard input has an expression in each line
    expression: Option<String>,
    /// The input, as a JSON object or as `@FILE`; its members take precedence over the defaults of the flow
    #[arg(long, value_name = "JSON", conflicts_with = "run")]
    input: Option<String>,
    /// The file of a flow, whose defaults `flow.input` has
    #[arg(long, value_name = "FLOW", value_hint = ValueHint::FilePath, conflicts_with = "run")]
    flow: Option<PathBuf>,
    /// The run whose values the expression reads: those of the outputs at its end, or with `--task` those of a task
    #[arg(long, value_name = "RUN", value_parser = run_id)]
    run: Option<RunId>,
    /// The address of the task, such as `pay`, `process[3].pay`, or `review/pay` in a flow that `review` called
    #[arg(long, value_name = "TASK", requires = "run")]
    task: Option<String>,
    #[command(flatten)]
    of: TenantArgs,
    #[command(flatten)]
    packs: PackArgs,
}

pub(super) fn execute(args: &EvalArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let evaluator = Evaluator::new(args)?;
    match &args.expression {
        Some(expression) => evaluator.print(expression, terminal).map(|()| Exit::Good),
        None if io::stdin().is_terminal() && terminal.shows_output() => prompt::ask(&evaluator, terminal),
        None => each_line(&evaluator, terminal),
    }
}

/// What expressions read.
enum Evaluator<'a> {
    /// The values of a run.
    Run { host: Host, reader: Box<dyn Runs>, run: &'a RunId, task: Option<&'a str> },
    /// An input.
    Input { host: Host, flow: Option<LoadedFlow>, input: Json },
}

impl Evaluator<'_> {
    fn new(args: &EvalArgs) -> Result<Evaluator<'_>, CliError> {
        if let Some(run) = &args.run {
            let (host, reader) = (args.of.reading_host(&args.packs)?, args.of.store.reader()?);
            return Ok(Evaluator::Run { host, reader, run, task: args.task.as_deref() });
        }
        let input = args.input.as_deref().map(read_input).transpose()?.unwrap_or_default();
        let host = args.of.host(args.packs.dry_host(&args.of.store)?)?;
        let flow = args.flow.as_ref().map(|flow| host.load_flow(flow)).transpose()?;
        Ok(Evaluator::Input { host, flow, input })
    }

    fn eval(&self, expression: &str) -> Result<Evaluated, EvalError> {
        match self {
            Evaluator::Run { host, reader, run, task } => host.eval_in_run(Some(&**reader), run, *task, expression),
            Evaluator::Input { host, flow, input } => host.eval(flow.as_ref(), input.clone(), expression),
        }
    }

    fn print(&self, expression: &str, terminal: Terminal) -> Result<(), CliError> {
        let Evaluated { value, warnings, .. } = self.eval(expression)?;
        warnings.iter().for_each(|warning| terminal.say(&format!("{}\n", finding(warning, terminal.paint()))));
        put_json(&value)
    }
}

/// Evaluates each line of standard input.
fn each_line(evaluator: &Evaluator<'_>, terminal: Terminal) -> Result<Exit, CliError> {
    let mut input = io::stdin().lock();
    let mut exit = Exit::Good;
    loop {
        let mut line = String::new();
        // One byte more than an expression may have, so that a longer line is refused and not cut.
        let read = input.by_ref().take(MAX_EXPRESSION_BYTES as u64 + 2).read_line(&mut line);
        let read = read.map_err(|error| CliError::wrong("cannot read an expression").because(&error))?;
        if read == 0 {
            return Ok(exit);
        }
        let expression = line.trim_end_matches(['\n', '\r']);
        if expression.trim().is_empty() {
            continue;
        }
        match evaluator.print(expression, terminal) {
            // The rest of a line that is too long, and an unreadable store, give no values.
            Err(problem) if expression.len() > MAX_EXPRESSION_BYTES || problem.exit() != Exit::Wrong => {
                return Err(problem);
            }
            Err(problem) => {
                problem.print(terminal);
                exit = Exit::Wrong;
            }
            Ok(()) => {}
        }
    }
}

/// Reads `--input`: JSON, or a file after `@`.
fn read_input(given: &str) -> Result<Json, CliError> {
    let text = match given.strip_prefix('@') {
        Some(path) => fs::read_to_string(path)
            .map_err(|error| CliError::wrong(format!("cannot read the input from {path}")).because(&error))?,
        None => given.to_owned(),
    };
    let unreadable = |why: &dyn std::fmt::Display| {
        CliError::wrong("`--input` is not a JSON object")
            .cause(&why.to_string())
            .hint("write `--input '{\"amount\": 7}'`, or `--input @FILE`")
    };
    let input = Json::parse(&text).map_err(|error| unreadable(&error))?;
    match input.as_object() {
        Some(_) => Ok(input),
        None => Err(unreadable(&format!("it is {}", input.type_name()))),
    }
}

impl From<EvalError> for CliError {
    fn from(error: EvalError) -> CliError {
        match error {
            EvalError::Flow(findings) => CliError::found(findings),
            EvalError::Expression(findings) => {
                findings.into_iter().fold(CliError::wrong("the expression has no value"), CliError::finding)
            }
            EvalError::Input(error) => input_mismatch(&error),
            EvalError::Run(error) => error.into(),
            EvalError::NeedsRun(_) => CliError::wrong(error.to_string()).hint("add `--run RUN --task TASK`"),
            EvalError::NoTask(_) | EvalError::TooLong(_) | EvalError::Failed(_) => CliError::wrong(error.to_string()),
        }
    }
}
