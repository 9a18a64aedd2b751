//! Converts errors that stop a guest into failures. A guest's last words are the end of its standard error.

use flowcell_contract::{Failure, code};
use rustix::io::Errno;
use wasmtime::{OutOfMemory, PoolConcurrencyLimitError, Trap, WasmBacktrace, component::ResourceTableError};
use wasmtime_wasi::I32Exit;

use crate::{failure::Stop, limits::Limits};

/// Returns the failure for an error that ended a guest during its start.
pub(crate) fn from_start(error: &wasmtime::Error, last_words: Option<String>) -> Failure {
    let unlinked = || Failure::new(code::BAD_PACK, format!("cannot instantiate the pack: {error:#}"));
    guest_stopped(error, last_words).or_else(|| from_shortage(error)).unwrap_or_else(unlinked)
}

/// Returns the failure for an error that comes from a shortage of the machine: of memory, open files or sandboxes.
/// Returns `None` for other errors.
pub(crate) fn from_shortage(error: &wasmtime::Error) -> Option<Failure> {
    let pool = error.downcast_ref::<PoolConcurrencyLimitError>().is_some();
    let memory = error.downcast_ref::<OutOfMemory>().is_some();
    if !pool && !memory && !is_from_system(error) {
        return None;
    }
    let message = format!(
        "the machine cannot hold another sandbox ({error:#}); retry the task (`retry`), run fewer at a time \
         (`maxConcurrency`), or give the process more memory and files"
    );
    Some(Failure::retryable(code::HOST_SHORTAGE, message))
}

/// The failure of an answer with more bytes than an output may have. The message has no size, since the host has not
/// read the whole answer.
pub(crate) fn too_large(limit: usize) -> Failure {
    let message = format!(
        "the node's answer is larger than {limit} bytes; return less, such as one page at a time, or store the \
         content as a file and return the file value; a manifest may ask for more (`limits: {{ outputKib: … }}`)"
    );
    Failure::new(code::OUTPUT_TOO_LARGE, message)
}

/// Returns the failure for an error that ended a guest before it answered, or that made its answer unreadable.
pub(crate) fn from_run(error: &wasmtime::Error, last_words: Option<String>, limits: &Limits) -> Failure {
    guest_stopped(error, last_words).unwrap_or_else(|| {
        if is_out_of_room(error) {
            return too_large(limits.output);
        }
        Failure::new(code::INVALID_OUTPUT, format!("cannot read the node's answer: {error:#}"))
    })
}

/// Returns the failure for an error that stopped the guest's code. Returns `None` if the guest's code was not running.
fn guest_stopped(error: &wasmtime::Error, last_words: Option<String>) -> Option<Failure> {
    if let Some(Stop(failure)) = error.downcast_ref::<Stop>() {
        return Some(failure.clone());
    }
    if let Some(I32Exit(status)) = error.downcast_ref::<I32Exit>() {
        return Some(trap_failure(&format!("it exited with status {status} without an answer"), last_words));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => {
            return Some(Failure::new(code::STACK_OVERFLOW, "the node recursed deeper than its stack"));
        }
        Some(trap @ Trap::MemoryOutOfBounds) => {
            return Some(trap_failure(
                &format!("{trap}; recursion deeper than the guest's own stack is a possible cause"),
                last_words,
            ));
        }
        Some(trap) => return Some(trap_failure(&trap.to_string(), last_words)),
        None => {}
    }
    // An error of the sandbox boundary contains the guest's stack frames only if the guest was making a call.
    error.downcast_ref::<WasmBacktrace>()?;
    if is_out_of_room(error) {
        let message = "the node passed more data in one host call than its limit";
        return Some(Failure::new(code::LIMIT_EXCEEDED, message));
    }
    if is_out_of_handles(error) {
        return Some(Failure::new(code::LIMIT_EXCEEDED, "the node exceeded its limit of handles"));
    }
    Some(trap_failure(&error.root_cause().to_string(), last_words))
}

/// Returns whether the operating system refused a request of the host, such as one for memory.
fn is_from_system(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        cause.is::<Errno>() || io.is_some_and(|io| io.raw_os_error().is_some())
    })
}

/// Returns whether one host call, or the answer, had more data than a call may have.
fn is_out_of_room(error: &wasmtime::Error) -> bool {
    // The type of this error is private to wasmtime, so only its text tells it apart.
    format!("{error:#}").contains("fuel allocated for hostcalls has been exhausted")
}

/// Returns whether the guest has used up its handles, or the host its table of resources.
fn is_out_of_handles(error: &wasmtime::Error) -> bool {
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full))
    };
    // The limit of handles is a plain message in wasmtime, so only its text tells it apart.
    error.chain().any(is_full) || format!("{error:#}").contains("handle limit exceeded")
}

/// Returns the failure of a trap. The guest's last words often explain the trap: a panic writes its message to standard
/// error.
fn trap_failure(cause: &str, last_words: Option<String>) -> Failure {
    let cause = cause.trim_start_matches("wasm trap: ");
    let message = match last_words {
        Some(words) => format!("the node trapped ({cause}): {words}"),
        None => format!("the node trapped: {cause}"),
    };
    Failure::new(code::TRAP, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_an_error_decides_the_failure() {
        let memory = wasmtime::Error::from(Errno::NOMEM).context("cannot make a memory");
        let files = wasmtime::Error::from(std::io::Error::from_raw_os_error(24));
        assert!(is_from_system(&memory) && is_from_system(&files));
        let quoted = wasmtime::format_err!("the guest wrote: no such file (os error 2)");
        let other = wasmtime::Error::from(std::io::Error::other("the stream is closed"));
        assert!(!is_from_system(&quoted) && !is_from_system(&other));
        let table = |error: ResourceTableError| wasmtime::Error::from(error).context("cannot keep a resource");
        assert!(is_out_of_handles(&table(ResourceTableError::Full)));
        assert!(!is_out_of_handles(&table(ResourceTableError::NotPresent)));
    }
}
