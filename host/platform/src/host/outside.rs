//! The capabilities that leave the host, such as `http`, for the runs of a tenant.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Admission, Blobs, Call, Caller, Capability, Failure, Outgoing, Value};
use flowcell_runtime::ports::{Pin, StoreError};
use flowcell_services::{http, model};
use futures_util::future::{BoxFuture, ready};

use super::{Host, homes::Homes, tool_runs::CalledFlows};
use crate::{
    host::home::Home,
    world::{
        services::{self, Services},
        test_run::SimulatedHttp,
        tools::{self, Tools},
    },
};

type Capabilities = HashMap<Arc<str>, Arc<dyn Capability>>;

impl Host {
    /// Returns the capabilities that leave the host, for the runs of these homes. Simulated calls store their files in
    /// `blobs`.
    pub(super) fn capabilities(&self, homes: &Arc<Homes>, blobs: &Arc<dyn Blobs>) -> Capabilities {
        let mut capabilities = HashMap::clone(&self.shared.capabilities);
        if self.simulate.covers(http::INTERFACE)
            && let Some(http) = capabilities.get_mut(http::INTERFACE)
        {
            *http = Arc::new(SimulatedHttp(http.clone()));
        }
        if self.simulate.covers(model::INTERFACE) {
            capabilities.insert(model::INTERFACE.into(), self.shared.simulated_model.clone());
        }
        let simulated = self.simulate.covers(tools::INTERFACE);
        let tools = || -> Arc<dyn Capability> {
            Arc::new(ToolsOfRuns {
                tools: self.tools(homes.usual(), simulated),
                host: self.clone(),
                homes: homes.clone(),
            })
        };
        capabilities.entry(tools::INTERFACE.into()).or_insert_with(tools);
        let models = capabilities.get(model::INTERFACE).unwrap_or(&self.shared.simulated_model).clone();
        let services = || -> Arc<dyn Capability> {
            Arc::new(Services {
                settings: self.shared.services.clone(),
                // A service is simulated by its own name, so its tools are real here.
                tools: self.tools(&self.shared.services_home, false),
                models,
                blobs: blobs.clone(),
                usage: self.shared.usage.clone(),
                policy: self.policy.clone(),
                simulate: self.simulate.clone(),
            })
        };
        capabilities.entry(services::INTERFACE.into()).or_insert_with(services);
        capabilities
    }

    /// Returns the store of blobs, which are addressed by content.
    pub(crate) fn blobs(&self) -> &dyn Blobs {
        &*self.shared.blobs
    }

    /// Waits until all blobs that were stored before this call are durable.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        self.shared.store.as_ref().map_or(Ok(()), |store| store.settle())?;
        self.shared.shared.as_ref().map_or(Ok(()), |store| store.settle())
    }

    fn tools(&self, home: &Arc<Home>, simulated: bool) -> Tools {
        Tools {
            flows: Arc::new(CalledFlows { host: self.clone(), home: home.clone() }),
            usage: self.shared.usage.clone(),
            mcp: self.shared.mcp.clone(),
            simulated,
        }
    }
}

/// The capability `tools` for the runs of a world. Each run can call the flows of its own home.
struct ToolsOfRuns {
    tools: Tools,
    host: Host,
    homes: Arc<Homes>,
}

impl ToolsOfRuns {
    fn tools_for(&self, caller: &Caller) -> Result<Tools, Failure> {
        let home = self.homes.find(&Pin(caller.pin.clone()))?;
        Ok(Tools { flows: Arc::new(CalledFlows { host: self.host.clone(), home }), ..self.tools.clone() })
    }
}

impl Capability for ToolsOfRuns {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        self.tools_for(caller)?.admit(call, caller)
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        match self.tools_for(&outgoing.caller) {
            Ok(tools) => tools.perform(outgoing),
            Err(failure) => Box::pin(ready(Err(failure))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_contract::BuiltIn;

    use crate::Host;

    #[test]
    fn every_built_in_capability_is_performed() {
        let host = Host::builder().without_cache().instances(1).build().unwrap();
        let there = host.grantable();
        for capability in BuiltIn::ALL.iter().map(|capability| capability.name()) {
            assert!(there.iter().any(|name| name == capability), "nothing performs calls of `{capability}`");
        }
    }
}
