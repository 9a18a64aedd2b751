//! Pins the content that a run's flow was checked from. The store has the content under its digest.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use flowcell_contract::{BlobRef, BuiltIn, Catalog, Digest, Failure, RunId, code};
use flowcell_flow::{
    CheckContext, Checked, Diagnostic, Severity,
    graph::{Graph, Node},
};
use flowcell_runtime::{
    OpenError, Pinned, RunGraphs,
    ports::{Pin, Record},
};
use serde::Serialize;

use super::{Host, checked::pinned_flows::PinnedFlow, known_pack::KnownPack, loading::register};
use crate::{
    host::{
        catalog,
        content::Content,
        error::StartError,
        home::{FlowLocation, Home},
        loaded::LoadedFlow,
    },
    world::simulate::Simulate,
};

const MIME: &str = "application/json";
const MIME_OF_PACKS: &str = "application/wasm";

/// Stores the content of a flow and its home, so that a run no longer depends on files.
pub(super) fn pin(host: &Host, flow: &LoadedFlow, home: &Home) -> Pinned {
    Pinned { graph: flow.graph.clone(), pin: Pin(store_content(host, content_at(host, flow, home))) }
}

/// Returns the content that a run of a flow pins, including its home.
pub(super) fn content_at(host: &Host, flow: &LoadedFlow, home: &Home) -> Content {
    let (place, called) = match home.is_old() {
        true => (None, BTreeMap::new()),
        false => (Some(FlowLocation::from_folder(&home.folder)), home.flows.clone()),
    };
    Content { home: place, called, simulate: Simulate::clone(&host.simulate), ..content(host, flow) }
}

/// Stores the packs of a flow, and returns the flow's content with the ids of their blobs.
pub(super) fn content(host: &Host, flow: &LoadedFlow) -> Content {
    let mut content = Content::clone(&flow.content);
    // Content that was pinned before already has its packs, also those of another version of this program.
    for (digest, blob) in content.packs.iter_mut().filter(|(_, blob)| blob.is_none()) {
        if catalog::find(digest).is_some() {
            content.built_in.insert(digest.clone());
        }
        *blob = keep_pack(host, digest);
    }
    content
}

/// Stores the content of a flow and returns its hash.
pub(super) fn store_content(host: &Host, content: Content) -> Arc<str> {
    let bytes = serde_json::to_vec(&content).unwrap_or_default();
    host.shared.blobs.put(&host.tenant, bytes.into(), MIME).file_id
}

/// Stores a pack by its digest, and returns the id of its blob. Returns `None` if the pack is unknown, or if it
/// is built in and the store is in memory.
fn keep_pack(host: &Host, digest: &str) -> Option<Arc<str>> {
    let mut packs = host.shared.packs.lock();
    let digest = Digest(digest.into());
    let (store, shared) = (&host.shared.store, &host.shared.shared);
    if store.is_none() && shared.is_none() {
        let bytes = packs.get(&digest)?.bytes.clone();
        return Some(host.shared.blobs.put(&host.tenant, bytes, MIME_OF_PACKS).file_id);
    }
    let built_in = || catalog::find(&digest.0).map(|pack| KnownPack::new(pack.bytes.into()));
    let known = match packs.get_mut(&digest) {
        Some(known) => known,
        None => packs.entry(digest.clone()).or_insert(built_in()?),
    };
    if known.is_due(&host.tenant, Instant::now()) {
        let keep = (host.tenant.clone(), known.bytes.clone());
        store.iter().for_each(|store| store.keep(&keep.0, &digest.0, keep.1.clone(), MIME_OF_PACKS));
        shared.iter().for_each(|store| store.keep(&keep.0, &digest.0, keep.1.clone(), MIME_OF_PACKS));
    }
    Some(digest.0)
}

/// Loads a flow from its pinned content.
pub(crate) fn pinned(host: &Host, pin: &Pin) -> Result<Arc<Graph>, Failure> {
    check_pinned(host, pin).map(|(graph, _)| graph)
}

/// Loads the flow of a run in all versions that the run has used.
pub(crate) fn graphs_of(host: &Host, record: &Record) -> Result<RunGraphs, Failure> {
    RunGraphs::load(record, |pin| pinned(host, pin))
}

