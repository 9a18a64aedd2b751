//! Denied interfaces: if a node type did not ask for a capability, every call of the capability is `denied`.

use flowcell_contract::{BuiltIn, Failure, code};
use wasmtime::component::HasData;

use super::Sandbox;
use crate::{
    bindings::types::Failure as GuestFailure,
    failure::{self, Stop},
};

/// Marks an interface that the node type asked for. The sandbox itself implements it.
pub(crate) struct Live;

impl HasData for Live {
    type Data<'a> = &'a mut Sandbox;
}

/// Marks an interface that the node type did not ask for. [`Denier`] implements it.
pub(crate) struct Denied;

impl HasData for Denied {
    type Data<'a> = Denier<'a>;
}

/// Denies the calls of one sandbox.
pub(crate) struct Denier<'a>(pub(crate) &'a mut Sandbox);

/// Returns the failure of a node type that used a capability without asking for it.
pub(super) fn failure(node: &str, capability: BuiltIn) -> Failure {
    let interface = capability.name();
    let message = format!(
        "`{node}` used `{interface}`, which its manifest does not ask for; add to `capabilities` of `{node}` in \
         node.yaml: `- {{ name: {interface}, reason: \"…\" }}`"
    );
    Failure::new(code::DENIED, message)
}

impl Denier<'_> {
    fn failure(&self, capability: BuiltIn) -> Failure {
        failure(&self.0.attempt.node_type, capability)
    }

    /// Denies a call of a function that can return an error.
    pub(super) fn answer<T>(&mut self, capability: BuiltIn) -> wasmtime::Result<Result<T, GuestFailure>> {
        self.0.meter.count_call()?;
        Ok(Err(failure::to_guest(self.failure(capability))))
    }

    /// Denies a call of a function that cannot return an error, by stopping the guest.
    pub(super) fn stop(&self, capability: BuiltIn) -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Stop(self.failure(capability))))
    }
}
