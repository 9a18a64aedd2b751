//! `flowcell completions`: prints the completion script of a shell.

use clap::Args;
use clap_complete::Shell;

use super::groups;
use crate::{
    cli_error::{CliError, Exit},
    output::put_exactly,
};

/// Arguments of `flowcell completions`.
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(super) fn execute(args: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut groups::command(), "flowcell", &mut script);
    put_exactly(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Good)
}
