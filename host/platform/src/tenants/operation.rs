//! Operators' requests, which the owner of the store executes for any process.

pub mod credential;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_runtime::{
    limits::MAX_COUNTED,
    ports::{LabelChange, MaybeStoreError, Runs, Swept},
};
use serde::{Deserialize, Serialize};

use self::credential::CredentialOperation;
use super::{OPERATOR, TenantError, Tenants, accounts, audit::Outcome, deletion};
use crate::{
    FlowLibrary, StartError,
    drive::{
        jobs::operation::JobOperation,
        triggers::operation::{TriggerAdmin, TriggerOperation},
    },
    files::operation::FileOperation,
    forms::operation::FormOperation,
    host::retention::Removal,
    operate::{documents::to_json, policy::Policy, vault::Hidden},
};

/// A request of an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Operation {
    /// Creates a tenant.
    CreateTenant {
        /// The tenant's name.
        name: String,
        /// True to create it although a removed tenant had the name.
        #[serde(default)]
        reuse_name: bool,
    },
    /// Removes a disabled tenant with everything that belongs to it.
    DeleteTenant {
        /// The tenant's name.
        name: String,
        /// The folder with the flows of `local`.
        folder: PathBuf,
        /// True to remove it, false to show what would be removed.
        confirmed: bool,
    },
    /// Lists all tenants.
    ListTenants,
    /// Enables or disables a tenant.
    EnableTenant {
        /// The tenant's name.
        name: String,
        /// True to enable the tenant, false to disable it.
        enabled: bool,
    },
    /// Shows or sets the policy of a tenant.
    Policy {
        /// The tenant's name.
        name: String,
        /// The new policy. `None` shows the current one.
        set: Option<Policy>,
    },
    /// Shows the tenant's usage of today.
    Usage {
        /// The tenant's name.
        name: String,
    },
    /// Creates a token.
    CreateToken {
        /// The tenant of the token.
        tenant: String,
        /// The names of the token's scopes.
        scopes: Vec<String>,
        /// The token's name. Empty means none.
        #[serde(default)]
        name: String,
        /// A note about the token's purpose.
        note: String,
        /// The token's lifetime in milliseconds. `None` means that the token never expires.
        lasts: Option<u64>,
    },
    /// Lists the tokens.
    ListTokens {
        /// Lists only the tokens of this tenant. `None` lists those of all tenants.
        tenant: Option<String>,
    },
    /// Revokes a token.
    RevokeToken {
        /// The token's id.
        id: String,
    },
    /// Lists the accounts.
    ListAccounts {
        /// Lists only the accounts of this tenant. `None` lists those of all tenants.
        tenant: Option<String>,
    },
    /// Enables an account, or disables it and ends its sessions.
    EnableAccount {
        /// The account's id.
        id: String,
        /// True to enable the account, false to disable it.
        enabled: bool,
    },
    /// Removes an account, and ends its sessions.
    DeleteAccount {
        /// The account's id.
        id: String,
    },
    /// Shows an audit log.
    Audit {
        /// The tenant of the log.
        tenant: String,
        /// Shows the entries after this sequence number.
        after: u64,
        /// Maximum number of entries.
        limit: usize,
    },
    /// Shows the triggers of a tenant's flows, or changes one.
    Trigger {
        /// The tenant of the flows.
        tenant: String,
        /// The folder with the flows of `local`.
        folder: PathBuf,
        /// The flow and the trigger's id. `None` lists all triggers.
        trigger: Option<(String, String)>,
        /// The operation on the trigger. `None` shows it.
        act: Option<TriggerOperation>,
    },
    /// Handles a request about the links of a tenant's forms.
    Form {
        /// The tenant of the links.
        tenant: String,
        /// The folder with the flows of `local`.
        folder: PathBuf,
        /// The request.
        request: FormOperation,
    },
    /// Verifies the hash chain of a tenant's audit log.
    VerifyAudit {
        /// The tenant of the log.
        tenant: String,
        /// The hash of an entry that the log must contain. `None` checks only the chain.
        head: Option<String>,
    },
    /// Sets a secret.
    SetSecret {
        /// The tenant of the secret.
        tenant: String,
        /// The secret's name.
        name: String,
        /// The secret's value.
        value: Hidden,
        /// The servers that the secret may be sent to.
        origins: Vec<String>,
        /// The time in milliseconds after which the server that issued it ends it. `None`: it has no end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasts: Option<u64>,
    },
    /// Lists the secrets without their values.
    ListSecrets {
        /// The tenant of the secrets.
        tenant: String,
    },
    /// Removes a secret.
    RemoveSecret {
        /// The tenant of the secret.
        tenant: String,
        /// The secret's name.
        name: String,
    },
    /// Handles a request about the credentials of a tenant.
    Credential {
        /// The tenant of the credentials.
        tenant: String,
        /// The request.
        request: CredentialOperation,
    },
    /// Lists the secrets that none of the given keys opens, or removes them.
    ResetSecrets {
        /// The tenant of the secrets.
        tenant: String,
        /// True to remove them, false to list them.
        remove: bool,
    },
    /// Shows or changes the files of a tenant.
    File {
        /// The tenant of the files.
        tenant: String,
        /// The operation on the files.
        deed: FileOperation,
    },
    /// Removes ended runs, and the data that no run refers to.
    CollectRuns {
        /// The tenant of the runs.
        tenant: String,
        /// Removes the runs that ended longer ago than this, in milliseconds. `None` removes no run because of its age.
        older_than_ms: Option<u64>,
        /// Keeps only this many of the runs that ended last. `None` removes no run because of the number of runs.
        keep: Option<u64>,
    },
    /// Deletes ended runs, and the data that no run refers to.
    DeleteRuns {
        /// The tenant of the runs.
        tenant: String,
        /// The ids of the runs.
        runs: Vec<RunId>,
    },
    /// Sets and removes labels of a run.
    LabelRun {
        /// The tenant of the run.
        tenant: String,
        /// The id of the run.
        run: RunId,
        /// The labels to set and to remove.
        change: LabelChange,
    },
    /// Handles a request about the jobs of a tenant.
    Job {
        /// The tenant of the jobs.
        tenant: String,
        /// The request.
        request: JobOperation,
    },
    /// Encrypts all secrets with a new key.
    RotateSecretKey {
        /// The new key. `None` creates one beside the store.
        key: Option<Hidden>,
    },
}

