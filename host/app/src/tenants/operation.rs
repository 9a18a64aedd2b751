//! What operators ask for: done by the process that owns the store, whoever asks.

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use super::{TenantError, Tenants, to_json};
use crate::policy::Policy;

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
    /// Look through what was done.
    VerifyAudit {
        /// In whose name.
        tenant: String,
        /// A hash that must be in it.
        head: Option<String>,
    },
}

impl Tenants {
    /// Does what an operator asks for, and tells what came of it.
    pub fn operate(&self, operation: &Operation) -> Result<Json, TenantError> {
        let done = Json::object([("done", Json::from(true))]);
        match operation {
            Operation::CreateTenant { name } => self.create(name).map(|()| done),
            Operation::ListTenants => to_json("tenants", &self.list()?),
            Operation::EnableTenant { name, enabled } => self.enable(name, *enabled).map(|()| done),
            Operation::Policy { name, set } => {
                set.iter().try_for_each(|policy| self.set_policy(name, policy))?;
                to_json("policy", &self.policy(name)?)
            }
            Operation::CreateToken { tenant, scopes, note, lasts } => {
                to_json("token", &self.create_token(tenant, scopes, note, *lasts)?)
            }
            Operation::ListTokens { tenant } => to_json("tokens", &self.tokens(tenant.as_deref())?),
            Operation::RevokeToken { id } => self.revoke_token(id).map(|()| done),
            Operation::Audit { tenant, after, limit } => to_json("audit", &self.audit(tenant, *after, *limit)?),
            Operation::VerifyAudit { tenant, head } => to_json("audit", &self.verify_audit(tenant, head.as_deref())?),
        }
    }
}
