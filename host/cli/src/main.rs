//! `flowcell`, the command line. Data goes to standard output, messages about it to standard error.

mod arguments;
mod cli_error;
mod clock;
mod commands;
mod content;
mod duration;
mod log;
mod options;
mod output;
mod owner;
mod remote;
mod session;
mod terminal;

use std::process::ExitCode;

use crate::{cli_error::Exit, commands::ArgumentsError, terminal::Terminal};

/// The allocator. It is faster than that of the system if many threads share small values.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let terminal = Terminal::detect();
    let arguments = match commands::parse() {
        Ok(arguments) => arguments,
        // Clap returns help and the version as errors, too. If printing fails, no reader is left to inform.
        Err(ArgumentsError::Usage(error)) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Wrong.into() } else { Exit::Good.into() };
        }
        Err(ArgumentsError::Nothing(steps)) => {
            terminal.say(&steps);
            return Exit::Wrong.into();
        }
        Err(ArgumentsError::Config(problem)) => {
            problem.print(terminal);
            return problem.exit().into();
        }
    };
    log::start(arguments.log_format(), arguments.drives_others());
    let exit = commands::execute(arguments, &terminal).unwrap_or_else(|problem| {
        problem.print(terminal);
        problem.exit()
    });
    exit.into()
}
