//! Remembers checked flows, so that a flow that starts often is not checked each time.
//!
//! The result of a check depends on the flow's text, this program, and what the check has looked up: the files that the
//! flow names, the agents, and the tenant's secrets and policy. So the result is reused while each lookup still gives
//! the same, and the host has the same node types.

mod flow_cache;
pub(super) mod pinned_flows;

use std::{path::PathBuf, sync::Arc};

use flowcell_contract::{Catalog, Tenant};
use flowcell_flow::{CheckContext, CheckMode, Source};
use parking_lot::Mutex;

use crate::host::{
    checked::flow_cache::{FlowCache, MAX_FLOW_TEXT_BYTES},
    folder::Folder,
    loaded::{CheckedFlow, LoadedFlow},
    reading::{Lookup, Surroundings},
};

/// Maximum number of remembered flows per tenant.
const MAX_FLOWS: usize = 64;
/// Maximum number of lookups in the check of a flow. If the check made more, the flow is not remembered.
const MAX_LOOKUPS: usize = 256;

/// The checked flows of all tenants.
pub(super) struct CheckedFlows(Mutex<FlowCache<Key, Arc<Remembered>>>);

impl Default for CheckedFlows {
    fn default() -> CheckedFlows {
        CheckedFlows(Mutex::new(FlowCache::new(MAX_FLOWS)))
    }
}

/// The key of a remembered flow.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// The flow's folder. `None` for a flow without a folder.
    folder: Option<PathBuf>,
    /// The library whose flows a flow without a folder may call.
    beside: Option<PathBuf>,
    rules: CheckMode,
    file: String,
    text: String,
}

impl Key {
    fn new(source: &Source, folder: &Folder) -> Key {
        let (file, text) = (source.name.clone(), source.text.clone());
        Key { folder: folder.path(), beside: folder.beside().and_then(Folder::path), rules: folder.mode(), file, text }
    }
}

/// A flow that had no errors.
struct Remembered {
    flow: LoadedFlow,
    lookups: Vec<Lookup>,
    /// The node types of the host at the check.
    types: Arc<Catalog>,
}

impl Remembered {
    fn to_checked_flow(&self) -> CheckedFlow {
        CheckedFlow { flow: Some(self.flow.clone()), diagnostics: self.flow.warnings.to_vec() }
    }
}

impl CheckedFlows {
    fn find(&self, tenant: &Tenant, source: &Source, folder: &Folder, types: &Arc<Catalog>) -> Option<Arc<Remembered>> {
        // A flow that is too large to be remembered is not even compared.
        if source.text.len() > MAX_FLOW_TEXT_BYTES {
            return None;
        }
        let key = Key::new(source, folder);
        self.0.lock().get(tenant, &key).filter(|known| Arc::ptr_eq(&known.types, types)).cloned()
    }

    /// Returns the remembered result if the check made no lookups.
    pub(super) fn get_without_lookups(
        &self,
        tenant: &Tenant,
        source: &Source,
        folder: &Folder,
        types: &Arc<Catalog>,
    ) -> Option<CheckedFlow> {
        let known = self.find(tenant, source, folder, types).filter(|known| known.lookups.is_empty());
        known.map(|known| known.to_checked_flow())
    }

    /// Returns the remembered result if every lookup of the check still gives the same, and the check had these node
    /// types.
    pub(super) fn get(
        &self,
        tenant: &Tenant,
        source: &Source,
        around: &Surroundings,
        types: &Arc<Catalog>,
    ) -> Option<CheckedFlow> {
        let known = self.find(tenant, source, &around.folder, types)?;
        known.lookups.iter().all(|is_as_before| is_as_before(around)).then(|| known.to_checked_flow())
    }

    /// Forgets all flows.
    pub(super) fn forget_all(&self) {
        self.0.lock().clear();
    }

