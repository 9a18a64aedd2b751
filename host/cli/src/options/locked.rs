//! The arguments that select the installed packs.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use flowcell::{
    HostBuilder,
    packs::{InstallError, LOCK_FILE, Lock, TRUST_FILE, Trust},
};

/// The installed packs.
#[derive(Args, Clone, Default)]
pub(crate) struct LockArgs {
    /// The file that pins the installed packs [default: `flowcell.lock`, if it exists]
    #[arg(long, value_name = "FILE", env = "FLOWCELL_LOCK", value_hint = ValueHint::FilePath)]
    lock: Option<PathBuf>,
    /// A YAML file of the trusted signers of installed packs [default: `flowcell.trust.yaml`, if it exists]
    #[arg(long, value_name = "FILE", env = "FLOWCELL_TRUST", value_hint = ValueHint::FilePath)]
    trust: Option<PathBuf>,
}

impl LockArgs {
    /// Adds the lock file and the trust file to a host. Without arguments, those in the current folder are used whenever
    /// they exist.
    pub(crate) fn add_to(&self, builder: HostBuilder) -> HostBuilder {
        let builder = match &self.lock {
            Some(lock) => builder.lock(lock),
            None => builder.optional_lock(LOCK_FILE),
        };
        match &self.trust {
            Some(trust) => builder.trust_file(trust),
            None => builder.optional_trust_file(TRUST_FILE),
        }
    }

    /// Reads the lock file. A missing file is an empty lock.
    pub(crate) fn lock(&self) -> Result<Lock, InstallError> {
        Lock::read(self.lock.as_deref().unwrap_or(Path::new(LOCK_FILE)))
    }

    /// Reads the keys whose signatures are trusted.
    pub(crate) fn trust(&self) -> Result<Trust, InstallError> {
        let usual = || Some(PathBuf::from(TRUST_FILE)).filter(|file| file.is_file());
        self.trust.clone().or_else(usual).map_or_else(|| Ok(Trust::default()), |file| Trust::read(&file))
    }
}
