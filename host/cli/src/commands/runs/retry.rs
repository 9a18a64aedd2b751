//! `flowcell runs retry`: repeats a run as a new run.

use clap::Args;
use flowcell::{Repeat, RunId, RunOptions, contract::NodeId, control::OwnerRequest};

use super::resume::{ResumeArgs, resume_here};
use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    owner::Owner,
    session::{
        answers,
        follow::{self, HandOver},
    },
    terminal::Terminal,
};

/// Arguments of `flowcell runs retry`.
#[derive(Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    resume: ResumeArgs,
    /// Run only this node of the flow and the nodes after it; other nodes keep their outputs; a gate or an agent that
    /// these nodes depend on asks again
    #[arg(long, value_name = "NODE")]
    from: Option<String>,
    /// Keep the answers of people instead of asking them again
    #[arg(long, requires = "from")]
    keep_answers: bool,
    /// The id of the new run
    #[arg(long, value_name = "ID", value_parser = run_id)]
    run_id: Option<RunId>,
}

pub(super) fn execute(args: RetryArgs, terminal: Terminal) -> Result<Exit, CliError> {
    if let Some(answer) = args.resume.answers.iter().find(|answer| answer.digest.is_some()) {
        let why = format!("the questions of the new run have other digests than the one for `{}`", answer.gate);
        return Err(CliError::wrong(why).hint(format!("write `--answer {}={}`", answer.gate, answer.value)));
    }
    let (run, run_id) = (args.resume.run.clone(), args.run_id);
    let repeat = Repeat { from: args.from.as_deref().map(NodeId::from), keep_answers: args.keep_answers };
    let host = match Owner::of(args.resume.store.place()?, &args.resume.packs)? {
        Owner::Here(host) => host,
        Owner::Other(folder) => {
            let folder = folder.to_owned();
            let answers = args.resume.answers.iter();
            let answers = answers.map(|given| (given.gate.clone(), answers::answer(&given.value)));
            let ask = OwnerRequest::Retry {
                run: run.clone(),
                from: args.from.clone(),
                keep_answers: args.keep_answers,
                new: run_id,
                answers: answers.collect(),
                reach: args.resume.packs.reach(),
            };
            let flow = args.resume.packs.reading_host(&args.resume.store)?.graph_of_run(&run)?.name.to_string();
            let handed = HandOver { before: Vec::new(), ask, flow, prints: None };
            return follow::hand_over(&folder, &args.resume.plan(), handed, terminal);
        }
    };
    resume_here(host, args.resume, terminal, |host, options| host.retry(&run, repeat, RunOptions { run_id, ..options }))
}
