//! The homes of runs. A home contains the flows that a run pins for its calls, and the folder in which other flows are
//! looked up.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::Arc,
};

use flowcell_contract::{Failure, Tenant, code};
use flowcell_flow::{CheckMode, agentic::flow_label};
use flowcell_runtime::{blocking::blocking, ports::Pin};
use parking_lot::Mutex;

use super::{Host, loading, pin};
use crate::host::{
    content::Content,
    folder::{Folder, library_of},
    home::{Callee, Home, MAX_PINNED_FLOWS, granted_flows},
    loaded::{LoadedFlow, log_broken_rules},
};

/// The homes of a run and of the runs below it, by the pins of their flows.
pub(super) struct Homes {
    /// The home of the run for which these homes were created. Runs whose flows have pinned no home have this home too.
    usual: Arc<Home>,
    /// The host through which the pinned content of flows is read.
    host: Host,
    known: Mutex<HashMap<Pin, Arc<Home>>>,
}

impl Homes {
    /// Creates the homes of a run and of the runs below it. `usual` is the home of that run.
    pub(super) fn new(host: Host, usual: Arc<Home>) -> Homes {
        Homes { usual, host, known: Mutex::default() }
    }

    /// Returns the home of the run for which these homes were created.
    pub(super) fn usual(&self) -> &Arc<Home> {
        &self.usual
    }

    /// Records the home that a flow was pinned with.
    pub(super) fn record(&self, pin: &Pin, home: &Arc<Home>) {
        self.known.lock().insert(pin.clone(), home.clone());
    }

    /// Returns the home of a run, by the pin of its flow.
    pub(super) fn find(&self, pin: &Pin) -> Result<Arc<Home>, Failure> {
        let mut known = self.known.lock();
        if let Some(home) = known.get(pin) {
            return Ok(home.clone());
        }
        let content = pin::content_of(&self.host, pin)?;
        // Child runs of a run that an older version accepted resolve their own calls as that run does.
        let home = if content.home.is_some() { Arc::new(home_in(&self.host, &content)) } else { self.usual.clone() };
        known.insert(pin.clone(), home.clone());
        Ok(home)
    }
}

/// Performs [`Host::with_home`].
pub(crate) fn with_home(host: &Host, flow: LoadedFlow) -> LoadedFlow {
    let home = Some(bind(host, &flow));
    LoadedFlow { home, ..flow }
}

/// Returns the home of a new run.
pub(super) fn bind(host: &Host, flow: &LoadedFlow) -> Arc<Home> {
    let new = || Arc::new(pin_called(host, Home::new(flow.folder.clone()), flow));
    flow.home.clone().unwrap_or_else(new)
}

/// Adds to a home the flows that `flow` can call. Flows that the home has already pinned stay unchanged.
fn pin_called(host: &Host, mut home: Home, flow: &LoadedFlow) -> Home {
    let beside = Home::new(flow.folder.clone());
    let most = home.flows.len() + MAX_PINNED_FLOWS;
    let mut open: VecDeque<String> = called_names(flow);
    while let Some(name) = open.pop_front() {
        if home.flows.contains_key(&name) {
            continue;
        }
        if home.flows.len() >= most {
            tracing::warn!(
                flow = flow.name(),
                "the flow can call more than {MAX_PINNED_FLOWS} flows; a run finds the others when it calls them"
            );
            break;
        }
        let callee = match load_called(host, &beside, &name) {
            Ok(called) => {
                open.extend(called_names(&called));
                Callee::Pinned(pin::store_content(host, pin::content(host, &called)))
            }
            Err(failure) => Callee::Unusable(failure.message),
        };
        home.flows.insert(name, callee);
    }
    home
}

