//! The bindings that wasmtime generates from `wit/`.

#![allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from wit/, which documents it")]

wasmtime::component::bindgen!({
    path: "wit",
    world: "flowcell:pack/everything",
    imports: {
        "flowcell:node/context": trappable,
        default: async | trappable,
    },
    exports: { default: async },
});

pub(crate) use flowcell::host::*;
pub(crate) use flowcell::node::{context, types};
