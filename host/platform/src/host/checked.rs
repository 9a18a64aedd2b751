//! Flows that were checked before, so that one that begins again and again is not checked each time.
//!
//! What comes of a check follows from the flow's text, from this program, and from the answers to what is asked meanwhile:
//! what files say that the flow names, which agents there are, what its tenant may. So a flow is not checked again while each
//! of these questions has the answer that it had.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use flowcell_contract::Tenant;
use flowcell_flow::{CheckContext, CheckMode, Source};
use parking_lot::Mutex;

use crate::host::{
    folder::Folder,
    loaded::{CheckedFlow, LoadedFlow},
    reading::{Asked, Surroundings},
};

/// Flows that are remembered of a tenant; of one more, all are forgotten.
const FLOWS: usize = 64;
/// Bytes of text that are remembered of all tenants; of more, everything is forgotten.
const TEXT: usize = 64 * 1024 * 1024;
/// A flow with more text, that of all files among it that it names, is not remembered.
const TEXT_OF_ONE: usize = TEXT / 64;
/// A flow of which more is asked is not remembered.
const QUESTIONS: usize = 256;

/// Flows that were checked.
#[derive(Default)]
pub(super) struct CheckedFlows(Mutex<Known>);

#[derive(Default)]
struct Known {
    flows: HashMap<Tenant, HashMap<Key, Arc<Remembered>>>,
    text: usize,
}

/// What a flow is found by.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// Where it lies; none: nowhere.
    folder: Option<PathBuf>,
    rules: CheckMode,
    file: String,
    text: String,
}

impl Key {
    fn of(source: &Source, folder: &Folder) -> Key {
        Key { folder: folder.path(), rules: folder.mode(), file: source.name.clone(), text: source.text.clone() }
    }
}

/// A flow without errors.
struct Remembered {
    flow: LoadedFlow,
    asked: Vec<Asked>,
    text: usize,
}

impl Remembered {
    fn checked(&self) -> CheckedFlow {
        CheckedFlow { flow: Some(self.flow.clone()), diagnostics: self.flow.warnings.to_vec() }
    }
}

impl CheckedFlows {
    fn find(&self, tenant: &Tenant, source: &Source, folder: &Folder) -> Option<Arc<Remembered>> {
        // What is too large to be remembered is not even compared.
        if source.text.len() > TEXT_OF_ONE {
            return None;
        }
        let key = Key::of(source, folder);
        self.0.lock().flows.get(tenant)?.get(&key).cloned()
    }

    /// What was found when the flow was checked, if nothing had to be asked for that.
    pub(super) fn at_once(&self, tenant: &Tenant, source: &Source, folder: &Folder) -> Option<CheckedFlow> {
        self.find(tenant, source, folder).filter(|known| known.asked.is_empty()).map(|known| known.checked())
    }

    /// What was found when the flow was checked, if these would answer as it was answered then.
    pub(super) fn get(&self, tenant: &Tenant, source: &Source, around: &Surroundings) -> Option<CheckedFlow> {
        let known = self.find(tenant, source, &around.folder)?;
        known.asked.iter().all(|is_as_before| is_as_before(around)).then(|| known.checked())
    }

    /// Remembers a flow without errors.
    pub(super) fn put(&self, tenant: &Tenant, source: &Source, checked: &CheckedFlow, asked: Vec<Asked>) {
        let Some(flow) = checked.flow.clone() else { return };
        let text = flow.content.size();
        if asked.len() > QUESTIONS || text > TEXT_OF_ONE {
            return;
        }
        let mut known = self.0.lock();
        if known.text + text > TEXT {
            *known = Known::default();
        }
        let Known { flows, text: sum } = &mut *known;
        let flows = flows.entry(tenant.clone()).or_default();
        if flows.len() >= FLOWS {
            *sum -= flows.drain().map(|(_, flow)| flow.text).sum::<usize>();
        }
        let key = Key::of(source, &flow.folder);
        let before = flows.insert(key, Arc::new(Remembered { flow, asked, text }));
        *sum = *sum + text - before.map_or(0, |before| before.text);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::{fs, path::Path};

    use flowcell_flow::graph::Graph;

    use super::*;
    use crate::{Host, operate::policy::Policy};

    fn host() -> Host {
        Host::builder().without_cache().instances(4).build().unwrap()
    }

    fn flow(node: &str) -> Source {
        let text = format!("flow: {{ name: asks }}\nnodes: [{{ id: a, {node} }}]\nedges: []\n");
        Source { name: "asks.yaml".into(), text }
    }

    fn check(host: &Host, source: &Source, folder: &Path) -> CheckedFlow {
        host.check_in(source, Arc::new(Folder::of(&folder.join(&source.name))), &Default::default())
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
        // Another text, file, folder or tenant is another flow.
        let others = [flow("type: control.noop, when: true"), Source { name: "b.yaml".into(), ..asks_nothing.clone() }];
        for other in others {
            assert!(host.checked_before(&other, &lies).is_none(), "{other:?}");
        }
        assert!(host.checked_before(&asks_nothing, &Folder::nowhere()).is_none());
        assert!(host.of("other".into()).checked_before(&asks_nothing, &lies).is_none());
    }

    #[test]
    fn what_it_names_is_looked_at_again() {
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
    fn a_grant_is_asked_for_again() {
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let source = flow("type: file.read, input: { path: a }, grants: { files: { read: ['data/*'] } }");
        let first = graph(check(&host, &source, folder.path()));
        assert!(Arc::ptr_eq(&first, &graph(check(&host, &source, folder.path()))));
        let strict = Policy { grants: Some(Default::default()), ..Policy::default() };
        let refused = check(&host.clone().within(Arc::new(strict)), &source, folder.path());
        assert!(refused.flow.is_none(), "{:?}", refused.diagnostics);
        assert!(Arc::ptr_eq(&first, &graph(check(&host, &source, folder.path()))));
    }

    #[test]
    fn one_tenant_forgets_its_own() {
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let numbered = |number: usize| flow(&format!("type: control.noop, input: {{ value: {number} }}"));
        let other = host.of("other".into());
        let kept = graph(check(&other, &numbered(0), folder.path()));
        let first = graph(check(&host, &numbered(0), folder.path()));
        (1..FLOWS).for_each(|number| _ = graph(check(&host, &numbered(number), folder.path())));
        assert!(Arc::ptr_eq(&first, &graph(check(&host, &numbered(0), folder.path()))));
        graph(check(&host, &numbered(FLOWS), folder.path()));
        assert!(!Arc::ptr_eq(&first, &graph(check(&host, &numbered(0), folder.path()))));
        assert!(Arc::ptr_eq(&kept, &graph(check(&other, &numbered(0), folder.path()))));
        // What is counted is what there is.
        let known = host.shared.checked.0.lock();
        let texts = known.flows.values().flat_map(|flows| flows.values()).map(|flow| flow.text);
        assert_eq!(known.text, texts.sum::<usize>());
    }
}
