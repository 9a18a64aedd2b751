//! Routes of the files beside the flows of the tenant, and the route that runs test cases.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::timeout_at;
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    authoring::{MAX_TEST_BYTES, MAX_TEST_TIME},
    flows,
    intake::{Body, PathParam, QueryParams},
    library::FlowView,
    start,
};
use flowcell_platform::{
    FlowFiles, FlowLibrary, FlowSource, Host, LoadedFlow,
    cases::{
        file::{CaseFileError, file_name, parse},
        format::Case,
        trial::{CaseEnd, Trial},
    },
};

/// Maximum number of cases that a request runs.
pub(crate) const MAX_CASES: usize = 200;
/// Maximum size in bytes of the text of a file of cases.
pub(crate) const MAX_CASES_BYTES: usize = 1 << 20;
/// The time for the comparison of a case after the time of the request is over.
const COMPARE_TIME: Duration = Duration::from_secs(2);
/// Maximum number of characters of one difference in an answer.
const MAX_DIFFERENCE_CHARS: usize = 2_000;

/// The files to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WantedFiles {
    /// The version of the flow; by default the newest.
    version: Option<u32>,
    /// The path of the only file to show, with its text.
    path: Option<String>,
}

/// The files beside a version of a flow.
#[derive(Serialize, ToSchema)]
pub(crate) struct FilesBeside {
    name: String,
    /// The number of the version.
    version: u32,
    /// Where the flow is stored: `folder` of this process, or the shared `store`.
    source: FlowSource,
    /// The files by path, at most 256.
    files: Vec<FileBeside>,
}

/// A file beside a flow.
#[derive(Serialize, ToSchema)]
pub(crate) struct FileBeside {
    /// The path relative to the flow.
    path: String,
    /// The size in bytes.
    bytes: u64,
    /// The text, if the request has the path of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// Changes of the files beside a flow.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileChanges {
    /// The texts of new and changed files, by their paths relative to the flow.
    #[serde(default)]
    set: BTreeMap<String, String>,
    /// The paths of the files to remove.
    #[serde(default)]
    remove: Vec<String>,
    /// The newest version that the caller knows. If another version is the newest one, the server answers 409
    /// `version_conflict`.
    #[serde(rename = "ifVersion")]
    if_version: Option<u32>,
}

/// Show the files beside a flow: prompts, scripts and test cases
///
/// A flow of the shared store has the files that were posted with it. A flow in a folder has those that it names, and its
/// file of test cases.
#[utoipa::path(get, path = "/v1/flows/{name}/files", tag = "flows", operation_id = "files_beside_flow",
    params(("name" = String, Path,), WantedFiles),
    responses((status = 200, body = FilesBeside), (status = "default", body = ErrorBody)))]
pub(crate) async fn show_files(
    request: Request,
    PathParam(name): PathParam<String>,
    QueryParams(WantedFiles { version, path }): QueryParams<WantedFiles>,
) -> Result<Json<FilesBeside>, ApiError> {
    let of = name.clone();
    let found = request.checking(move |flows, host| flows.files_of(host, &of, version)).await?;
    let FlowFiles { version, source, files } = found;
    let with_text = path.is_some();
    let listed = files.into_iter().filter(|(each, _)| path.as_ref().is_none_or(|path| path == each));
    let file = |(path, text): (String, String)| {
        let bytes = text.len() as u64;
        FileBeside { path, bytes, text: Some(text).filter(|_| with_text) }
    };
    let files: Vec<_> = listed.map(file).collect();
    match path.filter(|_| files.is_empty()) {
        Some(path) => {
            let shown: String = path.chars().take(64).flat_map(char::escape_default).collect();
            Err(ApiError::not_found("file_not_found", format!("the flow `{name}` has no file `{shown}` beside it")))
        }
        None => Ok(Json(FilesBeside { name, version, source, files })),
    }
}

/// Change the files beside a flow of the shared store, as a new version with the same text
#[utoipa::path(post, path = "/v1/flows/{name}/files", tag = "flows", operation_id = "change_files_beside_flow",
    params(("name" = String, Path,)), request_body(content = FileChanges, description = "optional"),
    responses((status = 201, body = FlowView, headers(("location" = String))), (status = "default", body = ErrorBody)))]
pub(crate) async fn change_files(
    request: Request,
    PathParam(name): PathParam<String>,
    Body(changes): Body<FileChanges>,
) -> Result<Response, ApiError> {
    let (app, tenant) = (request.app.clone(), request.tenant().clone());
    let FileChanges { set, remove, if_version } = changes;
    let changed = move |flows: &FlowLibrary, host: &Host| flows.change_files(host, &name, (set, &remove), if_version);
    let flow = FlowView::from(request.checking(changed).await?);
    app.triggers.refresh(&tenant).await?;
    app.triggers.changed();
    Ok((StatusCode::CREATED, [(header::LOCATION, flow.api_path())], Json(flow)).into_response())
}

/// Test cases to run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CasesToRun {
    /// The name of a stored flow, or a whole flow.
    #[schema(value_type = serde_json::Value)]
    flow: Box<RawValue>,
    /// The version of a stored flow; by default the newest.
    version: Option<u32>,
    /// The texts of the files that a whole flow names, by their paths relative to it. They are not stored.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// The text of a file of cases. By default that of the file `NAME.test.yaml` beside the flow.
    cases: Option<String>,
    /// Run only the cases whose names contain this text.
    only: Option<String>,
}

/// The outcome of test cases.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CasesRun {
    /// The number of cases that have passed.
    passed: u32,
    /// The number of cases that have failed.
    failed: u32,
    /// The number of cases that did not run, because the time of the request was over.
    not_run: u32,
    /// The cases that ran, in their order.
    cases: Vec<CaseRun>,
}

