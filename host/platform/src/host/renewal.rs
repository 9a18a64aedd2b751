//! Checks the flows of repeated runs against the tenant's current policy. A renewed flow is the flow that the earlier
//! run has pinned, checked again and pinned again.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Digest, GrantedLimits, Json, LimitRefusal, NodeLimits};
use flowcell_flow::{
    CheckContext, CheckMode, Diagnostic, Severity, Source,
    graph::Graph,
    outline::{Outline, ScriptError},
};
use flowcell_runtime::{OpenError, Pinned, ports::Pin};

use super::{Host, loading::pack_denied, pin};
use crate::{
    host::{content::Content, error::StartError, granted, home::Callee},
    operate::policy::Policy,
    world::simulate::SERVICES,
};

/// The renewed flows of a run and its child runs, by their earlier pins.
#[derive(Default)]
pub(super) struct Renewals(HashMap<Pin, Pinned>);

impl Renewals {
    /// Creates the renewals of a retry that has begun. `pin` is the pin of the earlier run's flow, and `graph` is that
    /// flow, which is not renewed again.
    pub(super) fn of_begun_retry(pin: Pin, graph: Arc<Graph>) -> Renewals {
        Renewals([(pin.clone(), Pinned { graph, pin })].into())
    }

    /// Returns the renewed flow for the repetition of a run whose flow has this pin. The first call for a pin renews
    /// the flow.
    pub(super) fn renew(&mut self, host: &Host, pin: &Pin) -> Result<Pinned, StartError> {
        if let Some(flow) = self.0.get(pin) {
            return Ok(flow.clone());
        }
        let content = pin::content_of(host, pin).map_err(OpenError::Pin)?;
        let (content, graph) = renew_content(host, content, self)?;
        let flow = Pinned { graph, pin: Pin(pin::store_content(host, content)) };
        self.0.insert(pin.clone(), flow.clone());
        Ok(flow)
    }
}

/// Checks the pinned content of an earlier run again, and returns the content and the flow for the run's
/// repetition. Fails if the flow grants more than the tenant's current policy allows. A callee that grants more
/// becomes [`Callee::Unusable`] instead.
fn renew_content(
    host: &Host,
    mut content: Content,
    renewals: &mut Renewals,
) -> Result<(Content, Arc<Graph>), StartError> {
    if !host.policy.limits_flows() {
        return check_renewed(host, &content).map(|graph| (content, graph));
    }
    content.services = host.policy.most_granted(SERVICES).filter(|_| content.outline.is_some());
    let graph = check_renewed(host, &content)?;
    for (name, callee) in &mut content.called {
        let Callee::Pinned(hash) = callee else { continue };
        *callee = match renewals.renew(host, &Pin(hash.clone())) {
            Ok(flow) => Callee::Pinned(flow.pin.0),
            Err(error) => Callee::Unusable(format!("cannot use the flow `{name}`: {error}")),
        };
    }
    Ok((content, graph))
}

fn check_renewed(host: &Host, content: &Content) -> Result<Arc<Graph>, StartError> {
    let limits = host.shared.engine.granted_limits();
    let files = RenewalContext { content, policy: &host.policy, limits };
    let mut checked = pin::check_with(host, content, &files).map_err(OpenError::Pin)?;
    checked.diagnostics.extend(denied_packs(host, content));
    let denied = checked.diagnostics.iter().any(|finding| finding.severity == Severity::Error);
    let graph = checked.graph.filter(|_| !denied);
    graph.map(Arc::new).ok_or(StartError::Renewed(checked.diagnostics))
}

/// Returns the diagnostics for the flow's packs that the policy no longer allows.
fn denied_packs(host: &Host, content: &Content) -> Vec<Diagnostic> {
    let source = content.source();
    let named = flowcell_flow::packs(&source);
    let Some(first) = named.first() else { return Vec::new() };
    let types = host.catalog();
    let offered = |digest: &str| {
        let of_catalog = |pack: &Digest| *pack.0 == *digest;
        content.built_in.contains(digest) || types.types().any(|node| node.pack.as_ref().is_some_and(of_catalog))
    };
    let brought = content.packs.keys().filter(|digest| !offered(digest) && !host.policy.allows_pack(digest));
    brought.map(|digest| pack_denied(&source, first.location.clone(), digest)).collect()
}

/// The content of a run, with the policy and the limits of node types that bound its grants.
struct RenewalContext<'a> {
    content: &'a Content,
    policy: &'a Policy,
    limits: GrantedLimits,
}

impl CheckContext for RenewalContext<'_> {
    fn mode(&self) -> CheckMode {
        self.content.mode()
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.content.read(path)
    }

    fn flow(&self, name: &str) -> Option<Source> {
        self.content.flow(name)
    }

    fn has_flow(&self, name: &str) -> bool {
        self.content.has_flow(name)
    }

    fn agent(&self, name: &str) -> Option<Source> {
        self.content.agent(name)
    }

    fn check_grant(&self, capability: &str, item: &Json) -> Result<(), String> {
        granted::check_policy(self.policy, capability, item)
    }

    fn refused_limits(&self, asked: &NodeLimits) -> Vec<LimitRefusal> {
        granted::refused_limits(self.limits, self.policy, asked)
    }

    fn most_granted(&self, capability: &str) -> Option<Vec<String>> {
        self.content.most_granted(capability)
    }

    fn outline(&self, script: &Source) -> Result<Outline, ScriptError> {
        self.content.outline(script)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_pack_that_the_policy_forbids_is_reported_with_its_line() {
        let host = Host::builder().without_cache().instances(4).build().unwrap();
        let text = "flow: { name: brings }\nnodes: [{ id: a, type: control.noop }]\nedges: []\n";
        let flow = host.load_source(Source { name: "brings.yaml".into(), text: text.into() }).unwrap();
        let brought = "0a".repeat(32);
        let mut content = Content::clone(&flow.content);
        content.text = text.replace("brings }", "brings,\n  packs: [x.wasm] }");
        content.packs.insert(brought.clone(), None);
        for (packs, expected) in
            [(None, vec![]), (Some(vec![brought]), vec![]), (Some(vec![]), vec![("pack_denied", 2)])]
        {
            let host = host.clone().with_policy(Arc::new(Policy { packs, ..Policy::default() }));
            let denied = denied_packs(&host, &content);
            assert_eq!(denied.iter().map(|found| (found.code, found.location.line)).collect::<Vec<_>>(), expected);
        }
    }
}
