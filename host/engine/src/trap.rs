//! What it means that a guest stopped before it answered. The last words are what it wrote to standard error.

use flowcell_contract::{Failure, code};
use wasmtime::{OutOfMemory, PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::{failure::Stop, limits::Limits};

/// What ended a guest while it was being started.
pub(crate) fn from_start(error: &wasmtime::Error, last_words: Option<String>) -> Failure {
    let unlinked = || Failure::new(code::BAD_PACK, format!("the pack cannot be instantiated: {error:#}"));
    guest_stopped(error, last_words).or_else(|| from_shortage(error)).unwrap_or_else(unlinked)
}

/// The machine had not what a sandbox takes; none: it had.
pub(crate) fn from_shortage(error: &wasmtime::Error) -> Option<Failure> {
    let pool = error.downcast_ref::<PoolConcurrencyLimitError>().is_some();
    let memory = error.downcast_ref::<OutOfMemory>().is_some();
    if !pool && !memory && !is_from_system(error) {
        return None;
    }
    let message = format!(
        "the machine has no room for another sandbox ({error:#}); let the task be tried again (`retry`), run fewer at a \
         time (`maxConcurrency`), or give the process more memory and files"
    );
    Some(Failure::retryable(code::HOST_SHORTAGE, message))
}

/// The failure of an answer with more bytes than an output may have. How many it has cannot be told: it was not read.
pub(crate) fn too_large(limit: usize) -> Failure {
    let message = format!(
        "the node's answer is larger than {limit} bytes; answer with less, such as one page at a time, or keep the \
         content as a file and answer with the file value"
    );
    Failure::new(code::OUTPUT_TOO_LARGE, message)
}

/// What ended a guest before it answered, or made its answer unreadable.
pub(crate) fn from_run(error: &wasmtime::Error, last_words: Option<String>, limits: &Limits) -> Failure {
    guest_stopped(error, last_words).unwrap_or_else(|| {
        if is_out_of_room(error) {
            return too_large(limits.output);
        }
        Failure::new(code::INVALID_OUTPUT, format!("the node's answer cannot be read: {error:#}"))
    })
}

/// Why the guest's code stopped; none if it was not running.
fn guest_stopped(error: &wasmtime::Error, last_words: Option<String>) -> Option<Failure> {
    if let Some(Stop(failure)) = error.downcast_ref::<Stop>() {
        return Some(failure.clone());
    }
    if let Some(I32Exit(status)) = error.downcast_ref::<I32Exit>() {
        return Some(trapped(&format!("it exited with status {status} in place of answering"), last_words));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => {
            return Some(Failure::new(code::STACK_OVERFLOW, "the node recursed deeper than its stack"));
        }
        Some(trap @ Trap::MemoryOutOfBounds) => {
            return Some(trapped(&format!("{trap}; recursion deeper than the guest's own stack ends so"), last_words));
        }
        Some(trap) => return Some(trapped(&trap.to_string(), last_words)),
        None => {}
    }
    // Errors of the border itself carry the guest's frames if the guest was making a call.
    error.downcast_ref::<WasmBacktrace>()?;
    if is_out_of_room(error) {
        let message = "the node handed more over in one host call than a call may carry";
        return Some(Failure::new(code::LIMIT_EXCEEDED, message));
    }
    if is_out_of_handles(error) {
        return Some(Failure::new(code::LIMIT_EXCEEDED, "the node holds more handles than it may"));
    }
    Some(trapped(&error.root_cause().to_string(), last_words))
}

// wasmtime keeps the types of these errors to itself, so they are known by their texts.

fn is_from_system(error: &wasmtime::Error) -> bool {
    format!("{error:#}").contains("(os error ")
}

fn is_out_of_room(error: &wasmtime::Error) -> bool {
    format!("{error:#}").contains("fuel allocated for hostcalls has been exhausted")
}

fn is_out_of_handles(error: &wasmtime::Error) -> bool {
    let text = format!("{error:#}");
    text.contains("handle limit exceeded") || text.contains("resource table has no free keys")
}

/// A trap, with what the guest wrote to standard error before it: there a panic leaves its message.
fn trapped(cause: &str, last_words: Option<String>) -> Failure {
    let cause = cause.trim_start_matches("wasm trap: ");
    let message = match last_words {
        Some(words) => format!("the node trapped ({cause}): {words}"),
        None => format!("the node trapped: {cause}"),
    };
    Failure::new(code::TRAP, message)
}
