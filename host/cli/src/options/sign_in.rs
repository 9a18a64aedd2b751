//! The argument for sign-in by OpenID Connect.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, ValueHint};
use flowcell::{
    Host,
    identity::{Identify, Local},
    sign_in::{SignInFile, SignIns},
};

use crate::{
    cli_error::CliError,
    terminal::{Terminal, counted},
};

/// The file of the issuers.
#[derive(Args, Default)]
pub(crate) struct SignInArgs {
    /// A YAML file of the issuers of OpenID Connect with which people sign in to the console; SIGHUP reads it again
    #[arg(long, value_name = "FILE", env = "FLOWCELL_SIGN_IN", value_hint = ValueHint::FilePath)]
    sign_in: Option<PathBuf>,
}

impl SignInArgs {
    /// Reads the file, if one is given.
    pub(crate) fn file(&self) -> Result<Option<SignInFile>, CliError> {
        let read = self.sign_in.as_deref().map(SignInFile::read).transpose();
        read.map_err(|error| CliError::wrong(error.to_string()).hint(error.help()))
    }

    /// Opens the issuers of the file: reads their secrets. Connects to no issuer.
    pub(crate) async fn open(
        &self,
        file: Option<SignInFile>,
        host: &Host,
        identity: Arc<dyn Identify>,
    ) -> Result<Option<SignIns>, CliError> {
        let (Some(file), Some(path)) = (file, self.sign_in.as_deref()) else { return Ok(None) };
        let opened = SignIns::open(host, identity, &file, path).await;
        opened.map(Some).map_err(|why| {
            CliError::wrong(format!("{}: {why}", path.display()))
                .hint("set the variable, or write the file that is named")
        })
    }

    /// Checks the file and its secrets. Connects to no issuer.
    pub(crate) fn check(&self, host: &Host, terminal: Terminal) -> Result<(), CliError> {
        let Some(file) = self.file()? else { return Ok(()) };
        let count = file.issuers.len();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CliError::internal("cannot start the runtime").because(&error))?;
        // Reading the secrets needs no callers.
        runtime.block_on(self.open(Some(file), host, Arc::new(Local)))?;
        terminal.say(&format!("checked {} of the sign-in", counted(count, "issuer")));
        if count == 0 {
            terminal.warn("the file of the sign-in has no issuers, so no person can sign in");
        }
        Ok(())
    }
}
