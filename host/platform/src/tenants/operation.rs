//! What operators ask for: done by the process that owns the store, whoever asks.

use std::path::{Path, PathBuf};

use flowcell_contract::{Json, Tenant};
use serde::{Deserialize, Serialize};

use super::{OPERATOR, TenantError, Tenants, audit::Outcome};
use crate::{
    FlowLibrary,
    drive::triggers::operation::{Act, TriggerDesk},
    files::operation::Deed,
    operate::{documents::to_json, policy::Policy, vault::Hidden},
};

/// Something that an operator asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Operation {
    /// Make a tenant.
    CreateTenant {
        /// Its name.
        name: String,
    },
    /// Tell all tenants.
    ListTenants,
    /// Let the tokens of a tenant in, or nobody.
    EnableTenant {
        /// Its name.
        name: String,
        /// Whether its tokens let somebody in.
        enabled: bool,
    },
    /// Tell what a tenant may do, or set it.
    Policy {
        /// Which tenant.
        name: String,
        /// What it may do from now on.
        set: Option<Policy>,
    },
    /// Tell what a tenant has used up today.
    Usage {
        /// Which tenant.
        name: String,
    },
    /// Make a token.
    CreateToken {
        /// Whom it lets in.
        tenant: String,
        /// What it allows.
        scopes: Vec<String>,
        /// What it is for.
        note: String,
        /// For how long, in milliseconds; none: for ever.
        lasts: Option<u64>,
    },
    /// Tell the tokens.
    ListTokens {
        /// Only those of this tenant.
        tenant: Option<String>,
    },
    /// Let a token open nothing any more.
    RevokeToken {
        /// Its name.
        id: String,
    },
    /// Tell what was done.
    Audit {
        /// In whose name.
        tenant: String,
        /// After this entry.
        after: u64,
        /// At most so many.
        limit: usize,
    },
    /// See the triggers of a tenant's flows, or change one.
    Trigger {
        /// Whose flows.
        tenant: String,
        /// The folder with the flows of `local`.
        folder: PathBuf,
        /// Of which flow, and which; none: all.
        trigger: Option<(String, String)>,
        /// What is done with it; none: it is shown.
        act: Option<Act>,
    },
    /// Look through what was done.
    VerifyAudit {
        /// In whose name.
        tenant: String,
        /// A hash that must be in it.
        head: Option<String>,
    },
    /// Set a secret.
    SetSecret {
        /// Whose.
        tenant: String,
        /// Its name.
        name: String,
        /// What it is.
        value: Hidden,
        /// The servers that it may be sent to.
        origins: Vec<String>,
    },
    /// Tell the secrets, without what they are.
    ListSecrets {
        /// Whose.
        tenant: String,
    },
    /// Remove a secret.
    RemoveSecret {
        /// Whose.
        tenant: String,
        /// Its name.
        name: String,
    },
    /// See the files of a tenant, or change them.
    File {
        /// Whose.
        tenant: String,
        /// What is done.
        deed: Deed,
    },
    /// Rewrite all secrets under a new key.
    RotateSecretKey {
        /// The new key; none: one is made beside the store.
        key: Option<Hidden>,
    },
}

impl Tenants {
    /// Does what an operator asks for, and tells what came of it.
    pub fn operate(&self, operation: &Operation) -> Result<Json, TenantError> {
        let done = Json::object([("done", Json::from(true))]);
        match operation {
            Operation::CreateTenant { name } => self.create(name).map(|()| done),
            Operation::ListTenants => Ok(to_json("tenants", &self.list()?)?),
            Operation::EnableTenant { name, enabled } => self.enable(name, *enabled).map(|()| done),
            Operation::Policy { name, set } => {
                set.iter().try_for_each(|policy| self.set_policy(name, policy))?;
                Ok(to_json("policy", &self.policy(name)?)?)
            }
            Operation::Usage { name } => Ok(to_json("usage", &self.used(name)?)?),
            Operation::CreateToken { tenant, scopes, note, lasts } => {
                Ok(to_json("token", &self.create_token(tenant, scopes, note, *lasts)?)?)
            }
            Operation::ListTokens { tenant } => Ok(to_json("tokens", &self.tokens(tenant.as_deref())?)?),
            Operation::RevokeToken { id } => self.revoke_token(id).map(|()| done),
            Operation::Audit { tenant, after, limit } => Ok(to_json("audit", &self.audit(tenant, *after, *limit)?)?),
            Operation::Trigger { tenant, folder, trigger, act } => {
                Ok(to_json("triggers", &self.trigger(tenant, folder, trigger.as_ref(), act.as_ref())?)?)
            }
            Operation::SetSecret { tenant, name, value, origins } => {
                let row = self.vault().set(&self.known(tenant)?, OPERATOR, name, value.text(), origins)?;
                Ok(to_json("secret", &row)?)
            }
            Operation::ListSecrets { tenant } => Ok(to_json("secrets", &self.vault().list(&self.known(tenant)?)?)?),
            Operation::RemoveSecret { tenant, name } => {
                self.vault().remove(&self.known(tenant)?, OPERATOR, name)?;
                Ok(done)
            }
            Operation::File { tenant, deed } => Ok(self.host.of(self.known(tenant)?).files().operate(deed)?),
            Operation::RotateSecretKey { key } => {
                let rotated = self.vault().rotate(&self.owners()?, OPERATOR, key.as_ref().map(Hidden::text))?;
                Ok(to_json("rotated", &rotated)?)
            }
            Operation::VerifyAudit { tenant, head } => {
                Ok(to_json("audit", &self.verify_audit(tenant, head.as_deref())?)?)
            }
        }
    }

    /// Shows the triggers of a tenant, or one, or does something with it.
    fn trigger(
        &self,
        tenant: &str,
        folder: &Path,
        trigger: Option<&(String, String)>,
        act: Option<&Act>,
    ) -> Result<serde_json::Value, TenantError> {
        let tenant = Tenant::from(tenant);
        if tenant != Tenant::local() {
            self.tenant(tenant.as_str())?;
        }
        let host = self.host.of(tenant.clone());
        let desk = TriggerDesk::new(&host, FlowLibrary::of_tenant(folder, &tenant));
        Ok(match (trigger, act) {
            (None, _) => desk.list()?.into(),
            (Some((flow, id)), None) => desk.show(flow, id)?,
            (Some((flow, id)), Some(act)) => {
                let done = desk.act(flow, id, act)?;
                self.note(tenant.as_str(), act.name(), &format!("{flow}/{id}"), Outcome::Done)?;
                done
            }
        })
    }
}
