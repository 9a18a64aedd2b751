//! Forms: the routes that create, list and revoke links by which people start a flow, and the routes of these links. The
//! latter need no token, since the code of a link is signed.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
};
use flowcell_contract::RunId;
use flowcell_platform::{
    forms::{
        self, FormError, FormLink, FormStart, Forms,
        operation::{self, NewForm},
    },
    shape::time,
    supervisor::Overflow,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::{App, Request, finish_detached},
    auth_rate_limiter::ClientAddr,
    identity::{AuthError, Scope},
    intake::{Body, PathParam, QueryParams},
    links,
    permit::RequestPermit,
    steer::Accepted,
};
use crate::blocking::blocking;

/// The maximum number of characters of the key of a sent form.
const MAX_KEY_CHARS: usize = 256;
/// The number of looks for a run that another process starts for the same request, and the interval between them.
const MAX_LOOKS: u32 = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A link to create.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FormToCreate {
    /// The name of a stored flow.
    flow: String,
    /// The lifetime in milliseconds, at most 90 days. Default: 7 days.
    #[schema(minimum = 1, maximum = 7_776_000_000_u64)]
    expires_in_ms: Option<u64>,
    /// The number of runs that the link may start. Default: one.
    #[schema(minimum = 1, maximum = 100_000)]
    uses: Option<u32>,
    /// Members of the input, at most 16 KiB, which the form shows and a person may change. Each must fit the `inputSchema`.
    #[schema(value_type = Option<Object>)]
    prefill: Option<Map<String, Value>>,
}

/// A new link. No other answer has its code.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreatedLink {
    #[serde(flatten)]
    link: FormLink,
    /// The code, which opens the form.
    code: String,
    /// The path of the page with the code, for the address of the server.
    path: String,
}

/// A page of the tenant's links.
#[derive(Serialize, ToSchema)]
pub(crate) struct FormPage {
    /// The links by id, without their codes.
    forms: Vec<FormLink>,
    /// The `cursor` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The place of a page.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FormCursor {
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// The code of a form to show.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FormCode {
    /// The code of the link: the part of its URL behind `#`.
    code: String,
    /// The `once` of a form that was sent. The form is shown again also if it has used the link up.
    #[schema(max_length = 256)]
    once: Option<String>,
}

/// The input of a person with a link.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FormInput {
    /// The code of the link: the part of its URL behind `#`.
    code: String,
    /// Members of the input; they take precedence over those of the link.
    #[serde(default)]
    #[schema(value_type = Object)]
    input: Map<String, Value>,
    /// A text that is new for each form: requests with the same one and the same input start one run.
    #[schema(max_length = 256)]
    once: Option<String>,
}

impl From<FormError> for ApiError {
    fn from(error: FormError) -> ApiError {
        let of = |status| ApiError::new(status, error.code(), &error);
        match error {
            FormError::Invalid | FormError::Unknown(_) => of(StatusCode::NOT_FOUND),
            FormError::Ended(at) => {
                let why = format!("the link ended at {}; ask the person who sent it for a new one", time(at));
                ApiError::new(StatusCode::GONE, "link_ended", why).with_details(json!({ "endedAt": at }))
            }
            FormError::Used => of(StatusCode::GONE),
            FormError::OtherInput(_) | FormError::TooMany => of(StatusCode::CONFLICT),
            FormError::Request(why) => ApiError::bad_request(why),
            FormError::Prefill(ref unfit) => {
                of(StatusCode::UNPROCESSABLE_ENTITY).with_details(json!({ "findings": unfit.findings() }))
            }
            FormError::Flow(error) => error.into(),
            FormError::Start(error) => error.into(),
            FormError::Key(error) => error.into(),
            error @ FormError::Document(_) => ApiError::unavailable(&error),
        }
    }
}

/// Create a link by which people without a login start a flow
///
/// A person opens `path` at the address of the server, fills the form of the flow's `inputSchema` in, and sends it. The answer
/// alone has the code.
#[utoipa::path(post, path = "/v1/forms", tag = "forms", operation_id = "create_form", request_body = FormToCreate,
    responses((status = 201, body = CreatedLink), (status = "default", body = ErrorBody)))]
