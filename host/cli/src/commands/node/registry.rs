//! Options that select a registry, and its credentials.

use std::env;

use clap::{Args, builder::FalseyValueParser};
use flowcell::{
    distribution::{Credentials, Realm},
    packs::{PackClient, Source},
};

use crate::cli_error::CliError;

/// Environment variables with the credentials of the default registry.
const USER_VARIABLE: &str = "FLOWCELL_REGISTRY_USER";
const PASSWORD_VARIABLE: &str = "FLOWCELL_REGISTRY_PASSWORD";

/// The default registry, and whether the command connects to registries.
#[derive(Args)]
pub(super) struct RegistryArgs {
    /// The default registry, for packs named without one, such as ghcr.io/acme
    #[arg(long, value_name = "PREFIX", env = "FLOWCELL_REGISTRY")]
    registry: Option<String>,
    /// A token server that may receive the credentials of a registry, such as
    /// registry.example.com=https://auth.example.com
    #[arg(long, value_name = "REGISTRY=ORIGIN", env = "FLOWCELL_REGISTRY_REALMS", value_delimiter = ',')]
    registry_realm: Vec<Realm>,
    /// Do not connect to the network
    #[arg(long, env = "FLOWCELL_OFFLINE", value_parser = FalseyValueParser::new())]
    offline: bool,
}

impl RegistryArgs {
    /// Returns the client that downloads and uploads packs. Fails if only one of the environment variables for user
    /// and password is set.
    pub(super) fn pack_client(&self) -> Result<PackClient, CliError> {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let credentials = match (set(USER_VARIABLE), set(PASSWORD_VARIABLE)) {
            (Some(user), Some(password)) => Some(Credentials { user, password: password.into() }),
            (None, None) => None,
            _ => return Err(CliError::wrong(format!("set both {USER_VARIABLE} and {PASSWORD_VARIABLE}, or neither"))),
        };
        Ok(PackClient::new(self.registry(), credentials, self.offline)?.trusting(self.registry_realm.clone()))
    }

    /// Parses the source of a pack. A plain name refers to the default registry.
    pub(super) fn source(&self, text: &str) -> Result<Source, CliError> {
        Source::parse(text, self.registry()).map_err(CliError::wrong)
    }

    /// Returns true if the command must not connect to the network.
    pub(super) fn offline(&self) -> bool {
        self.offline
    }

    fn registry(&self) -> Option<&str> {
        self.registry.as_deref().filter(|registry| !registry.is_empty())
    }
}
