//! The bindings generated from the WIT. The rest of this crate has no unsafe code.
#![allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::missing_safety_doc,
    reason = "generated code"
)]

wit_bindgen::generate!({
    path: "wit",
    world: "flowcell:pack/everything",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "export_node",
    default_bindings_module: "flowcell_sdk::wit",
});
