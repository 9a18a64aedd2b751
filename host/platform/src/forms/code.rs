//! The code of a link: the tenant, the id and the end of the link, and a signature with a key of the tenant.

use flowcell_contract::Tenant;
use serde::{Deserialize, Serialize};

use super::{FormError, FormLink};
use crate::{Host, operate::vault::signing::SignedText};

/// Maximum length of a code.
pub const MAX_CODE_BYTES: usize = 512;
const CODE: SignedText = SignedText { prefix: "fcf_", purpose: "flowcell form link 1", most: MAX_CODE_BYTES };

/// The signed content of a code.
#[derive(Serialize, Deserialize)]
struct Content {
    tenant: String,
    id: String,
    ends: u64,
}

/// Returns the code of a link of the host's tenant.
pub(super) fn new(host: &Host, link: &FormLink) -> Result<String, FormError> {
    let content = Content { tenant: host.tenant().to_string(), id: link.id.clone(), ends: link.ends };
    Ok(CODE.sign(host.vault(), host.tenant(), &content)?)
}

/// Returns the tenant, the id and the end of the link of a code, if the tenant has signed it. `is_enabled` tells whether a
/// tenant has links now.
pub(super) fn open(
    host: &Host,
    code: &str,
    is_enabled: impl FnOnce(&Tenant) -> bool,
) -> Result<(Tenant, String, u64), FormError> {
    let unchecked = CODE.parse::<Content>(code).ok_or(FormError::Invalid)?;
    let tenant = Tenant::from(unchecked.content.tenant.as_str());
    if !is_enabled(&tenant) {
        return Err(FormError::Invalid);
    }
    let content = unchecked.check(host.vault(), &tenant)?.ok_or(FormError::Invalid)?;
    Ok((tenant, content.id, content.ends))
}
