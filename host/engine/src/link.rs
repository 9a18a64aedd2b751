//! Links components. Capabilities that a node type asks for are live: their calls reach the runtime. All others deny
//! each call.

use std::sync::OnceLock;

use flowcell_contract::{BuiltIn, NodeType};
use wasmtime::component::Linker;
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types as filesystem};
use wasmtime_wasi_http::{
    WasiHttp,
    p2::bindings::{
        LinkOptions,
        http::{outgoing_handler, types as wasi_http},
    },
};

use crate::{
    bindings::{
        agent, cache, calls, context, file_writer, files, http, log, metrics, model, queue, services, state, tools,
        types,
    },
    sandbox::{
        Sandbox,
        denial::{Denied, Denier, Live},
        ported::{self, Folder, Folders},
    },
};

/// A set of capabilities, with one bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities(u16);

impl Capabilities {
    /// The number of different sets.
    pub(crate) const SETS: usize = 1 << BuiltIn::ALL.len();

    /// Returns the set of the capabilities that a node type asks for.
    pub(crate) fn asked_by(node: &NodeType) -> Capabilities {
        let asked = BuiltIn::ALL.iter().filter(|capability| node.asks_for(capability.name()));
        Capabilities(asked.fold(0, |set, capability| set | 1 << *capability as u16))
    }

    /// Returns the number of this set, below `SETS`.
    pub(crate) fn number(self) -> usize {
        usize::from(self.0)
    }

    fn has(self, capability: BuiltIn) -> bool {
        self.0 & (1 << capability as u16) != 0
    }
}

/// One linker for each set of capabilities, made on first use.
pub(crate) struct Linkers {
    engine: wasmtime::Engine,
    linkers: [OnceLock<Linker<Sandbox>>; Capabilities::SETS],
}

impl Linkers {
    pub(crate) fn new(engine: &wasmtime::Engine) -> Linkers {
        Linkers { engine: engine.clone(), linkers: [const { OnceLock::new() }; Capabilities::SETS] }
    }

    /// Returns the linker of a set of capabilities.
    pub(crate) fn get(&self, set: Capabilities) -> wasmtime::Result<&Linker<Sandbox>> {
        let slot = &self.linkers[set.number()];
        if let Some(linker) = slot.get() {
            return Ok(linker);
        }
        let linker = link(&self.engine, set)?;
        Ok(slot.get_or_init(|| linker))
    }
}

fn link(engine: &wasmtime::Engine, set: Capabilities) -> wasmtime::Result<Linker<Sandbox>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    let view = if set.has(BuiltIn::Http) { ported::live_http } else { ported::denied_http };
    outgoing_handler::add_to_linker::<_, WasiHttp>(&mut linker, view)?;
    wasi_http::add_to_linker::<_, WasiHttp>(&mut linker, &LinkOptions::default().into(), view)?;
    if set.has(BuiltIn::Files) {
        linker.allow_shadowing(true);
        preopens::add_to_linker::<Sandbox, Folders>(&mut linker, |sandbox| Folder(sandbox))?;
        filesystem::add_to_linker::<Sandbox, Folders>(&mut linker, |sandbox| Folder(sandbox))?;
        linker.allow_shadowing(false);
    }
    types::add_to_linker::<Sandbox, Live>(&mut linker, |sandbox| sandbox)?;
    context::add_to_linker::<Sandbox, Live>(&mut linker, |sandbox| sandbox)?;
    calls::add_to_linker::<Sandbox, Live>(&mut linker, |sandbox| sandbox)?;
    queue::add_to_linker::<Sandbox, Live>(&mut linker, |sandbox| sandbox)?;
    file_writer::add_to_linker::<Sandbox, Live>(&mut linker, |sandbox| sandbox)?;
    for capability in BuiltIn::ALL {
        link_capability(&mut linker, *capability, set.has(*capability))?;
    }
    Ok(linker)
}

/// Links the interface of a capability: live if `is_live`, otherwise denied.
fn link_capability(linker: &mut Linker<Sandbox>, capability: BuiltIn, is_live: bool) -> wasmtime::Result<()> {
    macro_rules! link {
        ($interface:ident) => {
            match is_live {
                true => $interface::add_to_linker::<Sandbox, Live>(linker, |sandbox| sandbox),
                false => $interface::add_to_linker::<Sandbox, Denied>(linker, |sandbox| Denier(sandbox)),
            }
        };
    }
    match capability {
        BuiltIn::Log => link!(log),
        BuiltIn::Metrics => link!(metrics),
        BuiltIn::State => link!(state),
        BuiltIn::Cache => link!(cache),
        BuiltIn::Http => link!(http),
        BuiltIn::Model => link!(model),
        BuiltIn::Tools => link!(tools),
        BuiltIn::Agent => link!(agent),
        BuiltIn::Files => link!(files),
        BuiltIn::Services => link!(services),
    }
}
