//! The WebSocket of a run. It sends the run's events, accepts commands for the run, and answers each command.

use axum::{
    extract::{
        FromRequestParts,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    http::{StatusCode, request::Parts},
    response::Response,
};
use flowcell_contract::RunId;
use flowcell_runtime::RunCommand;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    events::RunEvents,
    identity::{AuthError, Scope},
    intake::{PathParam, QueryParams, parse_path_id},
    steer,
};
use flowcell_platform::channels::command::{build_answer, parse};

/// The maximum size of a message in bytes: the largest input of a run, plus the rest of the message.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024 * 1024 + 4096;

/// The first event that the socket sends.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct From {
    /// The number of the first event.
    #[param(minimum = 0)]
    from: Option<u64>,
}

/// A request to upgrade to a WebSocket. Other requests get 426 `upgrade_required`.
pub(crate) struct Upgrade(WebSocketUpgrade);

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Upgrade, ApiError> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, state).await;
        let why = "this route is a WebSocket; send `Connection: upgrade` and `Upgrade: websocket`";
        upgrade.map(Upgrade).map_err(|_| ApiError::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", why))
    }
}

/// Receive events of a run and send commands to it over a WebSocket
///
/// The server sends the events as text messages, as in the stream. The client sends text messages with `{ "verb":
/// "reply", "gate", "answer", "id"? }` and the other commands of channels. The server answers each with `{ "type":
/// "channel:answer", "id"?, "ok", "error"? }`.
#[utoipa::path(get, path = "/v1/runs/{id}/socket", tag = "events", params(("id" = String, Path,), From),
    responses((status = 101, description = "the connection is a WebSocket"), (status = "default", body = ErrorBody)))]
pub(crate) async fn socket(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(asked): QueryParams<From>,
    upgrade: Upgrade,
) -> Result<Response, ApiError> {
    let run = parse_path_id(&id)?;
    let full =
        || ApiError::busy_and_close("too_many_subscribers", "too many WebSockets of this tenant are open; close some");
    let place = request.app.sockets.try_take(request.tenant(), 1).ok_or_else(full)?;
    let speaks = request.clone();
    let watching = RunEvents::begin(request, run.clone(), asked.from.unwrap_or(0)).await?;
    let upgrade = upgrade.0.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES);
    Ok(upgrade.on_upgrade(move |socket| async move {
        converse(socket, speaks, run, watching).await;
        drop(place);
    }))
}

async fn converse(mut socket: WebSocket, request: Request, run: RunId, mut watching: RunEvents) {
    let mut beat = tokio::time::interval(request.app.heartbeat);
    // The loop ends when the client has disconnected.
    loop {
        let sent = tokio::select! {
            frame = watching.next() => match frame {
                Some(frame) => socket.send(text(String::from_utf8_lossy(&frame.text).into_owned())).await,
                None => break,
            },
            heard = socket.recv() => match heard {
                Some(Ok(Message::Text(line))) => socket.send(text(handle(&request, &run, line.as_bytes()).await)).await,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => Ok(()),
            },
            _ = beat.tick() => socket.send(Message::Ping(Default::default())).await,
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = socket.send(Message::Close(None)).await;
}

fn text(text: String) -> Message {
    Message::Text(text.into())
}

/// Executes the command in a message if the caller has its scope, and returns the answer.
async fn handle(request: &Request, run: &RunId, line: &[u8]) -> String {
    let (id, command) = parse(line);
    let outcome = match command {
        Err(error) => Err((error.code(), error.to_string())),
        Ok(command) => {
            let done = match required_scope(&command) {
                _ if !request.is_known() => Err(AuthError::Unknown.into()),
                scope if !request.caller.scopes.has(scope) => Err(ApiError::forbidden(scope)),
                _ => steer::send_command(request, run, command).await,
            };
            done.map_err(|error| (error.code(), error.message().to_owned()))
        }
    };
    build_answer(id, outcome.err()).to_string()
}

fn required_scope(command: &RunCommand) -> Scope {
    match command {
        RunCommand::Reply { .. } => Scope::GateDecide,
        _ => Scope::RunControl,
    }
}
