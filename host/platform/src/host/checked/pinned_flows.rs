//! Remembers the flows that runs have pinned, so that a flow is not checked again for each of its runs that is opened.
//!
//! A pin identifies the whole content of a flow: its text, its files and its packs. So a check always gives the same.

use std::sync::Arc;

use flowcell_contract::Tenant;
use flowcell_flow::{Diagnostic, graph::Graph};
use flowcell_runtime::ports::Pin;
use parking_lot::Mutex;

use super::flow_cache::FlowCache;

/// Maximum number of remembered flows per tenant.
const MAX_PINNED_FLOWS: usize = 256;

/// A checked flow with the warnings of its check.
pub(in crate::host) type PinnedFlow = (Arc<Graph>, Arc<[Diagnostic]>);

/// The remembered flows of all tenants.
pub(in crate::host) struct PinnedFlows(Mutex<FlowCache<Pin, PinnedFlow>>);

impl Default for PinnedFlows {
    fn default() -> PinnedFlows {
        PinnedFlows(Mutex::new(FlowCache::new(MAX_PINNED_FLOWS)))
    }
}

impl PinnedFlows {
    /// Returns a remembered flow of a tenant.
    pub(in crate::host) fn get(&self, tenant: &Tenant, pin: &Pin) -> Option<PinnedFlow> {
        self.0.lock().get(tenant, pin).cloned()
    }

    /// Remembers a flow. `text` is the size of its content, in bytes.
    pub(in crate::host) fn put(&self, tenant: &Tenant, pin: &Pin, flow: PinnedFlow, text: usize) {
        self.0.lock().put(tenant, pin.clone(), flow, text);
    }
}
