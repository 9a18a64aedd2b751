//! Grants as flows write them, looked at before anything runs.

use std::sync::Arc;

use flowcell_contract::{BuiltIn, GrantShape, Json, Tenant};
use flowcell_services::{
    egress::OriginGrants,
    files::FileGrants,
    secrets::{SecretGrant, Secrets},
};

use crate::operate::policy::Policy;

/// Who looks at grants: a tenant with secrets.
pub(crate) struct Granting {
    pub(crate) tenant: Tenant,
    pub(crate) secrets: Secrets,
    /// What the operator lets the tenant grant.
    pub(crate) policy: Arc<Policy>,
}

/// What is wrong about one item of a grant. Of a capability that somebody else brought nothing is known here.
pub(crate) fn check(by: &Granting, capability: &str, item: &Json) -> Result<(), String> {
    if grants_nothing(capability, item) {
        return Ok(());
    }
    check_form(by, capability, item)?;
    by.policy.check_grant(capability, item)
}

/// What an operator has against one item of a grant, of a flow that was checked before.
pub(crate) fn check_policy(policy: &Policy, capability: &str, item: &Json) -> Result<(), String> {
    if grants_nothing(capability, item) { Ok(()) } else { policy.check_grant(capability, item) }
}

/// Whether an item is an empty list, of a grant that the host defines.
fn grants_nothing(capability: &str, item: &Json) -> bool {
    let is_empty = item.as_array().is_some_and(<[Json]>::is_empty);
    is_empty && (BuiltIn::named(capability).is_some() || GrantShape::named(capability).is_some())
}

fn check_form(by: &Granting, capability: &str, item: &Json) -> Result<(), String> {
    match GrantShape::named(capability) {
        Some(GrantShape::Origins) => OriginGrants::parse(item).map(drop),
        Some(GrantShape::Paths) => FileGrants::parse(item).map(drop),
        Some(GrantShape::Secrets) => by.secrets.check(&by.tenant, &SecretGrant::parse(item)?),
        Some(GrantShape::Patterns(example)) => check_pattern(BuiltIn::named(capability), pattern(item, example)?),
        None => Ok(()),
    }
}

/// Refuses patterns that no model or tool has.
fn check_pattern(capability: Option<BuiltIn>, text: &str) -> Result<(), String> {
    match capability {
        Some(BuiltIn::Model) if !text.contains(['/', '*']) => {
            Err(format!("`{text}` names no model: a pattern is of provider and model, such as `{text}/*`"))
        }
        Some(BuiltIn::Tools) if !text.contains(['.', ':', '*']) => {
            Err(format!("`{text}` names no tool; tools are `data.map`, `flow:report`, `mcp:files/read_file`"))
        }
        _ => Ok(()),
    }
}

fn pattern<'a>(item: &'a Json, example: &str) -> Result<&'a str, String> {
    match item.as_str() {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) => Err(format!("a pattern such as `{example}` is expected, this one is empty")),
        None => Err(format!("a list of patterns such as `{example}` is expected, not {}", item.type_name())),
    }
}
