//! The capabilities that leave the host, such as `http`, for the runs of a tenant.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Admission, Blobs, Call, Caller, Capability, Failure, Outgoing, Value};
use flowcell_runtime::ports::Pin;
use flowcell_services::{
    client::Client,
    egress::{AddressRange, Egress, OutboundLimits},
    http, model,
    webhook::{SigningKey, Webhook},
};
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

/// Limits the requests of all tenants to each origin, except of those whose policy has limits of its own.
pub(crate) fn limit_requests(host: &Host, limits: OutboundLimits) {
    host.shared.egress.set_default_limits(limits);
}

/// Returns the capabilities that leave the host, for the runs of these homes. Simulated calls store their files in
/// `blobs`.
pub(super) fn capabilities(host: &Host, homes: &Arc<Homes>, blobs: &Arc<dyn Blobs>) -> Capabilities {
    let mut capabilities = HashMap::clone(&host.shared.capabilities);
    if host.simulate.covers(http::INTERFACE)
        && let Some(http) = capabilities.get_mut(http::INTERFACE)
    {
        *http = Arc::new(SimulatedHttp(http.clone()));
    }
    if host.simulate.covers(model::INTERFACE) {
        capabilities.insert(model::INTERFACE.into(), host.shared.simulated_model.clone());
    }
    let simulated = host.simulate.covers(tools::INTERFACE);
    let tools = || -> Arc<dyn Capability> {
        Arc::new(ToolsOfRuns {
            tools: tools_of(host, homes.usual(), simulated),
            host: host.clone(),
            homes: homes.clone(),
        })
    };
    capabilities.entry(tools::INTERFACE.into()).or_insert_with(tools);
    let models = capabilities.get(model::INTERFACE).unwrap_or(&host.shared.simulated_model).clone();
    let services = || -> Arc<dyn Capability> {
        Arc::new(Services {
            settings: host.shared.services.clone(),
            // A service is simulated by its own name, so its tools are real here.
            tools: tools_of(host, &host.shared.services_home, false),
            models,
            blobs: blobs.clone(),
            usage: host.shared.usage.clone(),
            policy: host.policy.clone(),
            simulate: host.simulate.clone(),
        })
    };
    capabilities.entry(services::INTERFACE.into()).or_insert_with(services);
    capabilities
}

/// Creates a webhook of the operator. `allow_private` permits all private addresses. Its posts belong to no tenant, so
/// they have no part in the circuit breakers and the limits of tenants.
pub(crate) fn operator_webhook(
    host: &Host,
    url: &str,
    key: Option<SigningKey>,
    allow_private: bool,
) -> Result<Webhook, Failure> {
    Webhook::new(Client::new(operator_egress(host, allow_private)), url, key)
}

/// Creates a client for requests of the operator, which belong to no tenant. `roots` has additional certificates in PEM.
/// The error is part of a sentence.
pub(crate) fn operator_client(host: &Host, allow_private: bool, roots: Option<&[u8]>) -> Result<Client, String> {
    let egress = operator_egress(host, allow_private);
    Ok(Client::new(match roots {
        Some(pem) => egress.with_roots(pem)?,
        None => egress,
    }))
}

/// Returns the store of credentials, and a client for requests of the host's tenant.
pub(crate) fn credential_store(host: &Host) -> (Arc<dyn flowcell_services::credentials::CredentialStore>, Client) {
    (host.shared.vault.clone(), Client::new(host.shared.egress.clone()))
}

/// Returns the egress guard without the circuit breakers and the limits of tenants.
fn operator_egress(host: &Host, allow_private: bool) -> Egress {
    let everywhere: Vec<AddressRange> = ["0.0.0.0/0", "::/0"].iter().filter_map(|range| range.parse().ok()).collect();
    let egress = host.shared.egress.clone().without_outbound();
    if allow_private { egress.with_private(&everywhere) } else { egress }
}

fn tools_of(host: &Host, home: &Arc<Home>, simulated: bool) -> Tools {
    Tools {
        flows: Arc::new(CalledFlows { host: host.clone(), home: home.clone() }),
        usage: host.shared.usage.clone(),
        mcp: host.shared.mcp.clone(),
        simulated,
    }
}

/// The capability `tools` for a run and the runs below it. Each run can call the flows of its own home.
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

    use super::*;
    use crate::{
        Simulate,
        host::{granted::grantable, homes},
    };

    #[test]
    fn every_built_in_capability_is_performed() {
        let host = Host::builder().without_cache().instances(1).build().unwrap();
        let there = grantable(&host);
        for capability in BuiltIn::ALL.iter().map(|capability| capability.name()) {
            assert!(there.iter().any(|name| name == capability), "nothing performs calls of `{capability}`");
        }
    }

    #[test]
    fn flows_may_grant_every_capability_of_their_runs() {
        let host = Host::builder().without_cache().instances(1).build().unwrap();
        for host in [host.clone(), host.simulating(Simulate::of(["all"])).unwrap()] {
            let homes = Arc::new(Homes::new(host.clone(), homes::unpinned(&host)));
            let there = grantable(&host);
            for name in capabilities(&host, &homes, &host.shared.blobs).keys() {
                assert!(there.iter().any(|granted| **granted == **name), "no flow may grant `{name}`");
            }
        }
    }
}
