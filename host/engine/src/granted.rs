//! The limits that node types ask for, and those that the operator grants.

use std::collections::HashMap;

use flowcell_contract::{Failure, GrantedLimits, NodeLimits, NodeType, Tenant, code};
use parking_lot::RwLock;

use crate::Limits;

/// The largest limits that node types get, in the process and for each tenant.
pub(crate) struct Granted {
    process: GrantedLimits,
    /// The maximum of each tenant that has one.
    tenants: RwLock<HashMap<Tenant, NodeLimits>>,
}

impl Granted {
    /// Creates the grants of a process. They are at least the usual limits of attempts.
    pub(crate) fn new(granted: GrantedLimits, usual: &Limits) -> Granted {
        let memory_mib = granted.memory_mib.max((usual.memory >> 20) as u64);
        let output_kib = granted.output_kib.max((usual.output >> 10) as u64);
        Granted { process: GrantedLimits { memory_mib, output_kib, ..granted }, tenants: RwLock::default() }
    }

    /// Returns the grants of the process.
    pub(crate) fn process(&self) -> GrantedLimits {
        self.process
    }

    /// Returns the bytes of memory of the largest attempt.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.process.memory_mib << 20
    }

    /// Sets the maximum of a tenant.
    pub(crate) fn set(&self, tenant: &Tenant, most: NodeLimits) {
        if most == self.tenants.read().get(tenant).copied().unwrap_or_default() {
            return;
        }
        let mut tenants = self.tenants.write();
        match most.is_empty() {
            true => _ = tenants.remove(tenant),
            false => _ = tenants.insert(tenant.clone(), most),
        }
    }

    /// Fails if a node type asks for more memory or output than a tenant gets. The time of an attempt is not checked
    /// here, because a flow may set another one.
    pub(crate) fn check(&self, tenant: &Tenant, node: &NodeType) -> Result<(), Failure> {
        let asked = NodeLimits { timeout_ms: None, ..node.limits };
        let policy = self.tenants.read().get(tenant).copied().unwrap_or_default();
        let refused = self.process.refusals(&policy, &asked);
        let Some(first) = refused.first() else { return Ok(()) };
        let message = format!("`{}` {}; {}", node.name, first.message, first.help);
        Err(Failure::new(code::LIMIT_NOT_GRANTED, message))
    }
}

/// Returns the limits of the attempts of a node type if they differ from the usual ones.
pub(crate) fn own_limits(node: &NodeType, usual: &Limits) -> Option<Box<Limits>> {
    let NodeLimits { memory_mib, output_kib, timeout_ms: _ } = node.limits;
    if memory_mib.is_none() && output_kib.is_none() {
        return None;
    }
    let bytes = |number: u64, shift: u32| usize::try_from(number << shift).unwrap_or(usize::MAX);
    Some(Box::new(Limits {
        memory: memory_mib.map_or(usual.memory, |mib| bytes(mib, 20)),
        output: output_kib.map_or(usual.output, |kib| bytes(kib, 10)),
        ..usual.clone()
    }))
}
