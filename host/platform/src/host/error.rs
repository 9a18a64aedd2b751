//! What can go wrong before a run.

use std::{fmt, io, path::PathBuf};

use flowcell_contract::{Tenant, code};
use flowcell_engine::{PackError, Refusal};
use flowcell_flow::{Diagnostic, Location, Severity, Source};
use flowcell_runtime::{OpenError, sql::OpenSharedStoreError, sqlite::OpenStoreError};
use flowcell_schema::TooCostly;

use crate::{operate::quota::QuotaError, packs::InstallError};

/// Why a host could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine did not start.
    #[error("the WebAssembly engine cannot be started")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A file or folder of packs cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A flow that came over the network names a pack by its file.
    #[error("a flow that came over the network has no packs beside it; the server offers those of `--packs DIR`")]
    NoFolder,
    /// A pack is none, or wants what it must not have.
    #[error("cannot use the pack {origin}")]
    Pack {
        /// Where it came from.
        origin: String,
        /// Why.
        source: Refusal,
    },
    /// What is installed cannot be used.
    #[error(transparent)]
    Installed(#[from] InstallError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(OpenStoreError),
    /// The shared store cannot be opened.
    #[error("cannot use the shared store: {0}")]
    Server(OpenSharedStoreError),
    /// Nothing can be told to the operator's collector.
    #[error("cannot tell a collector what happens")]
    Telemetry(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What leads outside cannot be set up.
    #[error("cannot set up connections to the outside: {0}")]
    Services(String),
    /// Two packs offer the same thing.
    #[error("the pack {origin} offers `{node_type}`, which another pack offers in the same version")]
    Taken {
        /// The later of the two.
        origin: String,
        /// The node type with its version.
        node_type: String,
    },
}

impl Error {
    /// The error as a finding in the flow that names the pack.
    pub(crate) fn at(&self, source: &Source, place: Location) -> Diagnostic {
        let cause = std::error::Error::source(self).map(|cause| format!(": {cause}"));
        let help = matches!(self, Error::Read { .. }).then_some("paths of packs are relative to the flow's file");
        let message = format!("{self}{}", cause.unwrap_or_default());
        Diagnostic::error("bad_pack", &source.text, place, &message, help)
    }
}

impl From<PackError> for Error {
    fn from(error: PackError) -> Error {
        Error::Pack { origin: error.origin, source: error.refusal }
    }
}

/// Why a flow could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its file, or a pack that it names, cannot be used.
    #[error(transparent)]
    Host(#[from] Error),
    /// There are findings that keep it from running.
    #[error("{}", Findings(.0))]
    Invalid(Vec<Diagnostic>),
}

/// Why a run cannot begin, or go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The input does not fit the flow.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Its file says that it refuses to run.
    #[error("the flow `{0}` is disabled: take `disabled: true` out of its file to run it")]
    Disabled(String),
    /// Operators have disabled the tenant.
    #[error("the tenant `{0}` is disabled: none of its runs begins or goes on until `flowcell tenant enable {0}`")]
    TenantDisabled(Tenant),
    /// The flow of a run that is to be repeated has errors now.
    #[error(
        "the flow of the repeated run has errors now, such as grants that the tenant's policy has taken back; start the flow as it is now, or ask the operator to widen the policy\n\n{}",
        Findings(.0)
    )]
    Renewed(Vec<Diagnostic>),
    /// The tenant has used up what it may have.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The store does not let it.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Why a flow does not take an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// It does not fit.
    #[error("the input does not fit the flow: {}", .findings.join("; "))]
    Unfit {
        /// What is wrong, with its place.
        findings: Vec<String>,
    },
    /// Checking it exceeds a limit.
    #[error("the input cannot be checked against the flow's `inputSchema`: {0}")]
    TooCostly(TooCostly),
}

impl InputError {
    /// The code that callers and flows are told.
    pub fn code(&self) -> &'static str {
        match self {
            InputError::Unfit { .. } => code::INVALID_INPUT,
            InputError::TooCostly(_) => code::SCHEMA_TOO_COSTLY,
        }
    }

    /// What is wrong, one finding at a time.
    pub fn findings(&self) -> Vec<String> {
        match self {
            InputError::Unfit { findings } => findings.clone(),
            InputError::TooCostly(_) => vec![self.to_string()],
        }
    }
}

struct Findings<'a>(&'a [Diagnostic]);

impl fmt::Display for Findings<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.0.iter().filter(|finding| finding.severity == Severity::Error);
        for (index, finding) in errors.enumerate() {
            let gap = if index == 0 { "" } else { "\n\n" };
            write!(formatter, "{gap}{finding}")?;
        }
        Ok(())
    }
}
