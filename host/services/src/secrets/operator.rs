//! The operator's secrets: their sources and permitted origins.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_contract::{Failure, Json, Tenant, code as codes, yaml_error};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{MIN_SECRET, WEBHOOK, grant};
use crate::{
    egress::OriginGrants,
    secret::{Environment, KeySource, environment},
};

/// The secrets of an operator. Cheap to clone.
#[derive(Clone)]
pub struct OperatorSecrets {
    known: Arc<BTreeMap<String, OperatorSecret>>,
    environment: Environment,
}

/// The source of one secret, and its permitted origins.
struct OperatorSecret {
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
    /// Parses the text of the operator's YAML file. Relative paths in it start at `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<OperatorSecrets, Failure> {
        let wrong = |why: String| Failure::new(codes::INVALID_INPUT, format!("secrets: {why}"));
        let written: BTreeMap<String, Written> =
            serde_yaml::from_str(text).map_err(|error| wrong(yaml_error(&error)))?;
        let known = written.into_iter().map(|(name, written)| {
            let known = OperatorSecret::read(&name, written, folder).map_err(|why| wrong(format!("{name}: {why}")))?;
            Ok((name, known))
        });
        Ok(OperatorSecrets { known: Arc::new(known.collect::<Result<_, Failure>>()?), ..OperatorSecrets::default() })
    }

    /// Returns the same secrets, for which `environment` replaces the environment of this process.
    pub fn with_environment(self, environment: Environment) -> OperatorSecrets {
        OperatorSecrets { environment, ..self }
    }

    /// Returns the origins that a secret is meant for, or `None` if it does not exist. Only the tenant `local` has
    /// these secrets, because its operator writes the file.
    pub(super) fn meant_for(&self, tenant: &Tenant, name: &str) -> Option<&OriginGrants> {
        self.known.get(name).filter(|_| *tenant == Tenant::local()).map(|known| &known.origins)
    }

    /// Reads a secret, which may have any characters. Returns `None` if it does not exist.
    pub(super) async fn read(&self, tenant: &Tenant, name: &str) -> Result<Option<Zeroizing<String>>, Failure> {
        let Some(known) = self.known.get(name).filter(|_| *tenant == Tenant::local()) else { return Ok(None) };
        let denied = |why: String| Failure::new(codes::DENIED, format!("the secret `{name}`: {why}"));
        let text = known.source.read_text(&self.environment, codes::DENIED).await;
        let text = text.map_err(|failure| denied(failure.message))?;
        match text.len() < MIN_SECRET {
            true => Err(denied(format!("it has fewer than {MIN_SECRET} characters"))),
            false => Ok(Some(text)),
        }
    }
}

impl OperatorSecret {
    fn read(name: &str, written: Written, folder: &Path) -> Result<OperatorSecret, String> {
        grant::check_name(name)?;
        let source = match (written.key_env, written.key_file) {
            (Some(variable), None) if !variable.is_empty() => KeySource::Environment(variable),
            (None, Some(file)) => KeySource::File(folder.join(file)),
            _ => return Err("write either `keyEnv` or `keyFile`".into()),
        };
        let origins = match written.origins.as_str() {
            Some(WEBHOOK) => OriginGrants::default(),
            _ => OriginGrants::parse(&written.origins).map_err(|why| format!("for: {why}"))?,
        };
        Ok(OperatorSecret { source, origins })
    }
}

impl fmt::Debug for OperatorSecrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.known.keys()).finish()
    }
}
