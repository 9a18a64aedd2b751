//! The code of a link: the tenant, the id and the end of the link, and a signature with a key of the tenant.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use flowcell_contract::Tenant;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{FormError, FormLink};
use crate::{Host, operate::vault::signing};

/// Maximum length of a code.
pub const MAX_CODE_BYTES: usize = 512;
/// The prefix of every code.
const PREFIX: &str = "fcf_";
/// The purpose of the key that signs codes.
const PURPOSE: &str = "flowcell form link 1";

/// The signed content of a code.
#[derive(Serialize, Deserialize)]
struct Content {
    /// The number of the data key.
    key: String,
    tenant: String,
    id: String,
    ends: u64,
}

/// Returns the code of a link of the host's tenant.
pub(super) fn new(host: &Host, link: &FormLink) -> Result<String, FormError> {
    let (key, signs) = signing::new_key(host.vault(), host.tenant(), PURPOSE)?;
    let content = Content { key, tenant: host.tenant().to_string(), id: link.id.clone(), ends: link.ends };
    let json = serde_json::to_vec(&content).unwrap_or_default();
    let signed = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json));
    let tag = hmac::sign(&signs, signed.as_bytes());
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag)))
}

/// Returns the tenant, the id and the end of the link of a code, if the tenant has signed it.
///
/// The content is not signed before the check of its signature. Until then it selects only a tenant that `is_enabled` knows, and
/// a data key of this tenant.
pub(super) fn open(
    host: &Host,
    code: &str,
    is_enabled: impl FnOnce(&Tenant) -> bool,
) -> Result<(Tenant, String, u64), FormError> {
    let (content, signed, tag) = parse(code).ok_or(FormError::Invalid)?;
    let tenant = Tenant::from(content.tenant.as_str());
    if !is_enabled(&tenant) {
        return Err(FormError::Invalid);
    }
    let key = signing::earlier_key(host.vault(), &tenant, &content.key, PURPOSE)?;
    // The comparison takes the same time for each wrong signature.
    match key.is_some_and(|key| hmac::verify(&key, signed.as_bytes(), &tag).is_ok()) {
        true => Ok((tenant, content.id, content.ends)),
        false => Err(FormError::Invalid),
    }
}

/// Returns the content of a code, its signed part, and its signature, which is not checked.
fn parse(code: &str) -> Option<(Content, &str, Vec<u8>)> {
    if code.len() > MAX_CODE_BYTES {
        return None;
    }
    let (signed, tag) = code.split_once('.')?;
    let json = URL_SAFE_NO_PAD.decode(signed.strip_prefix(PREFIX)?).ok()?;
    Some((serde_json::from_slice(&json).ok()?, signed, URL_SAFE_NO_PAD.decode(tag).ok()?))
}
