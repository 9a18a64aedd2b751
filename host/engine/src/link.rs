//! Linking per node type: what its manifest entry asks for is live, everything else is a denial.

use std::sync::OnceLock;

use flowcell_contract::NodeType;
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
    bindings::{agent, cache, calls, context, files, http, log, metrics, model, queue, services, state, tools, types},
    sandbox::{
        Sandbox,
        denial::{Denied, Live, Refusal},
        ported::{Folder, Folders},
    },
};

/// The capabilities that this host has, in the order of their bits.
pub(crate) const CAPABILITIES: [&str; 10] =
    ["log", "metrics", "state", "cache", "http", "model", "tools", "agent", "files", "services"];

/// A set of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities(u16);

impl Capabilities {
    /// How many sets there are.
    pub(crate) const SETS: usize = 1 << CAPABILITIES.len();

    /// What a type asks for.
    pub(crate) fn asked_by(node: &NodeType) -> Capabilities {
        let asked = CAPABILITIES.iter().enumerate().filter(|(_, name)| node.asks_for(name));
        Capabilities(asked.fold(0, |set, (bit, _)| set | 1 << bit))
    }

    /// The number of this set, below `SETS`.
    pub(crate) fn number(self) -> usize {
        usize::from(self.0)
    }

    fn has(self, name: &str) -> bool {
        CAPABILITIES.iter().position(|other| *other == name).is_some_and(|bit| self.0 & (1 << bit) != 0)
    }
}

/// One linker for each set of capabilities, made when it is first needed.
pub(crate) struct Linkers {
    engine: wasmtime::Engine,
    linkers: [OnceLock<Linker<Sandbox>>; Capabilities::SETS],
}

impl Linkers {
    pub(crate) fn new(engine: &wasmtime::Engine) -> Linkers {
        Linkers { engine: engine.clone(), linkers: [const { OnceLock::new() }; Capabilities::SETS] }
    }

    /// The linker of a set.
    pub(crate) fn get(&self, set: Capabilities) -> wasmtime::Result<&Linker<Sandbox>> {
        let slot = &self.linkers[set.number()];
        if let Some(linker) = slot.get() {
            return Ok(linker);
        }
        let linker = link(&self.engine, set)?;
        Ok(slot.get_or_init(|| linker))
    }
}

macro_rules! link_capability {
    ($linker:expr, $set:expr, $room:ident) => {
        if $set.has(stringify!($room)) {
            $room::add_to_linker::<Sandbox, Live>($linker, |sandbox| sandbox)
        } else {
            $room::add_to_linker::<Sandbox, Denied>($linker, |sandbox| Refusal(sandbox))
        }
    };
}

fn link(engine: &wasmtime::Engine, set: Capabilities) -> wasmtime::Result<Linker<Sandbox>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    let view = if set.has("http") { Sandbox::live_http } else { Sandbox::denied_http };
    outgoing_handler::add_to_linker::<_, WasiHttp>(&mut linker, view)?;
    wasi_http::add_to_linker::<_, WasiHttp>(&mut linker, &LinkOptions::default().into(), view)?;
    if set.has("files") {
        linker.allow_shadowing(true);
        preopens::add_to_linker::<Sandbox, Folders>(&mut linker, |sandbox| Folder(sandbox))?;
        filesystem::add_to_linker::<Sandbox, Folders>(&mut linker, |sandbox| Folder(sandbox))?;
        linker.allow_shadowing(false);
    }
    types::add_to_linker::<Sandbox, Live>(&mut linker, |sandbox| sandbox)?;
    context::add_to_linker::<Sandbox, Live>(&mut linker, |sandbox| sandbox)?;
    calls::add_to_linker::<Sandbox, Live>(&mut linker, |sandbox| sandbox)?;
    queue::add_to_linker::<Sandbox, Live>(&mut linker, |sandbox| sandbox)?;
    link_capability!(&mut linker, set, log)?;
    link_capability!(&mut linker, set, metrics)?;
    link_capability!(&mut linker, set, state)?;
    link_capability!(&mut linker, set, cache)?;
    link_capability!(&mut linker, set, http)?;
    link_capability!(&mut linker, set, model)?;
    link_capability!(&mut linker, set, tools)?;
    link_capability!(&mut linker, set, agent)?;
    link_capability!(&mut linker, set, files)?;
    link_capability!(&mut linker, set, services)?;
    Ok(linker)
}
