//! What stands behind an interface that the node type did not ask for: every function answers `denied`.

use flowcell_contract::{BuiltIn, Failure, code};
use wasmtime::component::HasData;

use super::Sandbox;
use crate::{
    bindings::types::Failure as GuestFailure,
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
pub(super) fn failure(node: &str, capability: BuiltIn) -> Failure {
    let interface = capability.name();
    let message = format!(
        "`{node}` used `{interface}`, which its manifest does not ask for; add to `capabilities` of `{node}` in \
         node.yaml: `- {{ name: {interface}, reason: \"…\" }}`"
    );
    Failure::new(code::DENIED, message)
}

impl Refusal<'_> {
    fn failure(&self, capability: BuiltIn) -> Failure {
        failure(&self.0.attempt.node_type, capability)
    }

    /// For functions that can answer with an error.
    pub(super) fn answer<T>(&mut self, capability: BuiltIn) -> wasmtime::Result<Result<T, GuestFailure>> {
        self.0.meter.count_call()?;
        Ok(Err(failure::to_guest(self.failure(capability))))
    }

    /// For functions that cannot.
    pub(super) fn stop(&self, capability: BuiltIn) -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Stop(self.failure(capability))))
    }
}