/// Performs [`Host::warnings_of`].
pub(crate) fn warnings_of(host: &Host, run: &RunId) -> Vec<Diagnostic> {
    let record = host.record(run).ok().flatten();
    let checked = record.and_then(|record| check_pinned(host, &record.pin).ok());
    checked.map(|(_, warnings)| warnings).unwrap_or_default()
}

/// Loads a flow from its pinned content, with the warnings of its check.
pub(super) fn check_pinned(host: &Host, pin: &Pin) -> Result<(Arc<Graph>, Vec<Diagnostic>), Failure> {
    check_content(host, &content_of(host, pin)?)
}

/// Loads a flow from its pinned content, unless the host remembers it. `known` is the content if the caller has it.
pub(super) fn remembered(host: &Host, pin: &Pin, known: Option<&Content>) -> Result<PinnedFlow, Failure> {
    let (tenant, remembered) = (host.tenant(), &host.shared.pinned);
    if let Some(flow) = remembered.get(tenant, pin) {
        return Ok(flow);
    }
    let read;
    let content = match known {
        Some(content) => content,
        None => {
            read = content_of(host, pin)?;
            &read
        }
    };
    let (graph, warnings) = check_content(host, content)?;
    let flow = (graph, warnings.into());
    remembered.put(tenant, pin, PinnedFlow::clone(&flow), content.size());
    Ok(flow)
}

/// A pack that a run is pinned to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PinnedPack {
    /// The name of the pack, which is the prefix of its node types.
    pub name: String,
    /// The version of the pack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// SHA-256 of the component file, in hexadecimal.
    pub digest: String,
}

/// Performs [`Host::packs_of`].
pub(crate) fn packs_of(host: &Host, run: &RunId) -> Result<Vec<PinnedPack>, StartError> {
    let graph = pinned_graph(host, run)?;
    let pack = |node: &Node| {
        let node_type = &node.node_type;
        let name = node_type.name.split('.').next().unwrap_or_default().to_owned();
        let version = node_type.version.as_ref().map(ToString::to_string);
        Some(PinnedPack { name, version, digest: node_type.pack.as_ref()?.0.to_string() })
    };
    let packs: BTreeSet<PinnedPack> = graph.nodes.iter().filter_map(pack).collect();
    Ok(packs.into_iter().collect())
}

/// Performs [`Host::has_agents`].
pub(crate) fn has_agents(host: &Host, run: &RunId) -> Result<bool, StartError> {
    Ok(pinned_graph(host, run)?.nodes.iter().any(|node| node.node_type.asks_for(BuiltIn::Agent.name())))
}

/// Returns the graph of the flow that a run uses now.
fn pinned_graph(host: &Host, run: &RunId) -> Result<Arc<Graph>, StartError> {
    let record = host.record(run).map_err(OpenError::Store)?.ok_or_else(|| OpenError::Unknown(run.clone()))?;
    Ok(remembered(host, &record.pin, None).map_err(OpenError::Pin)?.0)
}

/// Reads the pinned content.
pub(super) fn content_of(host: &Host, pin: &Pin) -> Result<Content, Failure> {
    let bytes = read_stored(host, &pin.0, MIME)?;
    serde_json::from_slice(&bytes).map_err(|error| pin_error(&error))
}

/// Checks a flow from its content, and returns it with its warnings.
pub(super) fn check_content(host: &Host, content: &Content) -> Result<(Arc<Graph>, Vec<Diagnostic>), Failure> {
    let checked = check_with(host, content, content)?;
    let error = checked.diagnostics.iter().find(|finding| finding.severity == Severity::Error);
    match (checked.graph, error) {
        (Some(graph), _) => Ok((Arc::new(graph), checked.diagnostics)),
        (None, Some(error)) => Err(pin_error(&error.message)),
        (None, None) => Err(pin_error(&"it cannot be checked")),
    }
}

/// Checks a flow from its content, with the pinned packs. The check looks up files, agents and grants in `files`.
pub(super) fn check_with(host: &Host, content: &Content, files: &dyn CheckContext) -> Result<Checked, Failure> {
    Ok(flowcell_flow::load_from(&content.source(), &catalog_of(host, content)?, files, &content.start))
}

