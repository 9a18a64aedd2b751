//! `flowcell`, the command line. Standard output carries data, standard error the talk about it.

mod commands;
mod output;
mod problem;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use crate::{commands::Arguments, problem::Exit, terminal::Terminal};

/// Faster than the system's where many threads share small values.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse_from(commands::arguments()) {
        Ok(arguments) => arguments,
        // Help and the version come this way too, with their own exit code. Nobody reads what cannot be written.
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Wrong.into() } else { Exit::Good.into() };
        }
    };
    start_tracing();
    let terminal = Terminal::detect();
    let exit = commands::execute(arguments, &terminal).unwrap_or_else(|problem| {
        terminal.say(&problem.render(terminal.paint()));
        problem.exit()
    });
    exit.into()
}

/// The host's own log, for people who work on it. Costs nothing unless it is asked for.
fn start_tracing() {
    if let Ok(filter) = std::env::var("FLOWCELL_LOG") {
        let filter = tracing_subscriber::EnvFilter::new(filter);
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}
