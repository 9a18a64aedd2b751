//! Secrets that flows name and never see: the host puts them into a header of a request, for the server that they are for.
//!
//! The operator says where each is, and for which origins, in a YAML file:
//!
//! ```yaml
//! api-token: { keyEnv: API_TOKEN, for: ["https://api.example.com"] }
//! crm: { keyFile: crm.key, for: ["https://*.crm.example/v2"] }   # beside this file
//! ```
//!
//! A flow names one in the grants of a node that sends requests ([`SecretGrants`]). It is read when the request leaves, is
//! put into that header alone, and is taken out again of everything that comes back: plain, in base64, as in a URL, as in
//! JSON. It is sent over TLS only, or to a private address that the operator has listed. The names are of the tenant `local`,
//! whose operator writes the file; other tenants have none.

mod grant;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_contract::{Failure, Json, Tenant, code as codes};
use serde::Deserialize;

pub use self::grant::{SecretGrant, SecretGrants};
use crate::{
    egress::{Destination, OriginGrants},
    secret::{Environment, Key, KeySource, environment},
};

/// The name under which secrets are granted.
pub const GRANT: &str = "secrets";

/// The fewest characters of a secret: a shorter one would be found in everything that is searched for it.
const MIN_SECRET: usize = 8;

/// The secrets that an operator has. Cheap to clone.
#[derive(Clone)]
pub struct OperatorSecrets {
    known: Arc<BTreeMap<String, Known>>,
    environment: Environment,
}

/// Where one is, and for whom.
struct Known {
    source: KeySource,
    origins: OriginGrants,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    key_env: Option<String>,
    key_file: Option<PathBuf>,
    #[serde(rename = "for")]
    origins: Json,
}

impl Default for OperatorSecrets {
    fn default() -> OperatorSecrets {
        OperatorSecrets { known: Arc::default(), environment: environment() }
    }
}

impl OperatorSecrets {
    /// Reads the file. Paths in it are beside it, in this folder.
    pub fn parse(text: &str, folder: &Path) -> Result<OperatorSecrets, Failure> {
        let wrong = |why: String| Failure::new(codes::INVALID_INPUT, format!("secrets: {why}"));
        let written: BTreeMap<String, Written> =
            serde_yaml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let known = written.into_iter().map(|(name, written)| {
            let known = Known::read(&name, written, folder).map_err(|why| wrong(format!("{name}: {why}")))?;
            Ok((name, known))
        });
        Ok(OperatorSecrets { known: Arc::new(known.collect::<Result<_, Failure>>()?), ..OperatorSecrets::default() })
    }

    /// The same secrets, with other variables than those of this process.
    pub fn in_environment(self, environment: Environment) -> OperatorSecrets {
        OperatorSecrets { environment, ..self }
    }

    /// What keeps a grant from being used, with what mends it. Looks at names only.
    pub fn check(&self, tenant: &Tenant, grant: &SecretGrant) -> Result<(), String> {
        self.known(tenant, &grant.name).map(drop)
    }

    fn known(&self, tenant: &Tenant, name: &str) -> Result<&Known, String> {
        let known = self.known.get(name).filter(|_| *tenant == Tenant::local());
        known.ok_or_else(|| {
            format!(
                "there is no secret `{name}`; add `{name}: {{ keyEnv: VARIABLE, for: [\"https://api.example.com\"] }}` to \
                 the file that `--secrets` names"
            )
        })
    }

    /// The grants that are for this destination. Those that the operator means for others are refused.
    pub(crate) fn for_destination(
        &self,
        tenant: &Tenant,
        grants: SecretGrants,
        to: &Destination,
    ) -> Result<Vec<SecretGrant>, Failure> {
        let denied = |why: String| Failure::new(codes::DENIED, format!("grants.secrets: {why}"));
        let mut meant = Vec::new();
        for grant in grants.0 {
            let known = self.known(tenant, &grant.name).map_err(denied)?;
            let operator = known.origins.covers(to);
            match &grant.origins {
                Some(origins) if !origins.covers(to) => continue,
                None if !operator => continue,
                Some(_) if !operator => {
                    let (name, origin) = (&grant.name, to.origin());
                    return Err(denied(format!(
                        "the secret `{name}` is not for {origin}; the operator's file says for whom"
                    )));
                }
                _ => meant.push(grant),
            }
        }
        Ok(meant)
    }

    /// Reads a secret, for whom it is meant.
    pub(crate) async fn read(&self, tenant: &Tenant, name: &str) -> Result<Key, Failure> {
        let denied = |why: String| Failure::new(codes::DENIED, format!("the secret `{name}`: {why}"));
        let known = self.known(tenant, name).map_err(denied)?;
        let key = known.source.read(&self.environment, codes::DENIED).await;
        let key = key.map_err(|failure| denied(failure.message))?;
        match key.length() < MIN_SECRET {
            true => Err(denied(format!("it has fewer than {MIN_SECRET} characters"))),
            false => Ok(key),
        }
    }
}

impl Known {
    fn read(name: &str, written: Written, folder: &Path) -> Result<Known, String> {
        grant::check_name(name)?;
        let source = match (written.key_env, written.key_file) {
            (Some(variable), None) if !variable.is_empty() => KeySource::Environment(variable),
            (None, Some(file)) => KeySource::File(folder.join(file)),
            _ => return Err("either `keyEnv` or `keyFile` says where it is".into()),
        };
        Ok(Known { source, origins: OriginGrants::parse(&written.origins).map_err(|why| format!("for: {why}"))? })
    }
}

impl fmt::Debug for OperatorSecrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.known.keys()).finish()
    }
}