pub(crate) async fn create(request: Request, Body(new): Body<FormToCreate>) -> Result<impl IntoResponse, ApiError> {
    let FormToCreate { flow, expires_in_ms, uses, prefill } = new;
    let new = NewForm { flow, lasts: expires_in_ms, uses, prefill: prefill.unwrap_or_default().into() };
    let made = request
        .clone()
        .computing(move |request| Ok(operation::create(&request.host, &request.flows(), &new, request.actor())?));
    let made = made.await?;
    request.write_audit_entry("form.create", format!("{} {}", made.link.id, made.link.flow)).await?;
    let headers =
        [(header::LOCATION, format!("/v1/forms/{}", made.link.id)), (header::CACHE_CONTROL, "no-store".to_owned())];
    let created = CreatedLink { link: made.link, code: made.code, path: made.path };
    Ok((StatusCode::CREATED, headers, Json(created)))
}

/// List the links of forms by page
///
/// A page has at most 100 links. Links that have ended may be missing.
#[utoipa::path(get, path = "/v1/forms", tag = "forms", operation_id = "list_forms", params(FormCursor),
    responses((status = 200, body = FormPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(
    request: Request,
    QueryParams(FormCursor { cursor }): QueryParams<FormCursor>,
) -> Result<Json<FormPage>, ApiError> {
    let page = request.blocking(move |request| Ok(Forms(&request.host).page(&cursor.unwrap_or_default())?));
    let (forms, next) = page.await?;
    Ok(Json(FormPage { forms, next }))
}

/// Revoke a link: its code opens nothing any more
#[utoipa::path(delete, path = "/v1/forms/{form}", tag = "forms", operation_id = "revoke_form",
    params(("form" = String, Path,)),
    responses((status = 204, description = "revoked"), (status = "default", body = ErrorBody)))]
