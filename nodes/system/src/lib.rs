//! The pack `system`: nodes that use services of the runtime, such as logs, metrics and state.

mod cache;
mod log;
mod metrics;
mod state;

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "system.cache.get" => cache::get,
    "system.cache.set" => cache::set,
    "system.log" => log::run,
    "system.metrics" => metrics::run,
    "system.state.get" => state::get,
    "system.state.set" => state::set,
}