/// The data that [`Operation::CollectRuns`] or [`Operation::DeleteRuns`] has removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectedRuns {
    /// The ids of the removed runs.
    pub runs: Vec<RunId>,
    /// The runs that another process of a shared store held. They are still there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<RunId>,
    /// The removed blobs.
    #[serde(flatten)]
    pub swept: Swept,
}

/// Performs [`Tenants::operate`].
pub(super) fn operate(tenants: &Tenants, operation: &Operation) -> Result<Json, TenantError> {
    let done = Json::object([("done", Json::from(true))]);
    match operation {
        Operation::CreateTenant { name, reuse_name: true } => tenants.create_again(name).map(|()| done),
        Operation::CreateTenant { name, reuse_name: false } => tenants.create(name).map(|()| done),
        Operation::DeleteTenant { name, folder, confirmed } => {
            Ok(to_json("tenant", &deletion::delete(tenants, name, folder, *confirmed)?)?)
        }
        Operation::ListTenants => Ok(to_json("tenants", &tenants.list()?)?),
        Operation::EnableTenant { name, enabled: true } => tenants.enable(name, true).map(|()| done),
        Operation::EnableTenant { name, enabled: false } => {
            tenants.enable(name, false)?;
            let count = |runs: &dyn Runs| runs.live(&Tenant::from(&**name), MAX_COUNTED as u64);
            let live = tenants.host.runs().map_or(Ok(0), count)?;
            Ok(Json::object([("done", Json::from(true)), ("liveRuns", Json::from(live))]))
        }
        Operation::Policy { name, set } => {
            set.iter().try_for_each(|policy| tenants.set_policy(name, policy))?;
            Ok(to_json("policy", &tenants.policy(name)?)?)
        }
        Operation::Usage { name } => Ok(to_json("usage", &tenants.used(name)?)?),
        Operation::CreateToken { tenant, name, scopes, note, lasts } => {
            Ok(to_json("token", &tenants.create_named_token(tenant, name, scopes, note, *lasts)?)?)
        }
        Operation::ListTokens { tenant } => Ok(to_json("tokens", &tenants.tokens(tenant.as_deref())?)?),
        Operation::RevokeToken { id } => tenants.revoke_token(id).map(|()| done),
        Operation::ListAccounts { tenant } => Ok(to_json("accounts", &accounts::list(tenants, tenant.as_deref())?)?),
        Operation::EnableAccount { id, enabled } => accounts::enable(tenants, id, *enabled).map(|()| done),
        Operation::DeleteAccount { id } => accounts::delete(tenants, id).map(|()| done),
        Operation::Audit { tenant, after, limit } => Ok(to_json("audit", &tenants.audit(tenant, *after, *limit)?)?),
        Operation::Trigger { tenant, folder, trigger, act } => {
            Ok(to_json("triggers", &act_on_trigger(tenants, tenant, folder, trigger.as_ref(), act.as_ref())?)?)
        }
        Operation::Form { tenant, folder, request } => {
            let host = tenants.host.for_tenant(tenants.existing_tenant(tenant)?);
            let (result, noted) = request.perform(&host, &FlowLibrary::of_host(folder, &host), OPERATOR)?;
            if let Some((action, subject)) = noted {
                tenants.note(tenant, action, &subject, Outcome::Done)?;
            }
            Ok(to_json("forms", &result)?)
        }
        Operation::SetSecret { tenant, name, value, origins, lasts } => {
            let (vault, tenant) = (tenants.vault(), tenants.existing_tenant(tenant)?);
            let row = vault.set(&tenant, OPERATOR, name, value.text(), origins, *lasts)?;
            Ok(to_json("secret", &row)?)
        }
        Operation::ListSecrets { tenant } => {
            Ok(to_json("secrets", &tenants.vault().list(&tenants.existing_tenant(tenant)?)?)?)
        }
        Operation::RemoveSecret { tenant, name } => {
            tenants.vault().remove(&tenants.existing_tenant(tenant)?, OPERATOR, name)?;
            Ok(done)
        }
        Operation::Credential { tenant, request } => credential::operate(tenants, tenant, request),
        Operation::ResetSecrets { tenant, remove } => {
            let tenant = tenants.existing_tenant(tenant)?;
            let lost = match remove {
                true => tenants.vault().reset(&tenant, OPERATOR)?,
                false => tenants.vault().lost(&tenant)?,
            };
            Ok(to_json("secrets", &lost)?)
        }
        Operation::File { tenant, deed } => {
            Ok(tenants.host.for_tenant(tenants.existing_tenant(tenant)?).files().operate(deed)?)
        }
        Operation::CollectRuns { tenant, older_than_ms, keep } => {
            let host = tenants.host.for_tenant(tenants.existing_tenant(tenant)?);
            let failed = |error: StartError| TenantError::Store(error.to_store_error());
            let Removal { runs, held } =
                host.collect(older_than_ms.map(Duration::from_millis), *keep).map_err(failed)?;
            let removed = CollectedRuns { runs, held, swept: host.sweep().map_err(failed)? };
            tenants.note(tenant, "runs.collect", &removed.runs.len().to_string(), Outcome::Done)?;
            Ok(to_json("runs", &removed)?)
        }
        Operation::DeleteRuns { tenant, runs } => delete_runs(tenants, tenant, runs),
        Operation::LabelRun { tenant, run, change } => {
            tenants.host.for_tenant(tenants.existing_tenant(tenant)?).label_run(run, change)?;
            tenants.note(tenant, "run.label", run.as_str(), Outcome::Done)?;
            Ok(done)
        }
        Operation::Job { tenant, request } => {
            Ok(request.execute(&tenants.host.for_tenant(tenants.existing_tenant(tenant)?))?)
        }
        Operation::RotateSecretKey { key } => {
            let rotated = tenants.vault().rotate(&tenants.all_tenants()?, OPERATOR, key.as_ref().map(Hidden::text))?;
            Ok(to_json("rotated", &rotated)?)
        }
        Operation::VerifyAudit { tenant, head } => {
            Ok(to_json("audit", &tenants.verify_audit(tenant, head.as_deref())?)?)
        }
    }
}

