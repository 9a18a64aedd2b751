//! Remembers the flows that runs have pinned, so that a flow is not checked again for each of its runs that is opened.
//!
//! A pin identifies the whole content of a flow: its text, its files and its packs. So a check always gives the same.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::Tenant;
use flowcell_flow::{Diagnostic, graph::Graph};
use flowcell_runtime::ports::Pin;
use parking_lot::Mutex;

/// Maximum number of remembered flows. If there are this many, all of them are forgotten before one more is added.
const MAX_PINNED_FLOWS: usize = 256;
/// Maximum number of bytes of text of the remembered flows. If one more flow would exceed them, all flows are forgotten
/// first.
const MAX_PINNED_TEXT_BYTES: usize = 64 * 1024 * 1024;
/// Maximum size in bytes of text of a remembered flow, with the files that it names.
const MAX_PINNED_FLOW_BYTES: usize = MAX_PINNED_TEXT_BYTES / 64;

/// A checked flow with the warnings of its check.
pub(super) type PinnedFlow = (Arc<Graph>, Arc<[Diagnostic]>);

/// The remembered flows of all tenants.
#[derive(Default)]
pub(super) struct PinnedFlows(Mutex<Known>);

#[derive(Default)]
struct Known {
    flows: HashMap<(Tenant, Pin), PinnedFlow>,
    text: usize,
}

impl PinnedFlows {
    /// Returns a remembered flow of a tenant.
    pub(super) fn get(&self, tenant: &Tenant, pin: &Pin) -> Option<PinnedFlow> {
        self.0.lock().flows.get(&(tenant.clone(), pin.clone())).cloned()
    }

    /// Remembers a flow. `text` is the size of its content, in bytes.
    pub(super) fn put(&self, tenant: &Tenant, pin: &Pin, flow: PinnedFlow, text: usize) {
        if text > MAX_PINNED_FLOW_BYTES {
            return;
        }
        let mut known = self.0.lock();
        if known.flows.len() >= MAX_PINNED_FLOWS || known.text + text > MAX_PINNED_TEXT_BYTES {
            *known = Known::default();
        }
        if known.flows.insert((tenant.clone(), pin.clone()), flow).is_none() {
            known.text += text;
        }
    }
}
