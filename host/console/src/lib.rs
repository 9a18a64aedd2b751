//! The console: the pages of Flowcell for a browser, under `/console`.
//!
//! A page shows the answers of routes under `/v1`, which it asks through [`Api`] with the token of its browser. So scopes,
//! tenants and limits are those of the API. Pages are rendered here; the scripts only refresh, move and log in.
//!
//! | module | content |
//! |---|---|
//! | visit, sent, once | one request of a browser, its forms, and the keys of forms that begin a run or a job |
//! | frame | the frame of all pages, the pages of errors, and the headers of all answers |
//! | parts | states, times, texts and other parts of pages |
//! | assets | style sheet and scripts, compiled into the program |
//! | login, command, sign_in, answer, outside, home, runs, run, jobs, inbox, flows, editor, catalog, packs, operate, credentials, operators, tokens, manual | the pages |
//! | gate, picture, form, diff, by_link | an open question, the picture of a flow, the form of an input, the difference of two texts, the parts of signed links |
//! | said | a text of a model, as Markdown |

mod answer;
mod assets;
mod by_link;
mod catalog;
mod command;
mod credentials;
mod diff;
mod editor;
mod flows;
mod form;
mod frame;
mod gate;
mod home;
mod inbox;
mod jobs;
mod login;
mod manual;
mod once;
mod operate;
mod operators;
mod outside;
mod packs;
mod parts;
mod picture;
mod run;
mod runs;
mod said;
mod sent;
mod sign_in;
mod tokens;
mod visit;

use axum::{
    Router, middleware,
    routing::{MethodRouter, get, post},
};
use flowcell_server::api::Api;

pub use frame::HEADERS;
pub use sent::{MAX_FORM_BYTES, MAX_TEXT_FORM_BYTES};

/// A route of the console.
pub struct Route {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The path, with its parameters as `{name}`.
    pub path: &'static str,
    /// True if the route needs no login.
    pub open: bool,
    handler: fn() -> MethodRouter<Api>,
}

macro_rules! routes {
    ($($method:ident $path:literal $handler:expr, $open:literal;)*) => {
        /// Every route of the console.
        pub const ROUTES: &[Route] = &[$(Route {
            method: routes!(@name $method),
            path: $path,
            open: $open,
            handler: || $method($handler),
        },)*];
    };
    (@name get) => { "GET" };
    (@name post) => { "POST" };
}

routes! {
    get "/console" home::show, false;
    get "/console/" home::show, false;
    get "/console/login" login::show, true;
    post "/console/login" login::log_in, true;
    post "/console/logout" login::log_out, true;
    get "/console/login/command" command::show, false;
    post "/console/login/command" command::decide, false;
    get "/console/sign-in" login::show, true;
    get "/console/sign-in/callback" sign_in::finish, true;
    get "/console/sign-in/{name}" sign_in::begin, true;
    get "/console/answer" answer::show, true;
    post "/console/answer" answer::open, true;
    post "/console/answer/send" answer::send, true;
    get "/console/answer/done" answer::done, true;
    get "/console/form" outside::show, true;
    post "/console/form" outside::open, true;
    post "/console/form/send" outside::send, true;
    get "/console/form/done" outside::done, true;
    get "/console/assets/{version}/{name}" assets::show, true;
    get "/console/runs" runs::list, false;
    get "/console/runs/{id}" run::graph, false;
    get "/console/runs/{id}/timeline" run::timeline::show, false;
    get "/console/runs/{id}/list" run::tasks::tasks, false;
    get "/console/runs/{id}/agents" run::agents::list, false;
    get "/console/runs/{id}/agents/{agent}" run::agents::show, false;
    post "/console/runs/{id}/agents/{agent}/send" run::agents::send, false;
    post "/console/runs/{id}/agents/{agent}/close" run::agents::close, false;
    get "/console/runs/{id}/events" run::events::events, false;
    get "/console/runs/{id}/logs" run::events::logs, false;
    get "/console/runs/{id}/raw" run::raw, false;
    get "/console/runs/{id}/tasks/{task}" run::tasks::task, false;
    post "/console/runs/{id}/cancel" run::cancel, false;
    post "/console/runs/{id}/resume" run::resume, false;
    post "/console/runs/{id}/retry" run::retry::retry, false;
    post "/console/runs/{id}/gates/{gate}" gate::answer, false;
    post "/console/runs/{id}/tasks/{task}/resolve" run::resolve, false;
    get "/console/jobs" jobs::all, false;
    post "/console/jobs" jobs::create, false;
    get "/console/jobs/new" jobs::prepare, false;
    get "/console/jobs/{id}" jobs::show, false;
    post "/console/jobs/{id}/{verb}" jobs::steer, false;
    get "/console/inbox" inbox::show, false;
    get "/console/flows" flows::list, false;
    get "/console/flows/{name}" flows::show, false;
    get "/console/flows/{name}/diff" flows::compare, false;
    get "/console/flows/{name}/edit" editor::open, false;
    post "/console/flows/{name}/edit" editor::send, false;
    get "/console/edit" editor::begin, false;
    post "/console/edit" editor::send_new, false;
    get "/console/flows/{name}/start" flows::form, false;
    post "/console/flows/{name}/start" flows::start, false;
    get "/console/catalog" catalog::list, false;
    get "/console/catalog/{type}" catalog::show, false;
    get "/console/packs" packs::all, false;
    get "/console/packs/{pack}" packs::show, false;
    get "/console/triggers" operate::triggers, false;
    post "/console/triggers/{flow}/{trigger}/{verb}" operate::steer_trigger, false;
    get "/console/files" operate::files, false;
    post "/console/files/{id}/remove" operate::remove_file, false;
    get "/console/usage" operate::usage, false;
    get "/console/secrets" operate::secrets, false;
    post "/console/secrets" operate::set_secret, false;
    post "/console/secrets/{name}/remove" operate::remove_secret, false;
    get "/console/credentials" credentials::all, false;
    post "/console/credentials" credentials::set, false;
    get "/console/credentials/{name}" credentials::show, false;
    post "/console/credentials/{name}/remove" credentials::remove, false;
    post "/console/credentials/{name}/connect" credentials::connect::begin, false;
    get "/console/connect/callback" credentials::connect::come_back, true;
    get "/console/connect/finish" credentials::connect::finish, false;
    get "/console/operators" operators::tenants, false;
    post "/console/operators/tenants/{tenant}/{verb}" operators::switch_tenant, false;
    get "/console/operators/runs" operators::runs, false;
    post "/console/operators/runs/{tenant}/{id}/cancel" operators::cancel, false;
    get "/console/operators/server" operators::server, false;
    get "/console/tokens" tokens::all, false;
    post "/console/tokens" tokens::create, false;
    post "/console/tokens/{token}/revoke" tokens::revoke, false;
    get "/console/audit" tokens::audit, false;
    get "/console/manual" manual::list, true;
    get "/console/manual/{topic}" manual::show, true;
    get "/console/{*rest}" frame::missing, true;
}

/// Returns the routes of the console.
pub fn router(api: Api) -> Router {
    let routes = ROUTES.iter().fold(Router::new(), |router, route| router.route(route.path, (route.handler)()));
    routes.layer(middleware::from_fn_with_state(api.clone(), frame::protect)).with_state(api)
}