/// Deletes ended runs of a tenant, and the data that no run refers to. Adds an audit entry for each run.
fn delete_runs(tenants: &Tenants, tenant: &str, runs: &[RunId]) -> Result<Json, TenantError> {
    let host = tenants.host.for_tenant(tenants.existing_tenant(tenant)?);
    let mut runs = runs.to_vec();
    runs.sort();
    runs.dedup();
    host.delete_runs(&runs)?;
    for run in &runs {
        tenants.note(tenant, "run.delete", run.as_str(), Outcome::Done)?;
    }
    let swept = host.sweep().map_err(|error| error.to_store_error())?;
    Ok(to_json("runs", &CollectedRuns { runs, held: Vec::new(), swept })?)
}

/// Shows all triggers of a tenant, or shows or changes one of them.
fn act_on_trigger(
    tenants: &Tenants,
    tenant: &str,
    folder: &Path,
    trigger: Option<&(String, String)>,
    act: Option<&TriggerOperation>,
) -> Result<serde_json::Value, TenantError> {
    let tenant = Tenant::from(tenant);
    if tenant != Tenant::local() {
        tenants.tenant(tenant.as_str())?;
    }
    let host = tenants.host.for_tenant(tenant.clone());
    let desk = TriggerAdmin::new(&host, FlowLibrary::of_host(folder, &host));
    Ok(match (trigger, act) {
        (None, _) => desk.list()?.into(),
        (Some((flow, id)), None) => desk.show(flow, id)?,
        (Some((flow, id)), Some(act)) => {
            let done = desk.act(flow, id, act)?;
            tenants.note(tenant.as_str(), act.name(), &format!("{flow}/{id}"), Outcome::Done)?;
            done
        }
    })
}
