//! Users' operations on the links of forms: create, list and revoke. Every process may perform them, since they only change
//! documents in the store.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    DEFAULT_LIFETIME_MS, FormError, FormLink, Forms, LINK, MAX_LIFETIME_MS, MAX_LINKS, MAX_PREFILL_BYTES, MAX_TRIES,
    MAX_USES, TURN, code,
};
use crate::{FlowLibrary, Host, operate::documents::DocumentError};

/// The page of a link. The code follows behind `#`.
const PAGE: &str = "/console/form";

/// A link to create.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewForm {
    /// The name of the flow.
    pub flow: String,
    /// The lifetime in milliseconds. `None`: 7 days.
    pub lasts: Option<u64>,
    /// The maximum number of runs. `None`: one.
    pub uses: Option<u32>,
    /// Members of the input, an object.
    pub prefill: Value,
}

/// A link with its code, which is shown once.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatedForm {
    /// The link.
    #[serde(flatten)]
    pub link: FormLink,
    /// The code.
    pub code: String,
    /// The path of the page with the code, for the address of the server.
    pub path: String,
}

/// An operation on the links of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase")]
pub enum FormOperation {
    /// Creates a link.
    Create(NewForm),
    /// Lists the links with ids after this one, by page.
    List {
        /// The id. Empty: from the first one.
        after: String,
    },
    /// Revokes a link.
    Revoke {
        /// The id of the link.
        id: String,
    },
}

/// The name of a change in the audit log, and its subject.
pub type Change = (&'static str, String);

impl FormOperation {
    /// Performs the operation. Returns its result, and its name and subject in the audit log if it has changed something.
    pub fn perform(
        &self,
        host: &Host,
        library: &FlowLibrary,
        actor: &str,
    ) -> Result<(Value, Option<Change>), FormError> {
        match self {
            FormOperation::Create(new) => {
                let made = create(host, library, new, actor)?;
                let subject = format!("{} {}", made.link.id, made.link.flow);
                Ok((serde_json::to_value(made).unwrap_or_default(), Some(("form.create", subject))))
            }
            FormOperation::List { after } => {
                let (links, next) = Forms(host).page(after)?;
                let mut page = json!({ "forms": links });
                if let Some(next) = next {
                    page["next"] = next.into();
                }
                Ok((page, None))
            }
            FormOperation::Revoke { id } => {
                revoke(host, id)?;
                Ok((json!({ "done": true }), Some(("form.revoke", id.clone()))))
            }
        }
    }
}

/// Creates a link. The flow must exist, and the members must fit the limits and the flow. It may block for about 2 s.
pub fn create(host: &Host, library: &FlowLibrary, new: &NewForm, actor: &str) -> Result<CreatedForm, FormError> {
    let wrong = |why: String| Err(FormError::Request(why));
    let (lasts, uses) = (new.lasts.unwrap_or(DEFAULT_LIFETIME_MS), new.uses.unwrap_or(1));
    if !(1..=MAX_LIFETIME_MS).contains(&lasts) {
        return wrong("a link lasts for at least a millisecond and at most 90 days".to_owned());
    }
    if !(1..=MAX_USES).contains(&uses) {
        return wrong(format!("`uses` must be from 1 to {MAX_USES}"));
    }
    if !new.prefill.is_object() {
        return wrong("`prefill` must be an object".to_owned());
    }
    if new.prefill.to_string().len() > MAX_PREFILL_BYTES {
        return wrong(format!("`prefill` may have at most {} KiB", MAX_PREFILL_BYTES >> 10));
    }
    let created = host.now();
    let link = FormLink {
        id: hex::encode(rand::random::<[u8; 8]>()),
        flow: new.flow.clone(),
        created,
        ends: created.saturating_add(lasts),
        uses,
        used: 0,
        prefill: new.prefill.clone(),
        by: actor.to_owned(),
    };
    // The flow exists, can show a form, and can start with the members.
    Forms(host).shown(library, link.clone())?;
    Forms(host).check_prefill(library, &link)?;
    let code = code::new(host, &link)?;
    store(host, &link)?;
    Ok(CreatedForm { path: format!("{PAGE}#{code}"), code, link })
}

/// Stores a new link, if the tenant may have another one. Of several creations at the same time, one goes on at a time.
pub(super) fn store(host: &Host, link: &FormLink) -> Result<(), FormError> {
    let (forms, (kind, key)) = (Forms(host), TURN);
    for _ in 0..MAX_TRIES {
        let (turn, seen) = forms.documents().get::<u64>(kind, key)?.unwrap_or_default();
        if forms.count()? >= MAX_LINKS {
            return Err(FormError::TooMany);
        }
        // The link comes first, so that every later count has it.
        forms.documents().put(LINK, &link.id, Some(link), 0)?;
        if forms.documents().put(kind, key, Some(&(turn + 1)), seen)? {
            return Ok(());
        }
        revoke(host, &link.id)?;
    }
    Err(DocumentError::Changed("the links of forms".to_owned()).into())
}

/// Removes a link, so that its code opens nothing any more.
pub fn revoke(host: &Host, id: &str) -> Result<(), FormError> {
    let forms = Forms(host);
    for _ in 0..MAX_TRIES {
        let (_, version) = forms.find(id)?.ok_or_else(|| FormError::Unknown(id.to_owned()))?;
        if forms.documents().put::<FormLink>(LINK, id, None, version)? {
            return Ok(());
        }
    }
    Err(DocumentError::Changed(id.to_owned()).into())
}
