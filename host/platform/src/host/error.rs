//! Errors before a run starts.

use std::{fmt, io, path::PathBuf};

use flowcell_contract::{Tenant, code, shell::shell_word};
use flowcell_engine::{PackError, PackErrorKind};
use flowcell_flow::{Diagnostic, Location, Severity, Source};
use flowcell_runtime::{OpenError, objects::ObjectsError, sqlite::OpenStoreError};
use flowcell_schema::TooCostly;

use crate::{operate::quota::QuotaError, packs::InstallError};

/// An error while a host is built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine did not start.
    #[error("cannot start the WebAssembly engine")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A file or folder of packs cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A flow from the network, or of a tenant other than `local`, names a pack by its file. Only flows in files of
    /// `local` may do so.
    #[error("a flow in a request cannot have packs; the operator adds packs with `--packs DIR`")]
    NoFolder,
    /// A file is not a pack, or the pack asks for forbidden access.
    #[error("cannot use the pack {origin}")]
    Pack {
        /// The origin of the pack, for messages.
        origin: String,
        /// The engine's reason.
        source: PackErrorKind,
    },
    /// An installed pack cannot be used.
    #[error(transparent)]
    Installed(#[from] InstallError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(OpenStoreError),
    /// The shared store cannot be opened.
    #[error("cannot use the shared store: {0}")]
    Server(Box<dyn std::error::Error + Send + Sync>),
    /// The server of the shared store does not answer.
    #[error("cannot use the shared store: {0}")]
    Unreachable(Box<dyn std::error::Error + Send + Sync>),
    /// The object store for files cannot be used.
    #[error("{0}")]
    Blobs(ObjectsError),
    /// The operator's collector cannot be set up.
    #[error("cannot send telemetry to the collector")]
    Telemetry(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An operator's file, or an option for providers, MCP servers, secrets, services or addresses, is invalid.
    #[error("cannot set up the services: {0}")]
    Services(String),
    /// Two packs offer the same node type in the same version.
    #[error("the pack {origin} has `{node_type}`, which another pack has in the same version")]
    Taken {
        /// The origin of the later pack.
        origin: String,
        /// The node type with its version.
        node_type: String,
    },
}

impl Error {
    /// Returns whether the server of the store, or the object store for its files, does not answer.
    pub fn is_store_away(&self) -> bool {
        match self {
            Error::Unreachable(_) => true,
            Error::Blobs(error) | Error::Store(OpenStoreError::Objects { error, .. }) => error.is_away(),
            _ => false,
        }
    }

    /// Returns the error as a diagnostic at the place where the flow names the pack.
    pub(crate) fn at(&self, source: &Source, place: Location) -> Diagnostic {
        let cause = std::error::Error::source(self).map(|cause| format!(": {cause}"));
        let help = matches!(self, Error::Read { .. }).then_some("write the paths of packs relative to the flow's file");
        let message = format!("{self}{}", cause.unwrap_or_default());
        Diagnostic::error("bad_pack", &source.text, place, &message, help)
    }
}

impl From<PackError> for Error {
    fn from(error: PackError) -> Error {
        Error::Pack { origin: error.origin, source: error.kind }
    }
}

/// An error while a flow is loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The flow's file, or a pack that it names, cannot be used.
    #[error(transparent)]
    Host(#[from] Error),
    /// The flow has errors.
    #[error("{}", ErrorList(.0))]
    Invalid(Vec<Diagnostic>),
}

/// An error while a run starts or continues.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The input does not fit the flow.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The flow's file disables the flow.
    #[error("the flow `{0}` is disabled: remove `disabled: true` from its file to run it")]
    Disabled(String),
    /// An operator has disabled the tenant.
    #[error(
        "the tenant `{0}` is disabled, so its runs neither start nor continue; enable it with `flowcell tenant enable \
         {word}`",
        word = shell_word(.0.as_str())
    )]
    TenantDisabled(Tenant),
    /// The flow of the run to repeat has errors now.
    #[error(
        "the flow of the repeated run has errors now, such as grants that the tenant's policy no longer allows; start \
         the present flow, or ask the operator to widen the policy\n\n{}",
        ErrorList(.0)
    )]
    Renewed(Vec<Diagnostic>),
    /// The tenant is over quota.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The store cannot open the run.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// An error of an input check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The input does not match the flow's `inputSchema`.
    #[error("the input does not fit the flow: {}", .findings.join("; "))]
    Unfit {
        /// The mismatches, each with its place.
        findings: Vec<String>,
    },
    /// The check exceeds a limit.
    #[error("cannot check the input against the flow's `inputSchema`: {0}")]
    TooCostly(TooCostly),
}

impl InputError {
    /// Returns the stable code for callers and flows.
    pub fn code(&self) -> &'static str {
        match self {
            InputError::Unfit { .. } => code::INVALID_INPUT,
            InputError::TooCostly(_) => code::SCHEMA_TOO_COSTLY,
        }
    }

    /// Returns the mismatches as separate messages.
    pub fn findings(&self) -> Vec<String> {
        match self {
            InputError::Unfit { findings } => findings.clone(),
            InputError::TooCostly(_) => vec![self.to_string()],
        }
    }
}

pub(super) struct ErrorList<'a>(pub(super) &'a [Diagnostic]);

impl fmt::Display for ErrorList<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.0.iter().filter(|finding| finding.severity == Severity::Error);
        for (index, finding) in errors.enumerate() {
            let gap = if index == 0 { "" } else { "\n\n" };
            write!(formatter, "{gap}{finding}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_in_a_printed_command_is_a_word_of_a_shell() {
        for (tenant, command) in [("ada", "`flowcell tenant enable ada`"), ("a b", "`flowcell tenant enable 'a b'`")] {
            let told = StartError::TenantDisabled(Tenant::from(tenant)).to_string();
            assert!(told.ends_with(command), "{told}");
        }
    }
}
