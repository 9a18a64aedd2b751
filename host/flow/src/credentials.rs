//! Checks the credentials that a flow grants to a node, and joins them with the declarations of the node type.

use std::sync::Arc;

use flowcell_contract::{CREDENTIALS, CredentialGrant, Grants, Json, NodeType, written_credentials};

use crate::{
    CheckContext,
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    yaml::{Kind, Span, Tree},
};

/// Checks `grants.credentials` of a node, and returns it as the graph keeps it: a list of [`CredentialGrant`]s.
pub(crate) fn read(
    grant: &Tree,
    kind: &NodeType,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Json {
    let pairs = match written_credentials(&grant.json()) {
        Ok(pairs) => pairs,
        Err(why) => {
            diagnostics.error("wrong_grant", grant.span, format!("`grants.{CREDENTIALS}`: {why}"), None);
            return Json::array([]);
        }
    };
    let spans = spans(grant);
    let joined = pairs.into_iter().enumerate().map(|(at, (name, credential))| {
        let span = spans.get(at).copied().unwrap_or(grant.span);
        let request = kind.credentials.iter().find(|request| request.name == name);
        if request.is_none() && !kind.credentials.is_empty() {
            let names = kind.credentials.iter().map(|request| &*request.name);
            let message = format!("`{}` declares no credential `{}`", kind.name, for_message(&name));
            let declared = names.clone().collect::<Vec<_>>().join("`, `");
            let help = did_you_mean(&name, names).unwrap_or_else(|| format!("it declares `{declared}`"));
            diagnostics.error("unknown_credential", span, message, Some(help));
        }
        let grant = CredentialGrant::new(name, credential, request);
        check(&grant, span, context, diagnostics);
        grant.to_json()
    });
    Json::array(joined.collect::<Vec<_>>())
}

/// Checks the default grants of credentials.
pub(crate) fn check_default(grant: &Tree, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) {
    match written_credentials(&grant.json()) {
        Ok(pairs) => {
            let spans = spans(grant);
            for (at, (name, credential)) in pairs.into_iter().enumerate() {
                let span = spans.get(at).copied().unwrap_or(grant.span);
                check(&CredentialGrant::new(name, credential, None), span, context, diagnostics);
            }
        }
        Err(why) => diagnostics.error("wrong_grant", grant.span, format!("`grants.{CREDENTIALS}`: {why}"), None),
    }
}

/// Returns default grants of credentials as the graph keeps them, without any check. Wrong ones are left out.
pub(crate) fn from_defaults(grant: &Json) -> Json {
    let pairs = written_credentials(grant).unwrap_or_default();
    Json::array(pairs.into_iter().map(|(name, credential)| CredentialGrant::new(name, credential, None).to_json()))
}

/// Reports the declared credentials that a node needs and the flow does not grant.
pub(crate) fn check_missing(grants: &Grants, kind: &NodeType, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let granted = grants.0.get(CREDENTIALS).and_then(Json::as_array).unwrap_or_default();
    let has = |name: &str| granted.iter().any(|item| item.get("name").and_then(Json::as_str) == Some(name));
    for request in kind.credentials.iter().filter(|request| !request.optional && !has(&request.name)) {
        let reason = request.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let message = format!("`{}` needs the credential `{}` ({}){reason}", kind.name, request.name, request.kind);
        let name: &Arc<str> = &request.name;
        let help = format!("add `grants: {{ {CREDENTIALS}: [{name}] }}` to the node, or `{{ {name}: NAME }}`");
        diagnostics.error("missing_credential", span, message, Some(help));
    }
}

fn check(grant: &CredentialGrant, span: Span, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) {
    if let Err(why) = context.check_grant(CREDENTIALS, &grant.to_json()) {
        diagnostics.error("wrong_grant", span, format!("`grants.{CREDENTIALS}`: {why}"), None);
    } else if let Some(why) = context.locked_credential(&grant.credential) {
        diagnostics.warning("locked_credential", span, why, None);
    }
}

/// Returns the places of the granted credentials.
fn spans(grant: &Tree) -> Vec<Span> {
    match &grant.kind {
        Kind::List(items) => items.iter().map(|item| item.span).collect(),
        Kind::Map(entries) => entries.iter().map(|entry| entry.value.span).collect(),
        _ => vec![grant.span],
    }
}
