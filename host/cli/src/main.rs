//! `flowcell`, the command line. Standard output carries data, standard error the talk about it.

mod commands;
mod duration;
mod log;
mod options;
mod output;
mod owner;
mod problem;
mod session;
mod terminal;

use std::process::ExitCode;

use crate::{commands::Misunderstood, problem::Exit, terminal::Terminal};

/// Faster than the system's where many threads share small values.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let terminal = Terminal::detect();
    let arguments = match commands::parse() {
        Ok(arguments) => arguments,
        // Help and the version come this way too, with their own exit code. Nobody reads what cannot be written.
        Err(Misunderstood::Usage(error)) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Wrong.into() } else { Exit::Good.into() };
        }
        Err(Misunderstood::Config(problem)) => {
            terminal.say(&problem.render(terminal.paint()));
            return problem.exit().into();
        }
    };
    log::start(arguments.log_format(), arguments.drives_others());
    let exit = commands::execute(arguments, &terminal).unwrap_or_else(|problem| {
        terminal.say(&problem.render(terminal.paint()));
        problem.exit()
    });
    exit.into()
}
