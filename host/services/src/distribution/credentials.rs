//! Who asks a registry.

use std::fmt;

use docker_credential::{CredentialRetrievalError as Unread, DockerCredential};
use flowcell_contract::Failure;
use zeroize::Zeroizing;

use crate::code;

/// A name and a password for one registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password, or a token in its place.
    pub password: Zeroizing<String>,
}

impl Credentials {
    /// What `docker login` has kept for a registry, in its file or with its helpers, if it has.
    pub fn of_docker(registry: &str) -> Result<Option<Credentials>, Failure> {
        let wrong = |why: &dyn fmt::Display| {
            let why = format!("the credentials that docker keeps for {registry} cannot be used: {why}");
            Failure::new(code::REGISTRY_DENIED, why)
        };
        // Under this name `docker login` keeps those of the registry that is asked without a name.
        let kept = if registry == "docker.io" { "https://index.docker.io/v1/" } else { registry };
        match docker_credential::get_credential(kept) {
            Ok(DockerCredential::UsernamePassword(user, password)) => {
                Ok(Some(Credentials { user, password: Zeroizing::new(password) }))
            }
            Ok(DockerCredential::IdentityToken(_)) => Err(wrong(&"it is an identity token, not a name and a password")),
            // A file that is not there says nothing; one that cannot be read is told apart by nobody.
            Err(Unread::NoCredentialConfigured | Unread::ConfigNotFound | Unread::ConfigReadError) => Ok(None),
            // A helper that has nothing for a registry fails.
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
