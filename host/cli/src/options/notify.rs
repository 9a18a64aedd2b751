//! The argument for notifications.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, ValueHint};
use flowcell::{
    Host,
    identity::Identify,
    notify::{Notifications, Notifier, NotifyFile},
    tenants::{TenantError, callers::Callers},
};

use super::settings_file;
use crate::{
    cli_error::{CliError, Exit},
    terminal::Terminal,
};

/// The file of notifications.
#[derive(Args, Default)]
pub(crate) struct NotifyArgs {
    /// A YAML file of the targets for messages about open gates, failed and blocked runs, quotas and trouble; SIGHUP reads it again
    #[arg(long, value_name = "FILE", env = "FLOWCELL_NOTIFY", value_hint = ValueHint::FilePath)]
    notify: Option<PathBuf>,
}

impl NotifyArgs {
    /// Reads the file, if one is given.
    pub(crate) fn file(&self) -> Result<Option<NotifyFile>, CliError> {
        settings_file::read(self.notify.as_deref())
    }

    /// Opens the targets of the file: reads their secrets.
    pub(crate) async fn open(
        &self,
        file: Option<NotifyFile>,
        host: &Host,
        identity: Arc<dyn Identify>,
    ) -> Result<Option<Notifier>, CliError> {
        let (Some(file), Some(path)) = (file, self.notify.as_deref()) else { return Ok(None) };
        let opened = Notifier::open(host, identity, &file).await;
        opened.map(Some).map_err(|why| settings_file::unopened(path, &why))
    }

    /// Returns the parts of the notifications that the server needs.
    pub(crate) fn control(&self, notifier: Option<&Notifier>) -> Option<Notifications> {
        Some(notifier?.control().with_file(self.notify.as_deref()?))
    }

    /// Checks the file and its secrets. Connects to no target.
    pub(crate) fn check(&self, host: &Host, terminal: Terminal) -> Result<(), CliError> {
        let Some(file) = self.file()? else { return Ok(()) };
        let unreadable =
            |error: TenantError| CliError::ending(Exit::Unreadable, format!("cannot read the store: {error}"));
        let identity = Arc::new(Callers::of(host).map_err(unreadable)?);
        let count = file.targets.len();
        let open = self.open(Some(file), host, identity);
        settings_file::check(open, count, ("target", "of notifications"), "no notifications are sent", terminal)
    }
}
