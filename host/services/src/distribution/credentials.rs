//! Credentials for registries.

use std::fmt;

use docker_credential::{CredentialRetrievalError as Unread, DockerCredential};
use flowcell_contract::Failure;
use zeroize::Zeroizing;

use crate::code;

/// A name and a password for one registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub user: String,
    /// The password, or a token instead.
    pub password: Zeroizing<String>,
}

impl Credentials {
    /// Returns the credentials that `docker login` stored for a registry, in Docker's configuration file or with a
    /// credential helper. Returns `None` if Docker has none.
    pub fn from_docker_login(registry: &str) -> Result<Option<Credentials>, Failure> {
        let wrong = |why: &dyn fmt::Display| {
            let why = format!("cannot use docker's credentials for {registry}: {why}");
            Failure::new(code::REGISTRY_DENIED, why)
        };
        // `docker login` stores the credentials of its default registry under this name.
        let kept = if registry == "docker.io" { "https://index.docker.io/v1/" } else { registry };
        match docker_credential::get_credential(kept) {
            Ok(DockerCredential::UsernamePassword(user, password)) => {
                Ok(Some(Credentials { user, password: Zeroizing::new(password) }))
            }
            Ok(DockerCredential::IdentityToken(_)) => {
                Err(wrong(&"they are an identity token, not a name and a password"))
            }
            // A missing file means no credentials. The library reports unreadable files in the same way.
            Err(Unread::NoCredentialConfigured | Unread::ConfigNotFound | Unread::ConfigReadError) => Ok(None),
            // A helper without credentials for a registry fails.
            Err(Unread::HelperFailure { stdout, .. }) if stdout.contains("credentials not found") => Ok(None),
            Err(error) => Err(wrong(&error)),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}
