//! Records what the check of a flow looks up besides the flow's text, such as files, agents and grants.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{Json, LimitRefusal, NodeLimits, Tenant};
use flowcell_flow::{
    CheckContext, CheckMode, Reach, Source, Start,
    graph::Graph,
    outline::{Outline, ScriptError},
};
use flowcell_services::egress::OriginGrants;

use crate::{
    host::{
        content::Content,
        folder::Folder,
        granted::{self, Granting},
        inspector::Inspector,
    },
    schedule,
    world::simulate::{SERVICES, Simulate},
};

/// Time of the checks of called flows after which one check begins no further ones.
const MAX_CALLED_TIME: Duration = Duration::from_secs(10);

/// Returns the reason why a flow that another one in a folder calls cannot run.
pub(crate) type CheckCalled = Box<dyn Fn(&Folder, &str) -> Option<String>>;

/// The context of a flow's check: its folder, and the rights of its tenant.
pub(crate) struct Surroundings {
    pub(crate) folder: Arc<Folder>,
    /// The capabilities that can be granted.
    pub(crate) capabilities: Vec<String>,
    pub(crate) granting: Granting,
    pub(crate) check_called: CheckCalled,
    /// True if diagnostics do not name other flows.
    pub(crate) hides_flows: bool,
}

impl Surroundings {
    /// Returns whether flows may name the agents of this machine, which belong to the user who started the process.
    fn has_agents(&self) -> bool {
        self.granting.tenant == Tenant::local()
    }
}

/// A recorded lookup. The function returns whether the lookup gives the same in another context.
pub(crate) type Lookup = Box<dyn Fn(&Surroundings) -> bool + Send + Sync>;

/// A context that records the lookups of a check, and the texts that the check reads.
pub(crate) struct RecordingContext {
    around: Surroundings,
    inspector: Inspector,
    lookups: RefCell<Vec<Lookup>>,
    files: RefCell<BTreeMap<String, String>>,
    flows: RefCell<BTreeMap<String, (String, String)>>,
    /// Whether flows exist that were not read.
    existing: RefCell<HashMap<String, bool>>,
    agents: RefCell<BTreeMap<String, (String, String)>>,
    outline: RefCell<Option<Outline>>,
    /// The names of flows that an unknown name may mean, once they were looked up.
    names: RefCell<Option<Vec<String>>>,
    /// The reasons why called flows cannot run; `None` for one that can.
    unusable: RefCell<HashMap<String, Option<String>>>,
    /// The time that the checks of called flows have taken.
    called_time: Cell<Duration>,
}

impl RecordingContext {
    pub(crate) fn new(around: Surroundings, inspector: Inspector) -> RecordingContext {
        let (files, flows, agents) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (lookups, outline, unusable) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (existing, names, called_time) = (RefCell::default(), RefCell::default(), Cell::default());
        RecordingContext {
            around,
            inspector,
            lookups,
            files,
            flows,
            existing,
            agents,
            outline,
            names,
            unusable,
            called_time,
        }
    }

    /// Returns the time that the inspection of scripts and the checks of called flows have taken.
    pub(crate) fn time_spent(&self) -> Duration {
        self.inspector.time_spent() + self.called_time.get()
    }

    /// Returns whether called flows were checked. The result of such a check may change without any lookup.
    pub(crate) fn has_checked_called(&self) -> bool {
        !self.unusable.borrow().is_empty()
    }

    /// Returns the texts and settings that the check of the flow has read.
    pub(crate) fn content(&self, source: &Source, graph: &Graph, start: &Start) -> Content {
        let packs = graph.nodes.iter().filter_map(|node| node.node_type.pack.as_ref());
        let outline = self.outline.take();
        Content {
            name: source.name.clone(),
            text: source.text.clone(),
            start: start.clone(),
            files: self.files.take(),
            flows: self.flows.take(),
            agents: self.agents.take(),
            services: self.around.granting.policy.most_granted(SERVICES).filter(|_| outline.is_some()),
            outline,
            simulate: Simulate::default(),
            packs: packs.map(|digest| (digest.0.to_string(), None)).collect(),
            built_in: BTreeSet::new(),
            home: None,
            called: BTreeMap::new(),
        }
    }

    /// Returns the recorded lookups, whose results may change later.
    pub(crate) fn lookups(self) -> Vec<Lookup> {
        self.lookups.into_inner()
    }

    fn record<T: Clone + PartialEq + Send + Sync + 'static>(
        &self,
        lookup: impl Fn(&Surroundings) -> T + Send + Sync + 'static,
    ) -> T {
        let found = lookup(&self.around);
        let before = found.clone();
        self.lookups.borrow_mut().push(Box::new(move |around| lookup(around) == before));
        found
    }
}

impl CheckContext for RecordingContext {
    fn mode(&self) -> CheckMode {
        self.around.folder.mode()
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let of = path.to_owned();
        let text = self.record(move |around| around.folder.read(&of))?;
        self.files.borrow_mut().insert(path.to_owned(), text.clone());
        Ok(text)
    }

