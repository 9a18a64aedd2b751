//! `flowcell node profile`: shows the functions where a node type computes.

mod flame;
mod tree;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::{Args, ValueHint};
use flowcell::{Probe, Profile};

use self::tree::{Function, functions};
use super::subject::{Runs, Subject, SubjectArgs};
use crate::{
    cli_error::{CliError, Exit},
    output::put,
    owner::block_on,
    terminal::{Terminal, counted, inert},
};

/// The number of functions in the table.
const MAX_ROWS: usize = 20;
/// Maximum number of runs.
const MAX_RUNS: usize = 100_000;

/// Arguments of `flowcell node profile`.
#[derive(Args)]
pub(super) struct ProfileArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Repeat the run for this time, 1 to 60 seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Write the stacks to this file: a flame graph if its name ends with `.svg`, otherwise one stack on each line with
    /// the number of its samples
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
}

/// The profile of all runs.
struct Profiled {
    profile: Profile,
    runs: usize,
    took: Duration,
}

pub(super) fn execute(args: &ProfileArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let mut subject = args.subject.open(|builder| builder.profiles())?;
    let input = subject.complete_input();
    let profiled = block_on(profile(&subject, Duration::from_secs(args.seconds)))??;
    if let Some(file) = &args.out {
        write(file, &subject, &profiled.profile)?;
        terminal.say(&format!("wrote {}", inert(&file.display().to_string())));
    }
    put(&table(&subject, &input, &profiled))?;
    Ok(Exit::Good)
}

/// Repeats the run until the time is over, but at least twice.
async fn profile(subject: &Subject, time: Duration) -> Result<Profiled, CliError> {
    let runs = Runs::new(subject, &subject.case, Probe::with_profile(subject.node.name.clone()))?;
    runs.once().await?;
    let began = Instant::now();
    for count in 1.. {
        runs.once().await?;
        runs.probe.take_costs();
        if began.elapsed() >= time || count >= MAX_RUNS {
            return Ok(Profiled { profile: runs.probe.take_profile(), runs: count + 1, took: began.elapsed() });
        }
    }
    Err(CliError::internal("the profile has no runs"))
}

fn write(file: &Path, subject: &Subject, profile: &Profile) -> Result<(), CliError> {
    let is_picture = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    let text = if is_picture { flame::picture(&subject.node.full_name(), profile) } else { tree::lines(profile) };
    fs::write(file, text).map_err(|error| CliError::wrong(format!("cannot write {}", file.display())).because(&error))
}

fn table(subject: &Subject, input: &str, profiled: &Profiled) -> String {
    let Profiled { profile, runs, took } = profiled;
    let samples: u64 = profile.stacks().map(|(_, count)| count).sum();
    let (name, runs) = (subject.node.full_name(), counted(*runs, "run"));
    let mut text = format!("{}  {samples} samples of {runs} in {:.1} s\n", inert(&name), took.as_secs_f64());
    // Writing to a string does not fail.
    let _ = writeln!(text, "input: {}", inert(input));
    if samples == 0 {
        text.push_str("\nno samples: the node computes too shortly; give it a larger input, or more `--seconds`\n");
        return text;
    }
    if profile.left_out() > 0 {
        let _ = writeln!(text, "{} more samples are left out: they have too many different stacks", profile.left_out());
    }
    let functions = functions(profile);
    let _ = writeln!(text, "\n{:>6} {:>6}  function", "self", "total");
    let percent = |count: u64| 100.0 * count as f64 / samples as f64;
    for Function { name, own, total } in functions.iter().take(MAX_ROWS) {
        let _ = writeln!(text, "{:>5.1}% {:>5.1}%  {}", percent(*own), percent(*total), inert(name));
    }
    if functions.len() > MAX_ROWS {
        let _ = writeln!(text, "and {} more functions; `--out FILE` writes all", functions.len() - MAX_ROWS);
    }
    let is_named = |name: &str| !name.starts_with("function ") && !name.starts_with('(');
    if !functions.iter().any(|function| is_named(&function.name)) {
        text.push_str(
            "\nThe component has no names of functions. A Rust project that is built without `strip` keeps them. The \
             interpreter of JavaScript has none: compare variants of the code with `flowcell node bench`.\n",
        );
    }
    text
}
