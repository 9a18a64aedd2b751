//! The homes of runs: what a run pins of the flows that it can call, and how that is found again.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::Arc,
};

use flowcell_contract::{Failure, RunId, Tenant, code};
use flowcell_flow::{Rules, agentic::flow_label};
use flowcell_runtime::{OpenError, ports::Pin};

use super::{Host, library::Library, loading::log_kept};
use crate::{
    FlowLibrary,
    blocking::blocking,
    content::Content,
    folder::Folder,
    home::{Callee, Home, PINNED_FLOWS, Place, granted_flows},
    loaded::LoadedFlow,
};

impl Host {
    /// The same flow with its home: every flow that its runs can call by a literal name or as a tool is loaded and pinned,
    /// and so are those that these can call. Reads files and checks flows; blocks meanwhile.
    pub(crate) fn bound(&self, flow: LoadedFlow) -> LoadedFlow {
        let home = Some(self.bind(&flow));
        LoadedFlow { home, ..flow }
    }

    /// Returns the home of a new run.
    pub(super) fn bind(&self, flow: &LoadedFlow) -> Arc<Home> {
        if let Some(home) = &flow.home {
            return home.clone();
        }
        let mut home = Home::new(flow.folder.clone());
        let mut open: VecDeque<String> = named(flow);
        while let Some(name) = open.pop_front() {
            if home.flows.contains_key(&name) {
                continue;
            }
            if home.flows.len() >= PINNED_FLOWS {
                tracing::warn!(
                    flow = flow.name(),
                    "the flow can call more than {PINNED_FLOWS} flows; a run looks the others up when it calls them"
                );
                break;
            }
            let callee = match self.load_called(&Home::new(flow.folder.clone()), &name) {
                Ok(called) => {
                    open.extend(named(&called));
                    Callee::Pinned(self.keep(self.content(&called)))
                }
                Err(failure) => Callee::Unusable(failure.message),
            };
            home.flows.insert(name, callee);
        }
        Arc::new(home)
    }

    /// Returns what a run calls, as it was when the run was accepted; none if the store has no such run.
    pub(super) fn library_of(&self, run: &RunId) -> Result<Option<Library>, OpenError> {
        let Some(record) = self.shared.journal.find(&self.tenant, run)? else { return Ok(None) };
        let content = self.content_of(&record.pin).map_err(OpenError::Pin)?;
        let home = Arc::new(self.home_in(&content));
        Ok(Some(Library::new(self.clone(), home).knowing(record.pin, content)))
    }

    /// Returns the home that a run's content records. Runs of older versions have the texts of the flows that they call, and
    /// no folder: it is the tenant's library, or the current folder.
    fn home_in(&self, content: &Content) -> Home {
        let library = self.library.as_ref().map(|all| FlowLibrary::of_tenant(all, &self.tenant).folder().to_owned());
        if let Some(place) = &content.home {
            return Home {
                folder: Arc::new(place.open(library).with_rules(Rules::Kept)),
                flows: content.called.clone(),
            };
        }
        let folder = library.map_or_else(|| self.current_folder(), Folder::library);
        let texts = content.flows.iter();
        let flows = texts.map(|(name, (file, text))| (name.clone(), Callee::Text(file.clone(), text.clone())));
        Home { folder: Arc::new(folder.with_rules(Rules::Kept)), flows: flows.collect() }
    }

    /// A home for what belongs to no run.
    pub(super) fn unpinned_home(&self) -> Arc<Home> {
        Arc::new(Home::new(Arc::new(self.current_folder())))
    }

    /// The current folder is that of the user who started the process, and of no other tenant.
    fn current_folder(&self) -> Folder {
        if self.tenant == Tenant::local() { Folder::of(Path::new("")) } else { Folder::nowhere() }
            .with_rules(Rules::Kept)
    }

    /// Loads a flow that a run calls: as it was pinned, or, under a computed name, as it is in the run's folder now.
    pub(crate) fn called(&self, home: &Arc<Home>, name: &str) -> Result<LoadedFlow, Failure> {
        let flow = self.load_called(home, name)?;
        Ok(LoadedFlow { home: Some(home.clone()), ..flow })
    }

    fn load_called(&self, home: &Home, name: &str) -> Result<LoadedFlow, Failure> {
        let unusable = |why: String| Failure::new(code::FLOW_NOT_FOUND, why);
        match home.flows.get(name) {
            Some(Callee::Pinned(hash)) => {
                let content = self.content_of(&Pin(hash.clone()))?;
                let (graph, warnings) = self.check_content(&content)?;
                log_kept(&self.tenant, &warnings);
                let (folder, content, warnings) = (home.folder.clone(), Arc::new(content), warnings.into());
                return Ok(LoadedFlow { graph, folder, content, home: None, warnings });
            }
            Some(Callee::Unusable(why)) => return Err(unusable(why.clone())),
            Some(Callee::Text(..)) | None => {}
        }
        let source = home.source(name);
        let source =
            source.ok_or_else(|| unusable(format!("there is no file `{name}.yaml` beside the calling flow")))?;
        let loaded = blocking(|| self.load_in(&source, home.folder.clone()));
        let flow = loaded.map_err(|error| unusable(format!("the flow `{name}` cannot be used: {error}")))?;
        match flow_label(flow.graph()).is_some_and(|label| label.disabled) {
            true => Err(unusable(format!("the flow `{name}` is disabled in its file"))),
            false => Ok(flow),
        }
    }

    /// Returns everything that a run of a flow pins, its home among it.
    pub(super) fn content_at(&self, flow: &LoadedFlow, home: &Home) -> Content {
        // Children of a run that an older version accepted find their own children as that run does.
        let old = home.flows.values().any(|callee| matches!(callee, Callee::Text(..)));
        let (place, called) = match old {
            true => (None, BTreeMap::new()),
            false => (Some(Place::of(&home.folder)), home.flows.clone()),
        };
        Content { home: place, called, ..self.content(flow) }
    }
}

/// Returns the names of the flows that a flow calls literally, or may call as tools.
fn named(flow: &LoadedFlow) -> VecDeque<String> {
    let called = flow.content.flows.keys().cloned();
    called.chain(granted_flows(flow.graph(), &flow.folder)).collect()
}