/// Returns the node types of the packs that a flow has pinned.
pub(super) fn catalog_of(host: &Host, content: &Content) -> Result<Catalog, Failure> {
    let mut catalog = Catalog::default();
    for (digest, blob) in &content.packs {
        let digest = Digest(digest.as_str().into());
        let kept = |blob| read_stored(host, blob, MIME_OF_PACKS).map(|bytes| bytes.to_vec());
        let came_along = content.built_in.contains(&*digest.0);
        let pack = match (blob, catalog::find(&digest.0)) {
            (_, Some(built_in)) => host.shared.engine.add_built_in(built_in.bytes, digest, built_in.name),
            // This pack came with another version of this program.
            (Some(blob), None) if came_along => {
                let origin = digest.to_string();
                host.shared.engine.add_built_in(kept(blob)?, digest, &origin)
            }
            (Some(blob), None) => host.shared.engine.add_pack(kept(blob)?, &digest.0),
            (None, None) => return Err(pin_error(&format!("the store does not have the pack {digest}"))),
        };
        let pack = pack.map_err(|error| pin_error(&error.kind))?;
        register(&mut catalog, pack, &content.name).map_err(|error| pin_error(&error))?;
    }
    Ok(catalog)
}

fn read_stored(host: &Host, hash: &Arc<str>, mime: &str) -> Result<Arc<[u8]>, Failure> {
    let blob = BlobRef { file_id: hash.clone(), size: 0, mime: mime.into() };
    match host.shared.blobs.get(&host.tenant, &blob) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(pin_error(&format!("the store does not have {hash}"))),
        Err(error) => Err(pin_error(&error)),
    }
}

fn pin_error(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(code::FLOW_NOT_FOUND, format!("cannot use the files that the run has pinned: {why}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_contract::Tenant;
    use flowcell_flow::Source;
    use sha2::{Digest as _, Sha256};

    use super::{super::homes, *};

    const FLOW: &str = "flow: { name: old }\nnodes: [{ id: a, type: control.noop }]\nedges: []\n";

    /// Returns a pack of an older program's catalog: the same pack with another section, and so with another digest.
    fn older() -> Vec<u8> {
        let control = catalog::PACKS.iter().find(|pack| pack.name == "control").unwrap();
        let section = [0, 5, 4, b'o', b'l', b'd', b'!'];
        [control.bytes, &section].concat()
    }

    #[test]
    fn a_run_continues_with_the_catalog_that_it_began_with() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::builder().without_cache().instances(4).state_dir(folder.path()).build().unwrap();
        let flow = host.load_source(Source { name: "old.yaml".into(), text: FLOW.into() }).unwrap();
        let begun = pin(&host, &flow, &homes::bind(&host, &flow));
        assert!(pinned(&host, &begun.pin).is_ok());

        let bytes = read_stored(&host, &begun.pin.0, MIME).unwrap();
        let mut content: Content = serde_json::from_slice(&bytes).unwrap();
        let older = older();
        let digest = hex::encode(Sha256::digest(&older));
        let blob = host.shared.blobs.put(&Tenant::local(), older.into(), MIME_OF_PACKS);
        content.packs = [(digest.clone(), Some(blob.file_id))].into();
        content.built_in = [digest.clone()].into();
        let pin = |content: &Content| {
            let bytes = serde_json::to_vec(content).unwrap();
            Pin(host.shared.blobs.put(&Tenant::local(), bytes.into(), MIME).file_id)
        };
        let graph = pinned(&host, &pin(&content)).unwrap();
        assert_eq!(graph.nodes[0].node_type.pack.as_ref().unwrap().0.as_ref(), digest);

        content.text = FLOW
            .replace("type: control.noop", "type: control.noop, input: { value: '{{ s.verdict }}' }")
            .replace("edges: []", "edges: [{ from: s, to: a }]")
            .replace("nodes: [", "nodes: [{ id: s, type: control.if, input: { condition: flow.input.ok } }, ");
        let (_, warnings) = check_pinned(&host, &pin(&content)).unwrap();
        let codes: Vec<_> = warnings.iter().map(|found| found.code).collect();
        assert_eq!(codes, ["unknown_member"], "a rule newer than the run");

        content.built_in.clear();
        let refused = pinned(&host, &pin(&content)).unwrap_err();
        assert!(refused.message.contains("reserved"), "{refused}");
    }
}
