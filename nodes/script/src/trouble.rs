//! The failure of a script: the thrown value, its line and column, and the calls that led there.

use boa_engine::{
    Context, JsError, JsString, JsValue,
    builtins::error::Error,
    error::{EngineError, RuntimeLimitError},
    object::JsObject,
};
use flowcell_sdk::Failure;
use serde_json::{Map, Value, json};

use crate::{input::Input, syntax, value};

/// Maximum bytes of the message of a thrown value.
const MAX_MESSAGE_BYTES: usize = 2 << 10;
/// The engine's message about an `import`.
const NO_MODULES: &str = "module resolution is disabled for this context";
/// The engine's message about a variable that has no value yet.
const TOO_EARLY: &str = "ReferenceError: access of uninitialized binding";
/// Maximum number of calls in the stack trace.
const MAX_FRAMES: usize = 16;

/// Converts a thrown value into the failure of the script.
pub(crate) fn thrown_failure(error: &JsError, Input { name, text, .. }: &Input, context: &mut Context) -> Failure {
    let shown = error.to_string();
    let mut stack = stack(&shown);
    let reported = stack.iter().find_map(|frame| place(frame, name));
    let mut place = reported;
    let (code, mut message) = match error.as_engine() {
        Some(EngineError::RuntimeLimit(limit)) => ("limit_exceeded", limit_message(*limit).to_owned()),
        Some(_) => ("script_failed", first_line(&shown).to_owned()),
        None => ("script_failed", thrown_text(error, &shown, context)),
    };
    if let Some(missing) =
        message.strip_prefix("ReferenceError: ").and_then(|rest| rest.strip_suffix(" is not defined"))
    {
        // The engine reports only the place of the enclosing code, so the name is searched from there on.
        place = syntax::first_use(text, missing, place.unwrap_or((1, 1))).or(place);
        if let Some(help) = missing_global(missing) {
            message = format!("{message}: {help}");
        }
    }
    if message == TOO_EARLY {
        // The engine names neither the variable nor its place.
        let found = syntax::first_early_use(text, place.unwrap_or((1, 1)));
        let name = found.as_ref().map_or("a variable".to_owned(), |(name, _)| format!("`{name}`"));
        message = format!("ReferenceError: {name} is used before the line that declares it");
        place = found.map(|(_, place)| place).or(place);
    }
    if message.contains(NO_MODULES) {
        message =
            message.replace(NO_MODULES, "a script cannot import modules: use the services in the argument of `run`");
    }
    message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
    let mut details = Map::new();
    if let Some((line, column)) = place {
        message += &format!(" ({name}:{line}:{column})");
        details.extend([("line".to_owned(), line.into()), ("column".to_owned(), column.into())]);
    }
    if let (Some(reported), Some(place)) = (reported, place)
        && let Some(frame) = stack.iter_mut().find(|frame| self::place(frame, name).is_some())
    {
        let written = |(line, column): (u32, u32)| format!("({name}:{line}:{column})");
        *frame = frame.replace(&written(reported), &written(place));
    }
    details.insert("stack".into(), json!(stack));
    if let Some(object) = error.as_opaque().and_then(JsValue::as_object) {
        details.extend(call_members(&object, context));
    }
    Failure::new(code, message).details(details.into())
}

/// Returns what to do in place of using a global of browsers and other runtimes that scripts lack.
fn missing_global(name: &str) -> Option<&'static str> {
    Some(match name {
        "require" | "module" | "exports" => "a script cannot import modules: use the services in the argument of `run`",
        "setTimeout" | "setInterval" | "setImmediate" => "a script has no timers: wait in the flow with `control.wait`",
        "fetch" | "XMLHttpRequest" | "WebSocket" | "EventSource" | "axios" => {
            "a script has no network: use the node `http.request`, or a service in the argument of `run`"
        }
        "process" | "Deno" | "Bun" => "a script does not see the host: pass the value in its input",
        "window" | "document" | "localStorage" | "alert" => "a script runs in no browser",
        _ => return None,
    })
}

fn limit_message(limit: RuntimeLimitError) -> &'static str {
    match limit {
        RuntimeLimitError::LoopIteration => "the script exceeds the limit of loop iterations",
        RuntimeLimitError::Recursion => "the script exceeds the limit of nested function calls",
        RuntimeLimitError::StackSize => "the script exceeds the limit of variables in its functions",
    }
}

/// Describes the thrown value: an error by its name and message, any other value as JSON or by its type.
fn thrown_text(error: &JsError, shown: &str, context: &mut Context) -> String {
    if let Some(native) = error.as_native() {
        return format!("{}: {}", native.kind(), native.message());
    }
    let Some(thrown) = error.as_opaque() else { return first_line(shown).to_owned() };
    match thrown.as_object().filter(|object| object.is::<Error>()) {
        Some(object) => match (member(&object, "name", context), member(&object, "message", context)) {
            (Some(name), Some(message)) if !message.is_empty() => format!("{name}: {message}"),
            (Some(name), _) => name,
            (None, message) => message.unwrap_or_default(),
        },
        None => match value::to_json(thrown, "", context) {
            Ok(json) => format!("the script threw {json}"),
            Err(_) => format!("the script threw a value of type {}", thrown.type_of()),
        },
    }
}

/// Returns the members `service` and `code` of an error that rejected the promise of a service call.
fn call_members(error: &JsObject, context: &mut Context) -> Vec<(String, Value)> {
    let said = |key: &str| Some((key.to_owned(), member(error, key, context)?.into()));
    ["service", "code"].into_iter().filter_map(said).collect()
}

/// Returns a text member of an object, own or inherited; `None` if the member is missing or not a text.
fn member(object: &JsObject, key: &str, context: &mut Context) -> Option<String> {
    Some(object.get(JsString::from(key), context).ok()?.as_string()?.to_std_string_lossy())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns the calls that led to an error, innermost first. The engine prints them as the last lines of `shown`.
fn stack(shown: &str) -> Vec<String> {
    let frames = shown.lines().rev().map_while(|line| line.strip_prefix("    at ").map(str::to_owned));
    let mut frames: Vec<_> = frames.collect();
    frames.reverse();
    frames.truncate(MAX_FRAMES);
    frames
}

/// Returns the line and column in a stack frame of the script, such as `run (logo.flow.js:12:9)`; `None` for a frame of
/// other code.
fn place(frame: &str, name: &str) -> Option<(u32, u32)> {
    let (_, place) = frame.strip_suffix(')')?.rsplit_once('(')?;
    let (line, column) = place.strip_prefix(name)?.strip_prefix(':')?.split_once(':')?;
    Some((line.parse().ok()?, column.parse().ok()?))
}
