//! The routes of the operators, which act on all tenants.

use std::sync::Arc;

use axum::{Json, http::StatusCode};
use flowcell_contract::Tenant;
use flowcell_runtime::{
    RunCommand,
    limits::{MAX_COUNT_READS, MAX_COUNTED},
    paging::{PAGE_BYTES, PageLimits},
    ports::{Filter, Group, RunRow},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::{Request, finish_detached},
    identity::Caller,
    intake::{Body, PathParam, QueryParams, parse_path_id},
    page::{check_limit, fill_page},
    runs::{self, RunPage, RunView},
    search::{RunCount, RunQuery, list_counts},
    steer::{Accepted, Nothing, send_command},
    usage::UsageView,
};
use flowcell_platform::{
    control,
    reload::Reloaded,
    tenants::{
        TenantRow, Tenants,
        across::{PageStart, RunPlace, RunsAcross},
    },
};

/// The number of tenants in a page, unless the request asks for another number.
pub(crate) const DEFAULT_PAGE_TENANTS: usize = 20;
/// The maximum number of tenants in a page. Each of them costs a count of its runs.
pub(crate) const MAX_PAGE_TENANTS: usize = 100;

/// The maximum number of tenants whose runs a request reads under one permit.
pub(crate) const MAX_TENANTS_READ: usize = 16;

/// A page of the list of tenants.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TenantQuery {
    /// The maximum number of tenants; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// A tenant, with its runs and its usage.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TenantView {
    name: String,
    /// The time of its creation, in milliseconds since 1970. Absent for `local` if it was not created.
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<u64>,
    /// True while the tenant's tokens are rejected, and none of its runs starts or continues.
    disabled: bool,
    /// True if the removal of the tenant has begun.
    being_removed: bool,
    /// The numbers of its runs by status, of the latest 10,000 runs that no other run has called.
    runs: Vec<RunCount>,
    /// True if the tenant has more than 10,000 runs.
    more_runs: bool,
    /// The use of today, and its limits.
    usage: UsageView,
    /// The maximum number of runs that have not ended. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_live_runs: Option<u32>,
}

const _: () = assert!(MAX_COUNTED == 10_000, "the documentation of `runs` names the limit");

/// A page of tenants.
#[derive(Serialize, ToSchema)]
pub(crate) struct TenantPage {
    /// The tenants by name.
    tenants: Vec<TenantView>,
    /// The `cursor` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A run, with its tenant.
#[derive(Serialize, ToSchema)]
pub(crate) struct TenantRun {
    tenant: String,
    #[serde(flatten)]
    run: RunView,
    /// The cursor of the page after this run.
    #[serde(skip)]
    place: String,
}

/// A page of runs of all tenants.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TenantRunPage {
    /// The runs, newest first.
    runs: Vec<TenantRun>,
    /// The `cursor` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The time to which the runs of all tenants were searched, in milliseconds since 1970. The page has it if the search of
    /// a tenant ended after 20,000 runs, and may then have fewer runs than `limit`, or none. `next` continues the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    searched_to: Option<u64>,
}

/// Whether the runs of a disabled tenant are cancelled.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Disabling {
    /// Cancel the runs that have not ended.
    #[serde(default)]
    stop: bool,
}

/// Returns the tenants of the store, by name. `local` is one of them, also if it was not created.
fn all_tenants(tenants: &Tenants) -> Result<Vec<(Tenant, Option<TenantRow>)>, ApiError> {
    let mut rows: Vec<_> =
        tenants.list()?.into_iter().map(|row| (Tenant::from(row.name.as_str()), Some(row))).collect();
    if rows.iter().all(|(tenant, _)| *tenant != Tenant::local()) {
        rows.push((Tenant::local(), None));
    }
    rows.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
    Ok(rows)
}

fn tenant_view(request: &Request, tenant: &Tenant, row: Option<TenantRow>) -> Result<TenantView, ApiError> {
    let app = &request.app;
    let counts = request.runs()?.count(tenant, &Filter::default(), &Group::Status, MAX_COUNT_READS)?;
    let policy = app.identity.policy(tenant)?;
    let usage = UsageView::new(app.host.usage().of_today(tenant)?, policy.per_day);
    Ok(TenantView {
        name: tenant.to_string(),
        created: row.as_ref().map(|row| row.created),
        disabled: row.as_ref().is_some_and(|row| row.disabled),
        being_removed: row.is_some_and(|row| row.being_removed),
        more_runs: counts.more,
        runs: list_counts(counts),
        usage,
        max_live_runs: policy.max_live_runs,
    })
}

