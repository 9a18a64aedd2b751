//! Grants as flows write them, looked at before anything runs.

use std::sync::Arc;

use flowcell_contract::{Json, Tenant};
use flowcell_services::{
    egress::OriginGrants,
    files::{self, FileGrants},
    http, model,
    secrets::{self, SecretGrant, Secrets},
};

use crate::{
    operate::policy::Policy,
    world::{services, tools},
};

/// Capabilities that need no grant, and may have one.
pub(crate) const ALWAYS: [&str; 5] = ["log", "metrics", "state", "cache", "agent"];

/// Capabilities of which an empty list grants nothing.
const LISTED: [&str; 6] =
    [http::INTERFACE, files::INTERFACE, secrets::GRANT, model::INTERFACE, tools::INTERFACE, services::INTERFACE];

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

fn grants_nothing(capability: &str, item: &Json) -> bool {
    let is_empty = item.as_array().is_some_and(<[Json]>::is_empty);
    is_empty && (LISTED.contains(&capability) || ALWAYS.contains(&capability))
}

fn check_form(by: &Granting, capability: &str, item: &Json) -> Result<(), String> {
    match capability {
        http::INTERFACE => OriginGrants::parse(item).map(drop),
        files::INTERFACE => FileGrants::parse(item).map(drop),
        secrets::GRANT => by.secrets.check(&by.tenant, &SecretGrant::parse(item)?),
        model::INTERFACE => pattern(item, "anthropic/*").and_then(|text| match text.contains(['/', '*']) {
            true => Ok(()),
            false => Err(format!("`{text}` names no model: a pattern is of provider and model, such as `{text}/*`")),
        }),
        tools::INTERFACE => pattern(item, "data.*").and_then(|text| match text.contains(['.', ':', '*']) {
            true => Ok(()),
            false => Err(format!("`{text}` names no tool; tools are `data.map`, `flow:report`, `mcp:files/read_file`")),
        }),
        services::INTERFACE => pattern(item, "img").map(drop),
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
