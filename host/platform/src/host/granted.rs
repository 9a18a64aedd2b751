//! Checks the grants of flows before a run starts: their form, the tenant's secrets, and the tenant's policy.

use std::{collections::BTreeSet, sync::Arc};

use flowcell_contract::{
    BuiltIn, CREDENTIALS, CredentialGrant, GrantShape, GrantedLimits, Json, LimitRefusal, NodeLimits, SECRETS, Tenant,
};
use flowcell_services::{
    egress::OriginGrants,
    files::FileGrants,
    model,
    secrets::{SecretGrant, Secrets},
};

use super::Host;
use crate::{
    operate::{policy::Policy, vault::Vault},
    world::{services, tools},
};

/// The tenant whose grants are checked, with its secrets and policy.
pub(crate) struct Granting {
    pub(crate) tenant: Tenant,
    pub(crate) secrets: Secrets,
    /// The operator's policy for the tenant.
    pub(crate) policy: Arc<Policy>,
    pub(crate) vault: Arc<Vault>,
    /// The largest limits of node types in this process.
    pub(crate) limits: GrantedLimits,
}

impl Granting {
    /// Returns a warning if the vault has a secret and cannot open it. See [`Vault::locked`].
    pub(crate) fn locked_secret(&self, name: &str) -> Option<String> {
        let error = self.vault.locked(&self.tenant, name)?;
        Some(format!("the secret `{name}` of the tenant `{}` cannot be opened: {error}", self.tenant))
    }

    /// Returns a warning if the vault has a credential and cannot open it. See [`Vault::locked`].
    pub(crate) fn locked_credential(&self, name: &str) -> Option<String> {
        let error = self.vault.locked_credential(&self.tenant, name)?;
        Some(format!("the credential `{name}` of the tenant `{}` cannot be opened: {error}", self.tenant))
    }
}

/// Returns the sorted names of the capabilities that flows in any folder may grant.
pub(crate) fn grantable(host: &Host) -> Vec<String> {
    let mut names: BTreeSet<&str> = host.shared.capabilities.keys().map(|name| &**name).collect();
    // Runs get these in addition, see `outside::capabilities`.
    names.extend([tools::INTERFACE, services::INTERFACE]);
    names.extend(host.simulate.covers(model::INTERFACE).then_some(model::INTERFACE));
    names.extend(BuiltIn::ALL.iter().filter(|capability| capability.grant().is_none()).map(|free| free.name()));
    names.extend([SECRETS, CREDENTIALS]);
    names.into_iter().map(str::to_owned).collect()
}

/// Checks one item of a grant. The error is a sentence for people. Items of capabilities that an embedder added are
/// only checked against the policy.
pub(crate) fn check(by: &Granting, capability: &str, item: &Json) -> Result<(), String> {
    if grants_nothing(capability, item) {
        return Ok(());
    }
    check_form(by, capability, item)?;
    by.policy.check_grant(capability, item)
}

/// Checks one item of a grant against the operator's policy, for a flow that was checked before.
pub(crate) fn check_policy(policy: &Policy, capability: &str, item: &Json) -> Result<(), String> {
    if grants_nothing(capability, item) { Ok(()) } else { policy.check_grant(capability, item) }
}

/// Returns the limits that a node type asks for and does not get.
pub(crate) fn refused_limits(granted: GrantedLimits, policy: &Policy, asked: &NodeLimits) -> Vec<LimitRefusal> {
    granted.refusals(&policy.largest_limits(), asked)
}

/// Returns true if an item is an empty list and belongs to a grant that the host defines. Such an item grants
/// nothing.
fn grants_nothing(capability: &str, item: &Json) -> bool {
    let is_empty = item.as_array().is_some_and(<[Json]>::is_empty);
    is_empty && (BuiltIn::named(capability).is_some() || GrantShape::named(capability).is_some())
}

fn check_form(by: &Granting, capability: &str, item: &Json) -> Result<(), String> {
    match GrantShape::named(capability) {
        Some(GrantShape::Origins) => OriginGrants::parse(item).map(drop),
        Some(GrantShape::Paths) => FileGrants::parse(item).map(drop),
        Some(GrantShape::Secrets) => by.secrets.check(&by.tenant, &SecretGrant::parse(item)?),
        Some(GrantShape::Credentials) => by.secrets.credentials().check(&by.tenant, &CredentialGrant::parse(item)?),
        Some(GrantShape::Patterns(example)) => check_pattern(BuiltIn::named(capability), pattern_text(item, example)?),
        None => Ok(()),
    }
}

/// Refuses patterns that cannot match a model or tool.
fn check_pattern(capability: Option<BuiltIn>, text: &str) -> Result<(), String> {
    match capability {
        Some(BuiltIn::Model) if !text.contains(['/', '*']) => {
            Err(format!("`{text}` is not a pattern of models: write provider and model, such as `{text}/*`"))
        }
        Some(BuiltIn::Tools) if !text.contains(['.', ':', '*']) => {
            Err(format!("`{text}` is not a tool; write for example `data.map`, `flow:report` or `mcp:files/read_file`"))
        }
        _ => Ok(()),
    }
}

fn pattern_text<'a>(item: &'a Json, example: &str) -> Result<&'a str, String> {
    match item.as_str() {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) => Err(format!("the pattern is empty; write for example `{example}`")),
        None => Err(format!("write a list of patterns such as `{example}`, not {}", item.type_name())),
    }
}
