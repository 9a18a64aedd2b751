//! What stands behind an interface that the node type did not ask for: every function answers `denied`.

use flowcell_contract::{Failure, code};
use wasmtime::component::HasData;

use super::Sandbox;
use crate::{
    bindings::{
        agent, cache, files, http, log, metrics, model, services, state, tools, types::Failure as GuestFailure,
    },
    failure::{self, Stop},
};

/// The sandbox itself, behind an interface that the type asked for.
pub(crate) struct Live;

impl HasData for Live {
    type Data<'a> = &'a mut Sandbox;
}

/// A refusal, behind an interface that it did not ask for.
pub(crate) struct Denied;

impl HasData for Denied {
    type Data<'a> = Refusal<'a>;
}

/// Knows whom it refuses.
pub(crate) struct Refusal<'a>(pub(crate) &'a mut Sandbox);

/// A node type has used what it did not ask for.
pub(super) fn failure(node: &str, interface: &str) -> Failure {
    let message = format!(
        "`{node}` used `{interface}`, which its manifest does not ask for; add to `capabilities` of `{node}` in \
         node.yaml: `- {{ name: {interface}, reason: \"…\" }}`"
    );
    Failure::new(code::DENIED, message)
}

impl Refusal<'_> {
    fn failure(&self, interface: &str) -> Failure {
        failure(&self.0.attempt.node_type, interface)
    }

    /// For functions that can answer with an error.
    fn answer<T>(&mut self, interface: &str) -> wasmtime::Result<Result<T, GuestFailure>> {
        self.0.meter.count_call()?;
        Ok(Err(failure::to_guest(self.failure(interface))))
    }

    /// For functions that cannot.
    fn stop(&self, interface: &str) -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Stop(self.failure(interface))))
    }
}

impl log::Host for Refusal<'_> {
    async fn log(&mut self, _: log::Level, _: String) -> wasmtime::Result<()> {
        self.stop("log")
    }
}

impl metrics::Host for Refusal<'_> {
    async fn measure(&mut self, _: String, _: f64, _: Vec<(String, String)>) -> wasmtime::Result<()> {
        self.stop("metrics")
    }
}

impl state::Host for Refusal<'_> {
    async fn get(&mut self, _: String) -> wasmtime::Result<Result<Option<state::Entry>, GuestFailure>> {
        self.answer("state")
    }

    async fn set(&mut self, _: String, _: String) -> wasmtime::Result<Result<u64, GuestFailure>> {
        self.answer("state")
    }

    async fn set_if(
        &mut self,
        _: String,
        _: String,
        _: Option<u64>,
    ) -> wasmtime::Result<Result<Option<u64>, GuestFailure>> {
        self.answer("state")
    }
}

impl cache::Host for Refusal<'_> {
    async fn get(&mut self, _: String) -> wasmtime::Result<Result<Option<String>, GuestFailure>> {
        self.answer("cache")
    }

    async fn set(&mut self, _: String, _: String, _: Option<u64>) -> wasmtime::Result<Result<(), GuestFailure>> {
        self.answer("cache")
    }
}

impl http::Host for Refusal<'_> {
    async fn send(&mut self, _: http::Request) -> wasmtime::Result<Result<http::Response, GuestFailure>> {
        self.answer("http")
    }

    async fn start_send(&mut self, _: http::Request) -> wasmtime::Result<Result<u32, GuestFailure>> {
        self.answer("http")
    }

    async fn take_response(&mut self, _: u32) -> wasmtime::Result<Result<http::Response, GuestFailure>> {
        self.answer("http")
    }

    async fn keep(&mut self, _: Vec<u8>, _: String) -> wasmtime::Result<Result<String, GuestFailure>> {
        self.answer("http")
    }
}

impl model::Host for Refusal<'_> {
    async fn generate(&mut self, _: String) -> wasmtime::Result<Result<String, GuestFailure>> {
        self.answer("model")
    }

    async fn start_generate(&mut self, _: String) -> wasmtime::Result<Result<u32, GuestFailure>> {
        self.answer("model")
    }
}

impl tools::Host for Refusal<'_> {
    async fn find(&mut self, _: Vec<String>) -> wasmtime::Result<Result<String, GuestFailure>> {
        self.answer("tools")
    }

    async fn call(&mut self, _: String) -> wasmtime::Result<Result<String, GuestFailure>> {
        self.answer("tools")
    }

    async fn start_call(&mut self, _: String) -> wasmtime::Result<Result<u32, GuestFailure>> {
        self.answer("tools")
    }
}

impl services::Host for Refusal<'_> {
    async fn start_call(&mut self, _: String) -> wasmtime::Result<Result<u32, GuestFailure>> {
        self.answer("services")
    }
}

impl agent::Host for Refusal<'_> {
    async fn open(&mut self, _: String) -> wasmtime::Result<Result<String, GuestFailure>> {
        self.answer("agent")
    }

    async fn tell(&mut self, _: String, _: String, _: String) -> wasmtime::Result<Result<(), GuestFailure>> {
        self.answer("agent")
    }

    async fn close(
        &mut self,
        _: String,
        _: Result<String, GuestFailure>,
    ) -> wasmtime::Result<Result<(), GuestFailure>> {
        self.answer("agent")
    }
}

impl files::Host for Refusal<'_> {
    async fn read(&mut self, _: String, _: files::Form) -> wasmtime::Result<Result<files::Content, GuestFailure>> {
        self.answer("files")
    }

    async fn write(&mut self, _: String, _: files::Content) -> wasmtime::Result<Result<u64, GuestFailure>> {
        self.answer("files")
    }

    async fn list(&mut self, _: String) -> wasmtime::Result<Result<Vec<files::Entry>, GuestFailure>> {
        self.answer("files")
    }

    async fn stat(&mut self, _: String) -> wasmtime::Result<Result<Option<files::Entry>, GuestFailure>> {
        self.answer("files")
    }

    async fn remove(&mut self, _: String) -> wasmtime::Result<Result<bool, GuestFailure>> {
        self.answer("files")
    }
}