    /// Remembers a flow without errors. `lookups` are the lookups of its check, and `types` the node types of the host.
    pub(super) fn put(
        &self,
        tenant: &Tenant,
        source: &Source,
        checked: &CheckedFlow,
        lookups: Vec<Lookup>,
        types: &Arc<Catalog>,
    ) {
        let Some(flow) = checked.flow.clone() else { return };
        if lookups.len() > MAX_LOOKUPS {
            return;
        }
        let (key, text) = (Key::new(source, &flow.folder), flow.content.size());
        self.0.lock().put(tenant, key, Arc::new(Remembered { flow, lookups, types: types.clone() }), text);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::{fs, path::Path};

    use flowcell_flow::graph::Graph;

    use super::*;
    use crate::{Host, host::loading, operate::policy::Policy};

    fn host() -> Host {
        Host::builder().without_cache().instances(4).build().unwrap()
    }

    fn flow(node: &str) -> Source {
        let text = format!("flow: {{ name: asks }}\nnodes: [{{ id: a, {node} }}]\nedges: []\n");
        Source { name: "asks.yaml".into(), text }
    }

    fn check(host: &Host, source: &Source, folder: &Path) -> CheckedFlow {
        loading::check_in(host, source, Arc::new(Folder::of(&folder.join(&source.name))), &Default::default())
    }

    fn graph(checked: CheckedFlow) -> Arc<Graph> {
        checked.flow.unwrap().graph
    }

    #[test]
    fn a_flow_is_checked_once() {
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let asks_nothing = flow("type: control.noop");
        let lies = Folder::of(&folder.path().join("asks.yaml"));
        assert!(host.checked_before(&asks_nothing, &lies).is_none());
        let first = graph(check(&host, &asks_nothing, folder.path()));
        assert!(Arc::ptr_eq(&first, &graph(host.checked_before(&asks_nothing, &lies).unwrap())));
        assert!(Arc::ptr_eq(&first, &graph(check(&host, &asks_nothing, folder.path()))));
        // Another text, file, folder or tenant makes another flow.
        let others = [flow("type: control.noop, when: true"), Source { name: "b.yaml".into(), ..asks_nothing.clone() }];
        for other in others {
            assert!(host.checked_before(&other, &lies).is_none(), "{other:?}");
        }
        let nowhere = [Folder::nowhere(), Folder::nowhere_beside(folder.path().to_owned())];
        assert!(nowhere.iter().all(|nowhere| host.checked_before(&asks_nothing, nowhere).is_none()));
        let [nowhere, beside] = nowhere;
        assert!(host.check_alone(&asks_nothing, nowhere).flow.is_some());
        assert!(host.checked_before(&asks_nothing, &beside).is_none(), "that flow could call no others");
        assert!(host.for_tenant("other".into()).checked_before(&asks_nothing, &lies).is_none());
    }

    #[test]
    fn a_changed_file_that_the_flow_names_is_noticed() {
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let prompt = folder.path().join("prompt.md");
        let source = flow("type: control.gate, promptFile: prompt.md");
        assert!(check(&host, &source, folder.path()).flow.is_none(), "there is no such file");
        fs::write(&prompt, "Really?").unwrap();
        let first = graph(check(&host, &source, folder.path()));
        assert!(Arc::ptr_eq(&first, &graph(check(&host, &source, folder.path()))));
        let lies = Folder::of(&folder.path().join("asks.yaml"));
        assert!(host.checked_before(&source, &lies).is_none(), "a file has to be read");
        fs::write(&prompt, "Truly?").unwrap();
        let second = check(&host, &source, folder.path()).flow.unwrap();
        assert!(!Arc::ptr_eq(&first, &second.graph));
        assert_eq!(second.content.files["prompt.md"], "Truly?");
        fs::remove_file(&prompt).unwrap();
        assert_eq!(check(&host, &source, folder.path()).diagnostics[0].code, "unreadable_file");
    }

    #[test]
    fn a_called_flow_that_cannot_run_is_a_warning_as_long_as_it_cannot() {
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let (source, kid) = (flow("type: control.subflow, input: { name: kid }"), folder.path().join("kid.yaml"));
        fs::write(&kid, "flow: { name: kid }\nnodes:\n  - { id: a, type: no.such }\n").unwrap();
        let checked = check(&host, &source, folder.path());
        assert!(checked.flow.is_some());
        let [found] = checked.diagnostics.as_slice() else { panic!("{:?}", checked.diagnostics) };
        assert_eq!((found.code, found.location.line), ("unusable_flow", 2), "{found}");
        let message = "the flow `kid` cannot run: line 3: ";
        assert!(found.message.starts_with(message) && found.message.ends_with("(unknown_type)"), "{found}");
        // A flow that is stored already is checked without those that it calls, which may have broken meanwhile.
        let stored = Folder::of_library(folder.path().to_owned()).with_mode(CheckMode::Stored);
        assert!(loading::check_in(&host, &source, Arc::new(stored), &Default::default()).diagnostics.is_empty());
        fs::write(&kid, "flow: { name: kid }\nnodes:\n  - { id: a, type: control.noop }\n").unwrap();
        assert!(check(&host, &source, folder.path()).diagnostics.is_empty());
        fs::write(&kid, "flow: [").unwrap();
        assert_eq!(check(&host, &source, folder.path()).diagnostics[0].code, "unusable_flow");
    }

    #[test]
    fn a_grant_is_checked_against_the_current_policy() {
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let source = flow("type: file.read, input: { path: a }, grants: { files: { read: ['data/*'] } }");
        let first = graph(check(&host, &source, folder.path()));
        assert!(Arc::ptr_eq(&first, &graph(check(&host, &source, folder.path()))));
        let strict = Policy { grants: Some(Default::default()), ..Policy::default() };
        let refused = check(&host.clone().with_policy(Arc::new(strict)), &source, folder.path());
        assert!(refused.flow.is_none(), "{:?}", refused.diagnostics);
        assert!(Arc::ptr_eq(&first, &graph(check(&host, &source, folder.path()))));
    }

    #[test]
    fn a_tenant_with_too_many_flows_loses_its_own_oldest() {
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let numbered = |number: usize| flow(&format!("type: control.noop, input: {{ value: {number} }}"));
        let other = host.for_tenant("other".into());
        let kept = graph(check(&other, &numbered(0), folder.path()));
        let first = graph(check(&host, &numbered(0), folder.path()));
        (1..MAX_FLOWS).for_each(|number| _ = graph(check(&host, &numbered(number), folder.path())));
        assert!(Arc::ptr_eq(&first, &graph(check(&host, &numbered(0), folder.path()))));
        // The first flow was used last.
        graph(check(&host, &numbered(MAX_FLOWS), folder.path()));
        assert!(Arc::ptr_eq(&first, &graph(check(&host, &numbered(0), folder.path()))));
        (1..=MAX_FLOWS).for_each(|number| _ = graph(check(&host, &numbered(number), folder.path())));
        assert!(!Arc::ptr_eq(&first, &graph(check(&host, &numbered(0), folder.path()))));
        assert!(Arc::ptr_eq(&kept, &graph(check(&other, &numbered(0), folder.path()))));
    }
}
