//! The request of `flowcell console`: how a browser reaches the console, and a code for its login.

use serde::{Deserialize, Serialize};

use super::{Driver, OwnerReply, refusal};
use crate::{
    Host,
    operate::{documents::to_json, identity::Identify},
    tenants::{Tenants, callers::Callers, login},
};

/// How a browser reaches the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleAccess {
    /// The scheme, the name and the port by which a browser reaches the server.
    pub origin: String,
    /// The one-time code of the login. `None` if the server requires no tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// Answers the request in the process that owns the store.
pub(super) fn answer(host: &Host, owner: &dyn Driver, tenant: Option<&str>, scopes: &[String]) -> OwnerReply {
    let Some(origin) = owner.origin() else {
        let why = "the process that owns the store serves no HTTP; stop it, and start `flowcell serve`";
        return refusal("not_served", &why);
    };
    let is_asked = match Callers::of(host) {
        Ok(callers) => callers.asks_for_tokens(),
        Err(error) => return refusal(error.code(), &error),
    };
    let code = match (is_asked, tenant) {
        (false, None) => None,
        (true, None) => {
            let why = "this server has tenants: name the one to log in as with `--tenant NAME`";
            return refusal("tenant_required", &why);
        }
        (_, Some(tenant)) => match login::create_code(&Tenants::of(host), tenant, scopes) {
            Ok(code) => Some(code),
            Err(error) => return refusal(error.code(), &error),
        },
    };
    match to_json("console", &ConsoleAccess { origin, code }) {
        Ok(result) => OwnerReply::Operated { result },
        Err(error) => refusal("internal", &error),
    }
}