/// List the tenants with the numbers of their runs and their usage
#[utoipa::path(get, path = "/v1/admin/tenants", tag = "admin", operation_id = "list_tenants", params(TenantQuery),
    responses((status = 200, body = TenantPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn tenants(
    request: Request,
    QueryParams(TenantQuery { limit, cursor }): QueryParams<TenantQuery>,
) -> Result<Json<TenantPage>, ApiError> {
    let items = check_limit(limit, DEFAULT_PAGE_TENANTS, MAX_PAGE_TENANTS)?;
    let page = request
        .reading(move |request| {
            let all = all_tenants(&Tenants::of(&request.app.host))?;
            let follows = |tenant: &Tenant| cursor.as_deref().is_none_or(|cursor| tenant.as_str() > cursor);
            let mut rest = all.into_iter().filter(|(tenant, _)| follows(tenant)).peekable();
            let page: Vec<_> = rest.by_ref().take(items).collect();
            let next = rest.peek().and(page.last()).map(|(tenant, _)| tenant.to_string());
            let views = page.into_iter().map(|(tenant, row)| tenant_view(request, &tenant, row));
            Ok(TenantPage { tenants: views.collect::<Result<_, _>>()?, next })
        })
        .await?;
    Ok(Json(page))
}

/// List the runs of all tenants, newest first
///
/// The filters are those of `/v1/runs`, without `countBy`. The ids of `parent` and `retryOf` are looked up in each tenant.
#[utoipa::path(get, path = "/v1/admin/runs", tag = "admin", operation_id = "list_runs_of_all_tenants",
    params(RunQuery), responses((status = 200, body = TenantRunPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn all_runs(
    request: Request,
    QueryParams(mut query): QueryParams<RunQuery>,
) -> Result<Json<TenantRunPage>, ApiError> {
    if query.group()?.is_some() {
        let why = "`countBy` counts the runs of one tenant: use `/v1/admin/tenants/TENANT/runs`";
        return Err(ApiError::bad_request(why));
    }
    let wrong = || ApiError::bad_request("`cursor` must be the `next` of a page of `/v1/admin/runs`");
    let start = query.take_cursor().map(|cursor| PageStart::parse(&cursor).ok_or_else(wrong)).transpose()?;
    let items = query.page_size()?;
    let filter = query.into_filter()?;
    let all = request.clone().blocking(|request| all_tenants(&Tenants::of(&request.app.host))).await?;
    let all: Vec<_> = all.into_iter().map(|(tenant, _)| tenant).collect();
    let mut list = RunsAcross::new(filter, start);
    // Each part gives its permit back, so that other requests get their turns between two parts.
    for some in all.chunks(MAX_TENANTS_READ).map(<[Tenant]>::to_vec) {
        let part = request.clone().reading(move |request| {
            list.read(request.runs()?, &some)?;
            Ok(list)
        });
        list = part.await?;
    }
    let (found, searched_to) = list.into_page();
    let most = PageLimits { items, bytes: PAGE_BYTES };
    let view = |(tenant, row): &(Tenant, RunRow)| {
        let place = RunPlace { created: row.created, tenant: tenant.clone(), run: row.run_id.clone() };
        TenantRun { tenant: tenant.to_string(), run: RunView::from_row(row), place: place.to_text() }
    };
    let (runs, next) = fill_page(found.iter().map(view), most, |run| run.place.clone());
    // A page that was cut for its size goes on after its last run.
    let searched_to = searched_to.filter(|_| next.is_none());
    let next = next.or_else(|| searched_to.map(|to| PageStart::At(to).to_text()));
    Ok(Json(TenantRunPage { runs, next, searched_to }))
}

/// Returns the request as one of a tenant.
async fn request_for(request: Request, tenant: String) -> Result<Request, ApiError> {
    let found = request.clone().blocking(move |request| {
        let tenant = Tenant::from(tenant);
        Ok(Tenants::of(&request.app.host).host(&tenant)?)
    });
    let host = found.await?;
    let caller =
        Caller { tenant: host.tenant().clone(), policy: Arc::new(host.policy().clone()), ..request.caller.clone() };
    Ok(Request { host, caller, ..request })
}

/// List the runs of a tenant, newest first
///
/// As `/v1/runs` for a token of the tenant.
#[utoipa::path(get, path = "/v1/admin/tenants/{tenant}/runs", tag = "admin", operation_id = "list_runs_of_tenant",
    params(("tenant" = String, Path,), RunQuery),
    responses((status = 200, body = RunPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn tenant_runs(
    request: Request,
    PathParam(tenant): PathParam<String>,
    query: QueryParams<RunQuery>,
) -> Result<Json<RunPage>, ApiError> {
    runs::list(request_for(request, tenant).await?, query).await
}

/// Returns the tenants. Their audit logs name the caller's token as the actor.
pub(crate) fn tenants_as(request: &Request) -> Tenants {
    let tenants = Tenants::of(&request.app.host);
    match &request.caller.token {
        Some(token) => tenants.acting_as(token),
        None => tenants,
    }
}

/// Accept the tokens of a tenant again, and resume its runs
#[utoipa::path(post, path = "/v1/admin/tenants/{tenant}/enable", tag = "admin", operation_id = "enable_tenant",
    params(("tenant" = String, Path,)), request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn enable(
    request: Request,
    PathParam(tenant): PathParam<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Value>, ApiError> {
    let app = request.app.clone();
    let enabled = request.blocking(move |request| Ok(tenants_as(request).enable(&tenant, true)?));
    finish_detached(enabled).await?;
    app.admission.ready_signal().notify_one();
    Ok(Json(json!({ "done": true })))
}

/// Refuse the tokens of a tenant, and neither start nor resume its runs
///
/// With `stop`, cancel its runs that have not ended, and answer with `{ cancelled, notCancelled }`. Otherwise the answer has
/// the number of these runs, `liveRuns`, counted up to 10,000.
#[utoipa::path(post, path = "/v1/admin/tenants/{tenant}/disable", tag = "admin", operation_id = "disable_tenant",
    params(("tenant" = String, Path,)), request_body(content = Disabling, description = "optional"),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn disable(
    request: Request,
    PathParam(tenant): PathParam<String>,
    Body(Disabling { stop }): Body<Disabling>,
) -> Result<Json<Value>, ApiError> {
    finish_detached(async move {
        let (app, tenants) = (request.app.clone(), tenants_as(&request));
        if stop {
            let stopped = control::stop_tenant_as(&tenants, &app.host, &tenant).await?;
            app.admission.ready_signal().notify_one();
            return Ok(Json(serde_json::to_value(&stopped).map_err(ApiError::internal)?));
        }
        let live = request
            .blocking(move |request| {
                tenants.enable(&tenant, false)?;
                Ok(request.runs()?.live(&Tenant::from(tenant), MAX_COUNTED as u64)?)
            })
            .await?;
        Ok(Json(json!({ "done": true, "liveRuns": live })))
    })
    .await
}

/// Cancel a run of a tenant
#[utoipa::path(post, path = "/v1/admin/tenants/{tenant}/runs/{id}/cancel", tag = "admin",
    operation_id = "cancel_run_of_tenant", params(("tenant" = String, Path,), ("id" = String, Path,)),
    request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn cancel(
    request: Request,
    PathParam((tenant, id)): PathParam<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Accepted>, ApiError> {
    let run = parse_path_id(&id)?;
    let of_tenant = request_for(request, tenant).await?;
    finish_detached(async move {
        send_command(&of_tenant, &run, RunCommand::Cancel).await?;
        of_tenant.write_audit_entry("run.cancel", run.to_string()).await?;
        Ok(Json(Accepted::new(&run)))
    })
    .await
}

/// Read packs, flows and triggers again, as `flowcell reload`
///
/// Reads the packs of the server, the flows of `local` and the triggers of all tenants. The answer is 200 also if something
/// cannot be read or a flow is broken: see `errors` and `flows.broken`. If packs cannot be used, `packs` is null, and the
/// earlier packs stay in use. While another reload is under way, the answer is 409 `reload_running`. The audit log gets its
/// entry first: while the store does not answer (503), nothing is read.
#[utoipa::path(post, path = "/v1/admin/reload", tag = "admin", operation_id = "reload",
    request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Reloaded), (status = "default", body = ErrorBody)))]
pub(crate) async fn reload(request: Request, Body(Nothing {}): Body<Nothing>) -> Result<Json<Reloaded>, ApiError> {
    finish_detached(async move {
        let app = request.app.clone();
        let Some(turn) = app.reloader.try_turn() else {
            let why = "another reload of this process is under way; try again when it has ended";
            return Err(ApiError::new(StatusCode::CONFLICT, "reload_running", why));
        };
        request.write_audit_entry("server.reload", "packs, flows and triggers".to_owned()).await?;
        let reloaded = turn.reload().await;
        reloaded.log();
        Ok(Json(reloaded))
    })
    .await
}