/// The outcome of a test case.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CaseRun {
    name: String,
    passed: bool,
    /// The real time in milliseconds.
    took_ms: u64,
    /// A sentence for each difference between the outcome and what the case expects. It is empty if the case has
    /// passed.
    differences: Vec<String>,
}

/// Run the test cases of a flow: no call leaves the host, timers fire at once, and nothing is stored
///
/// The cases are those of `flowcell test`. A request runs at most 200 cases, for 60 s in all.
#[utoipa::path(post, path = "/v1/test/cases", tag = "flows", operation_id = "test_flow_by_cases",
    request_body = CasesToRun,
    responses((status = 200, body = CasesRun), (status = "default", body = ErrorBody)))]
pub(crate) async fn run_cases(request: Request, Body(asked): Body<CasesToRun>) -> Result<Json<CasesRun>, ApiError> {
    let CasesToRun { flow: named, version, files, cases, only } = asked;
    // The cases of a stored flow are those of the version that runs, even if another one is stored meanwhile.
    let (version, beside) = match flows::stored_flow_name(&named).filter(|_| cases.is_none()) {
        Some(name) => {
            let found = request.clone().checking(move |flows, host| flows.files_of(host, &name, version)).await?;
            (Some(found.version), found.files)
        }
        None => (version, files.clone()),
    };
    let flow = start::load_or_check_with(&request, &named, version, files).await?;
    let flow = flows::with_home(&request, flow).await?;
    let file = file_name(flow.name());
    let of_beside = || beside.get(&file).or_else(|| beside.get(&format!("./{file}"))).cloned();
    let Some(text) = cases.or_else(of_beside) else {
        let why = format!("the flow has no file `{file}` beside it: send `cases`, or store the file with the flow");
        return Err(invalid_cases(why));
    };
    // A test ends with its request, so the permit for checks may be dropped with the request, too.
    let turn = Arc::new(request.app.checks.take(request.tenant(), 1).await);
    let until = Instant::now() + MAX_TEST_TIME;
    let held = turn.clone();
    let read = request.clone().blocking(move |request| {
        let _turn = held;
        request.host.charged(|| read_cases(&file, &text, only.as_deref()))
    });
    let cases = read.await?;
    let mut run = CasesRun { passed: 0, failed: 0, not_run: 0, cases: Vec::with_capacity(cases.len()) };
    for case in cases {
        if Instant::now() >= until {
            run.not_run += 1;
            continue;
        }
        let case = run_case(&request, &flow, case, until, turn.clone()).await?;
        if case.passed {
            run.passed += 1
        } else {
            run.failed += 1
        }
        run.cases.push(case);
    }
    Ok(Json(run))
}

/// Reads the cases of a file. Refuses a file without cases, and one with more than [`MAX_CASES`].
fn read_cases(file: &str, text: &str, only: Option<&str>) -> Result<Vec<Case>, ApiError> {
    if text.len() > MAX_CASES_BYTES {
        let why = format!("`{file}` has {} bytes, and may have at most {MAX_CASES_BYTES}", text.len());
        return Err(invalid_cases(why));
    }
    let mut cases = parse::<Case>(file, text).map_err(|CaseFileError { why, finding, .. }| {
        let place = finding.map_or_else(String::new, |finding| {
            let help = finding.help.map(|help| format!("; {help}")).unwrap_or_default();
            format!("{help} (line {}, column {})", finding.location.line, finding.location.column)
        });
        invalid_cases(format!("`{file}` cannot be read: {why}{place}"))
    })?;
    if cases.is_empty() {
        return Err(invalid_cases(format!("the list `cases` of `{file}` is empty: write a case")));
    }
    cases.retain(|case| only.is_none_or(|only| case.name.contains(only)));
    match cases.len() {
        0 => Err(invalid_cases(format!("no case of `{file}` has the text of `only` in its name"))),
        1..=MAX_CASES => Ok(cases),
        many => Err(invalid_cases(format!(
            "`{file}` has {many} cases, and a request runs at most {MAX_CASES}: choose some with `only`"
        ))),
    }
}

fn invalid_cases(why: String) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_cases", why)
}

/// Runs a case. The comparison runs on a thread that it may block, and holds the permit for checks until it ends.
async fn run_case<P: Send + Sync + 'static>(
    request: &Request,
    flow: &LoadedFlow,
    case: Case,
    until: Instant,
    turn: Arc<P>,
) -> Result<CaseRun, ApiError> {
    let began = Instant::now();
    let (of, held) = (flow.clone(), turn.clone());
    let prepared = request.clone().blocking(move |request| {
        let _turn = held;
        Ok((Trial::new(&request.host, &of, &case, Some(MAX_TEST_BYTES))?, case))
    });
    let (mut trial, case) = prepared.await?;
    let end = match trial.take_runner() {
        Some(runner) => {
            runner.start_session();
            Some(match timeout_at(until.into(), runner.run()).await {
                Ok(result) => CaseEnd::Ended(Box::new(result)),
                Err(_) => {
                    let seconds = MAX_TEST_TIME.as_secs();
                    CaseEnd::Late(format!("it does not end within the {seconds} s that all cases of a request have"))
                }
            })
        }
        None => None,
    };
    let of = flow.clone();
    let compared = request.clone().blocking(move |request| {
        let _turn = turn;
        let until = until.max(Instant::now()) + COMPARE_TIME;
        let wrong = request.host.charged(|| trial.differences(&case, &of, end.as_ref(), Some(until)));
        let differences: Vec<_> = wrong.into_iter().map(shortened).collect();
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(CaseRun { name: case.name, passed: differences.is_empty(), took_ms, differences })
    });
    compared.await
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_DIFFERENCE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