/// Returns the home that a run's content records. Content of older versions has only the texts of the called
/// flows. Then the folder of the home is the tenant's library or the current folder.
pub(super) fn home_in(host: &Host, content: &Content) -> Home {
    let library = host.library.as_ref().map(|all| library_of(all, &host.tenant));
    if let Some(place) = &content.home {
        return Home {
            folder: Arc::new(place.open(library, host.posted()).with_mode(CheckMode::Stored)),
            flows: content.called.clone(),
        };
    }
    let in_library = |path| Folder::of_library(path).with_posted(host.posted());
    let folder = library.map_or_else(|| current_folder(host), in_library);
    let texts = content.flows.iter();
    let flows = texts.map(|(name, (file, text))| (name.clone(), Callee::Text(file.clone(), text.clone())));
    Home { folder: Arc::new(folder.with_mode(CheckMode::Stored)), flows: flows.collect() }
}

/// Returns a home for work that belongs to no run.
pub(super) fn unpinned(host: &Host) -> Arc<Home> {
    Arc::new(Home::new(Arc::new(current_folder(host))))
}

/// Returns the current folder for `local`, and no folder for other tenants, because the current folder belongs to
/// the user who started the process.
fn current_folder(host: &Host) -> Folder {
    if host.tenant == Tenant::local() { Folder::of(Path::new("")) } else { Folder::nowhere() }
        .with_mode(CheckMode::Stored)
}

/// Loads the flow `name` that a run with this home calls. If the home has pinned the flow, loads the flow as it was
/// pinned. Otherwise the run has computed the name, and the method loads the present flow in the home's folder. The
/// loaded flow then gets a home that also pins the flows that it can call.
pub(super) fn called(host: &Host, home: &Arc<Home>, name: &str) -> Result<LoadedFlow, Failure> {
    let flow = load_called(host, home, name)?;
    let home = match home.flows.contains_key(name) || home.is_old() {
        true => home.clone(),
        false => Arc::new(pin_called(host, home.as_ref().clone(), &flow)),
    };
    Ok(LoadedFlow { home: Some(home), ..flow })
}

pub(super) fn load_called(host: &Host, home: &Home, name: &str) -> Result<LoadedFlow, Failure> {
    let unusable = |why: String| Failure::new(code::FLOW_NOT_FOUND, why);
    match home.flows.get(name) {
        Some(Callee::Pinned(hash)) => {
            let content = pin::content_of(host, &Pin(hash.clone()))?;
            let (graph, warnings) = pin::check_content(host, &content)?;
            log_broken_rules(&host.tenant, &warnings);
            let (folder, content, warnings) = (home.folder.clone(), Arc::new(content), warnings.into());
            return Ok(LoadedFlow { graph, folder, content, home: None, version: None, warnings });
        }
        Some(Callee::Unusable(why)) => return Err(unusable(why.clone())),
        Some(Callee::Text(..)) | None => {}
    }
    let source = blocking(|| home.source(name));
    let missing = || match &home.folder {
        folder if folder.has_library() => format!("the library has no flow `{name}`"),
        folder if folder.is_nowhere() => {
            format!("unknown flow `{name}`: the calling flow came with a request that may not read the stored flows")
        }
        _ => format!("the file `{name}.yaml` next to the calling flow does not exist"),
    };
    let found = source.ok_or_else(|| unusable(home.folder.explain_refusal(name).unwrap_or_else(missing)));
    let (source, folder) = found?;
    let loaded = blocking(|| loading::load_in(host, &source, folder));
    let flow = loaded.map_err(|error| unusable(format!("cannot use the flow `{name}`: {error}")))?;
    match flow_label(flow.graph()).is_some_and(|label| label.disabled) {
        true => Err(unusable(format!("the flow `{name}` is disabled in its file"))),
        false => Ok(flow),
    }
}

/// Returns the names of the flows that a flow calls by a literal name, or may call as tools.
pub(crate) fn called_names(flow: &LoadedFlow) -> VecDeque<String> {
    let called = flow.content.flows.keys().cloned();
    called.chain(granted_flows(flow.graph(), &flow.folder)).collect()
}
