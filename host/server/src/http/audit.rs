//! The route that shows the audit log of a tenant to its administrators.

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::QueryParams,
    page::check_limit,
};
use flowcell_platform::tenants::{
    Tenants,
    audit::{self, AuditEntry},
};

/// The default number of entries in a page.
const DEFAULT_PAGE: usize = 100;
/// The maximum number of entries in a page.
pub(crate) const MAX_PAGE: usize = 500;

/// A page of the audit log.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// The `seq` of the entry before the page; by default 0. Without `after` and with `latest` the page has the last entries.
    after: Option<u64>,
    /// True for the page with the last entries.
    #[serde(default)]
    latest: bool,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// A page of the audit log.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditPage {
    /// The entries in order: `{ seq, ts, actor, action, subject, outcome, previous, hash }`. `actor` is the id of a token,
    /// `operator` or `host`.
    #[schema(value_type = Vec<Object>)]
    entries: Vec<AuditEntry>,
    /// The `after` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// The damage that the page shows, one sentence each: entries are missing, were changed, or do not follow the entry
    /// before. Empty: the entries are whole, and follow the entry before the page.
    damage: Vec<String>,
}

/// Show the audit log of the tenant by page
///
/// Each page checks its entries and that they follow the entry before it. So a client that reads all pages has checked the
/// whole log, apart from a lost end.
#[utoipa::path(get, path = "/v1/audit", tag = "tenant", operation_id = "show_audit", params(AuditQuery),
    responses((status = 200, body = AuditPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(
    request: Request,
    QueryParams(AuditQuery { after, latest, limit }): QueryParams<AuditQuery>,
) -> Result<Json<AuditPage>, ApiError> {
    let limit = check_limit(limit, DEFAULT_PAGE, MAX_PAGE)?;
    if latest && after.is_some() {
        return Err(ApiError::bad_request("`latest` and `after` exclude each other: leave one of them out"));
    }
    if after.is_some_and(|after| i64::try_from(after).is_err()) {
        return Err(ApiError::bad_request("`after` must be the `seq` of an entry or the `next` of a page"));
    }
    let page = request.blocking(move |request| {
        let (tenants, tenant) = (Tenants::of(&request.app.host), request.tenant().as_str());
        let after = match (after, latest) {
            (Some(after), _) => after,
            (None, false) => 0,
            (None, true) => audit::last_entry(&tenants, tenant)?.saturating_sub(limit as u64),
        };
        let (mut entries, damage) = audit::checked_page(&tenants, tenant, after, limit + 1)?;
        let next = (entries.len() > limit).then(|| entries[limit - 1].seq);
        entries.truncate(limit);
        Ok(AuditPage { entries, next, damage })
    });
    page.await.map(Json)
}
