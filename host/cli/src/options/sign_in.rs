//! The argument for sign-in by OpenID Connect.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use clap::{Args, ValueHint};
use flowcell::{
    Host,
    identity::{Identify, Local},
    sign_in::{SignInFile, SignIns},
};

use super::settings_file;
use crate::{cli_error::CliError, terminal::Terminal};

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
        settings_file::read(self.sign_in.as_deref())
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
        opened.map(Some).map_err(|why| settings_file::unopened(path, &why))
    }

    /// Returns a sentence for each tenant that a rule of the file names, and that does not exist.
    pub(crate) fn unknown_tenants(&self, exists: impl Fn(&str) -> bool) -> Result<Vec<String>, CliError> {
        let Some(file) = self.file()? else { return Ok(Vec::new()) };
        let rules =
            file.issuers.iter().flat_map(|issuer| issuer.rules.iter().map(move |rule| (&issuer.name, &rule.tenant)));
        let unknown: BTreeSet<(&String, &String)> = rules.filter(|(_, tenant)| !exists(tenant)).collect();
        let sentence = |(issuer, tenant): (&String, &String)| {
            format!(
                "a rule of the issuer `{}` names the tenant `{}`, which does not exist, so a sign-in by it is refused; make \
                 the tenant, or mend the rule",
                issuer.escape_debug(),
                tenant.escape_debug()
            )
        };
        Ok(unknown.into_iter().map(sentence).collect())
    }

    /// Checks the file and its secrets. Connects to no issuer.
    pub(crate) fn check(&self, host: &Host, terminal: Terminal) -> Result<(), CliError> {
        let Some(file) = self.file()? else { return Ok(()) };
        let count = file.issuers.len();
        // Reading the secrets needs no callers.
        let open = self.open(Some(file), host, Arc::new(Local));
        settings_file::check(open, count, ("issuer", "of the sign-in"), "no person can sign in", terminal)
    }
}