    fn flow(&self, name: &str) -> Option<Source> {
        // An editor checks many corrected texts in one context, and each lookup keeps what it has found.
        if let Some((file, text)) = self.flows.borrow().get(name) {
            return Some(Source { name: file.clone(), text: text.clone() });
        }
        let of = name.to_owned();
        let source = self.record(move |around| around.folder.flow(&of))?;
        self.flows.borrow_mut().insert(name.to_owned(), (source.name.clone(), source.text.clone()));
        Some(source)
    }

    fn has_flow(&self, name: &str) -> bool {
        if self.flows.borrow().contains_key(name) {
            return true;
        }
        if let Some(known) = self.existing.borrow().get(name) {
            return *known;
        }
        let of = name.to_owned();
        let exists = self.record(move |around| around.folder.has_flow(&of));
        self.existing.borrow_mut().insert(name.to_owned(), exists);
        exists
    }

    fn advise_flow(&self, name: &str) -> String {
        self.around.folder.advise_flow(name)
    }

    fn flow_names(&self, most: usize) -> Vec<String> {
        let known = self.names.borrow().clone();
        known.unwrap_or_else(|| {
            let names = move |around: &Surroundings| match around.hides_flows {
                true => Vec::new(),
                false => around.folder.flow_names(most),
            };
            // The names may have a megabyte, so a remembered check keeps their hash.
            self.record(move |around| BuildHasherDefault::<DefaultHasher>::default().hash_one(names(around)));
            let names = names(&self.around);
            self.names.replace(Some(names.clone()));
            names
        })
    }

    fn unusable_flow(&self, name: &str) -> Option<String> {
        // A called flow is checked as a stored one, so that its own calls are not followed.
        if self.mode() != CheckMode::New {
            return None;
        }
        if let Some(known) = self.unusable.borrow().get(name) {
            return known.clone();
        }
        if self.called_time.get() >= MAX_CALLED_TIME {
            return None;
        }
        let since = Instant::now();
        let why = (self.around.check_called)(&self.around.folder, name);
        self.called_time.set(self.called_time.get() + since.elapsed());
        self.unusable.borrow_mut().insert(name.to_owned(), why.clone());
        why
    }

    fn check_signing_secret(&self, name: &str) -> Result<(), String> {
        let of = name.to_owned();
        self.record(move |around| around.granting.secrets.check_signing(&around.granting.tenant, &of))
    }

    fn locked_secret(&self, name: &str) -> Option<String> {
        let of = name.to_owned();
        self.record(move |around| around.granting.locked_secret(&of))
    }

    fn locked_credential(&self, name: &str) -> Option<String> {
        let of = name.to_owned();
        self.record(move |around| around.granting.locked_credential(&of))
    }

    fn agent(&self, name: &str) -> Option<Source> {
        let of = name.to_owned();
        let source = self.record(move |around| around.has_agents().then(|| around.folder.agent(&of)).flatten())?;
        self.agents.borrow_mut().insert(name.to_owned(), (source.name.clone(), source.text.clone()));
        Some(source)
    }

    fn agents(&self) -> Option<Vec<String>> {
        self.record(|around| if around.has_agents() { around.folder.agents() } else { Some(Vec::new()) })
    }

    fn capabilities(&self) -> Option<Vec<String>> {
        // The capabilities of a host never change.
        Some(self.around.capabilities.clone())
    }

    fn check_grant(&self, capability: &str, item: &Json) -> Result<(), String> {
        let (capability, item) = (capability.to_owned(), item.clone());
        self.record(move |around| granted::check(&around.granting, &capability, &item))
    }

    fn refused_limits(&self, asked: &NodeLimits) -> Vec<LimitRefusal> {
        let asked = *asked;
        self.record(move |around| granted::refused_limits(around.granting.limits, &around.granting.policy, &asked))
    }

    fn reach(&self, url: &str, grant: &Json) -> Option<Reach> {
        let reach = OriginGrants::parse(grant).ok()?.reach(url)?;
        let (origin, path) = (reach.origin.to_string(), reach.path);
        Some(Reach { origin, path, covers_origin: reach.covers_origin, covers_url: reach.covers_url })
    }

    fn most_granted(&self, capability: &str) -> Option<Vec<String>> {
        let capability = capability.to_owned();
        self.record(move |around| around.granting.policy.most_granted(&capability))
    }

    fn outline(&self, script: &Source) -> Result<Outline, ScriptError> {
        let outline = self.inspector.outline(script)?;
        *self.outline.borrow_mut() = Some(outline.clone());
        Ok(outline)
    }

    fn check_script(&self, script: &Source) -> Result<(), ScriptError> {
        self.inspector.outline(script).map(drop)
    }

    fn check_cron(&self, cron: &str) -> Result<(), String> {
        schedule::check_cron(cron)
    }

    fn check_time_zone(&self, name: &str) -> Result<(), String> {
        schedule::check_time_zone(name)
    }
}