pub(crate) async fn revoke(request: Request, PathParam(id): PathParam<String>) -> Result<StatusCode, ApiError> {
    let form = id.clone();
    request.clone().blocking(move |request| Ok(operation::revoke(&request.host, &form)?)).await?;
    request.write_audit_entry("form.revoke", id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Show the form of a link
///
/// The answer has `flow`, `description`, `schema`, whose defaults are the values of the link, `linkEnds` in milliseconds since
/// 1970, and `usesLeft`. Nothing changes, so a form can be shown again and again.
#[utoipa::path(post, path = "/v1/links/form", tag = "forms", request_body = FormCode,
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn show_linked_form(
    State(app): State<Arc<App>>,
    from: Option<Extension<ClientAddr>>,
    Body(FormCode { code, once }): Body<FormCode>,
) -> Result<Json<Value>, ApiError> {
    check_key(once.as_deref())?;
    let OpenForm { request, link, _permit } = OpenForm::open(&app, from, code).await?;
    let shown = request.computing(move |request| {
        let forms = Forms(&request.host);
        let is_counted = || once.as_deref().map_or(Ok(false), |once| forms.has_counted(&link, once));
        if link.used >= link.uses && !is_counted()? {
            return Err(FormError::Used.into());
        }
        Ok(forms.shown(&request.flows(), link)?)
    });
    let shown = shown.await?;
    Ok(Json(json!({
        "flow": shown.link.flow,
        "description": shown.description,
        "schema": shown.schema,
        "linkEnds": shown.link.ends,
        "usesLeft": shown.link.uses.saturating_sub(shown.link.used),
    })))
}

/// Start the flow of a link with the input of a form
///
/// The use of the link counts once the input fits the flow. A request with the same `once` and `input` starts no second run,
/// and one with another `input` gets 409 `idempotency_conflict`.
#[utoipa::path(post, path = "/v1/links/form/start", tag = "forms", request_body = FormInput,
    responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn start_by_link(
    State(app): State<Arc<App>>,
    from: Option<Extension<ClientAddr>>,
    Body(FormInput { code, input, once }): Body<FormInput>,
) -> Result<Json<Accepted>, ApiError> {
    check_key(once.as_deref())?;
    let open = OpenForm::open(&app, from, code).await?;
    app.require_store()?;
    let once = once.unwrap_or_else(forms::new_key);
    finish_detached(async move { open.start(input.into(), once).await }).await
}

fn check_key(once: Option<&str>) -> Result<(), ApiError> {
    match once.is_some_and(|once| once.chars().count() > MAX_KEY_CHARS) {
        true => Err(ApiError::bad_request(format!("`once` may have at most {MAX_KEY_CHARS} characters"))),
        false => Ok(()),
    }
}

/// A request with a link whose code is right.
struct OpenForm {
    request: Request,
    link: FormLink,
    /// A place among the requests of the tenant, until the answer.
    _permit: Arc<RequestPermit>,
}

impl OpenForm {
    /// Opens a code. A code that is not signed by this store, and a link that was revoked, get the same error, and count as a
    /// guess of their address.
    async fn open(app: &Arc<App>, from: Option<Extension<ClientAddr>>, code: String) -> Result<OpenForm, ApiError> {
        let from: Option<IpAddr> = from.map(|Extension(ClientAddr(from))| from);
        let (host, identity) = (app.host.clone(), app.identity.clone());
        let look_up = async {
            let found = blocking(move || forms::open(&host, &code, |tenant| identity.tenants().contains(tenant)));
            match found.await.map_err(|_| AuthError::Unavailable)? {
                Err(FormError::Invalid) => Err(AuthError::Unknown),
                found => Ok(found),
            }
        };
        let found = app.failures.limited(from, "link", look_up).await.map_err(|error| match error.status() {
            StatusCode::UNAUTHORIZED => FormError::Invalid.into(),
            _ => error,
        });
        let (tenant, link) = found??;
        let (request, permit) = links::request_of(app, tenant, Scope::RunCreate, link.name().into()).await?;
        Ok(OpenForm { request, link, _permit: permit })
    }

    /// Starts the run. A run that is not admitted gives the use of the link back.
    async fn start(self, input: Value, once: String) -> Result<Json<Accepted>, ApiError> {
        let OpenForm { request, link, _permit } = self;
        let run = link.run(&once);
        let app = request.app.clone();
        let _alone = app.lock_start(request.tenant(), &run).await;
        let of = link.clone();
        let begun = request
            .clone()
            .computing(move |request| Ok(Forms(&request.host).start(&request.flows(), &of, input, &once)?));
        let runner = match begun.await? {
            FormStart::New(runner) => runner,
            FormStart::Known(_) => return Ok(Json(Accepted::new(&run))),
            FormStart::Underway(_, digest) => return wait_for(&request, &run, &digest).await,
        };
        let tenant = request.tenant().clone();
        if let Err(error) = app.admission.admit(tenant, *runner, Overflow::Refuse).await {
            let counted = run.clone();
            let given =
                request.clone().blocking(move |request| Ok(Forms(&request.host).give_back(&link, &counted)?)).await;
            if let Err(lost) = given {
                tracing::warn!(
                    "the use of a form for the run `{run}`, which was not admitted, stays counted: {}",
                    lost.message()
                );
            }
            return Err(error.into());
        }
        request.write_audit_entry("form.start", run.to_string()).await?;
        Ok(Json(Accepted::new(&run)))
    }
}

/// Waits for a run that another process is about to start for the same request.
async fn wait_for(request: &Request, run: &RunId, digest: &str) -> Result<Json<Accepted>, ApiError> {
    for _ in 0..MAX_LOOKS {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let (known, sent) = (run.clone(), digest.to_owned());
        let knows = request.clone().blocking(move |request| Ok(Forms(&request.host).has_begun(&known, &sent)?));
        if knows.await? {
            return Ok(Json(Accepted::new(run)));
        }
    }
    let why = "another request with this form has not finished; send it again in a minute";
    Err(ApiError::new(StatusCode::CONFLICT, "conflict", why))
}
