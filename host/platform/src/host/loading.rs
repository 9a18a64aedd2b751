//! Loads and checks flows, with the packs that they bring.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use flowcell_contract::{Catalog, Digest, Tenant};
use flowcell_engine::{Engine, Pack};
use flowcell_flow::{Diagnostic, Location, PackRef, Severity, Source, Start, agentic::flow_label};

use super::{Host, known_pack::KnownPack, pack_changes::PackChanges};
use crate::{
    host::{
        error::{Error, LoadError},
        folder::{Folder, read_source},
        granted::{Granting, grantable},
        inspector::Inspector,
        loaded::{CheckedFlow, LoadedFlow, log_broken_rules},
        reading::{RecordingContext, Surroundings},
    },
    packs::{InstallError, LockedPack, PackId},
};

/// Performs [`Host::load_flow`].
pub(crate) fn load_flow(host: &Host, path: &Path) -> Result<LoadedFlow, LoadError> {
    accept(check_flow(host, path)?)
}

/// Performs [`Host::load_source`].
pub(crate) fn load_source(host: &Host, source: &Source) -> Result<LoadedFlow, LoadError> {
    load_in(host, source, Arc::new(Folder::of(Path::new(&source.name))))
}

/// Performs [`Host::check_flow`].
pub(crate) fn check_flow(host: &Host, path: &Path) -> Result<CheckedFlow, Error> {
    let source = read_source(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    Ok(check_in(host, &source, Arc::new(Folder::of(path)), &Start::default()))
}

/// Performs [`Host::check_alone`].
pub(crate) fn check_alone(host: &Host, source: &Source, folder: Folder) -> CheckedFlow {
    check_in(host, source, Arc::new(folder), &Start::default())
}

/// Loads an agentic flow with start settings that replace the settings in its file. Also returns the check's
/// diagnostics.
pub(crate) fn load_flow_as(
    host: &Host,
    path: &Path,
    start: &Start,
) -> Result<(LoadedFlow, Vec<Diagnostic>), LoadError> {
    let source = read_source(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let checked = check_in(host, &source, Arc::new(Folder::of(path)), start);
    match checked.flow {
        Some(flow) => Ok((flow, checked.diagnostics)),
        None => Err(LoadError::Invalid(checked.diagnostics)),
    }
}

pub(crate) fn load_in(host: &Host, source: &Source, folder: Arc<Folder>) -> Result<LoadedFlow, LoadError> {
    accept(check_in(host, source, folder, &Start::default()))
}

pub(crate) fn check_in(host: &Host, source: &Source, folder: Arc<Folder>, start: &Start) -> CheckedFlow {
    let (around, types) = (surroundings(host, folder), host.catalog());
    let plain = *start == Start::default();
    let known = plain.then(|| host.shared.checked.get(&host.tenant, source, &around, &types)).flatten();
    known.unwrap_or_else(|| check_anew(host, source, around, start, &types, Remember::IfSame))
}

/// Performs [`Host::check_source`].
pub(crate) fn check_source(host: &Host, source: &Source) -> CheckedFlow {
    let around = surroundings(host, Arc::new(Folder::of(Path::new(&source.name))));
    check_anew(host, source, around, &Start::default(), &host.catalog(), Remember::Never)
}

/// Performs [`Host::checked_before`].
pub(crate) fn checked_before(host: &Host, source: &Source, folder: &Folder) -> Option<CheckedFlow> {
    host.shared.checked.get_without_lookups(&host.tenant, source, folder, &host.catalog())
}

/// Whether the host keeps the result of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remember {
    /// A later check of the same text uses the result while each lookup of the check gives the same.
    IfSame,
    /// An editor checks many texts once.
    Never,
}

fn check_anew(
    host: &Host,
    source: &Source,
    around: Surroundings,
    start: &Start,
    types: &Arc<Catalog>,
    remember: Remember,
) -> CheckedFlow {
    let since = Instant::now();
    let folder = around.folder.clone();
    let named = flowcell_flow::packs(source);
    let (catalog, mut diagnostics) = catalog_with(host, types, &named, source, &folder);
    let sound = diagnostics.is_empty();
    let inspector = Inspector::new(host.shared.engine.clone(), catalog.clone(), host.tenant.clone());
    let reading = RecordingContext::new(around, inspector);
    let checked = flowcell_flow::load_from(source, &catalog, &reading, start);
    let graph = checked.graph.filter(|_| sound);
    diagnostics.extend(checked.diagnostics);
    diagnostics.sort_by_key(|finding| (finding.location.line, finding.location.column));
    log_broken_rules(&host.tenant, &diagnostics);
    let flow = graph.map(|graph| {
        let content = Arc::new(reading.content(source, &graph, start));
        let warnings = diagnostics.as_slice().into();
        LoadedFlow { graph: Arc::new(graph), folder, content, home: None, version: None, warnings }
    });
    let checked = CheckedFlow { flow, diagnostics };
    // The engine has already charged for the scripts.
    host.shared.engine.charge(&host.tenant, since.elapsed().saturating_sub(reading.time_spent()));
    // A flow that names pack files or calls flows is not remembered, since those may change.
    let is_same = named.is_empty() && *start == Start::default() && !reading.has_checked_called();
    if remember == Remember::IfSame && is_same {
        host.shared.checked.put(&host.tenant, source, &checked, reading.lookups(), types);
    }
    checked
}

/// Returns the context in which a flow's check looks up files, agents and grants.
pub(super) fn surroundings(host: &Host, folder: Arc<Folder>) -> Surroundings {
    let capabilities = grantable(host);
    let granting = Granting {
        tenant: host.tenant.clone(),
        secrets: host.shared.secrets.clone(),
        policy: host.policy.clone(),
        vault: host.shared.vault.clone(),
        limits: host.shared.engine.granted_limits(),
    };
    let own = host.clone();
    let check_called = Box::new(move |folder: &Folder, name: &str| reason_against(&own, folder, name));
    Surroundings { folder, capabilities, granting, check_called, hides_flows: host.hides_flows }
}

/// Returns the reason why the flow `name`, which a flow in `folder` calls, cannot run. Returns `None` if it can, or if
/// it does not exist.
fn reason_against(host: &Host, folder: &Folder, name: &str) -> Option<String> {
    let (source, folder) = folder.find_called(name)?;
    match load_in(host, &source, Arc::new(folder)) {
        Ok(flow) if flow_label(flow.graph()).is_some_and(|label| label.disabled) => Some("its file disables it".into()),
        Ok(_) => None,
        Err(LoadError::Host(error)) => Some(error.to_string()),
        Err(LoadError::Invalid(found)) => {
            let error = found.into_iter().find(|found| found.severity == Severity::Error)?;
            let is_here = error.location.file == source.name;
            let line = if is_here { format!("line {}: ", error.location.line) } else { String::new() };
            Some(format!("{line}{} ({})", error.message, error.code))
        }
    }
}

/// Returns the node types of the host with those of the packs that a flow names, and the diagnostics of these packs.
pub(super) fn catalog_with(
    host: &Host,
    types: &Arc<Catalog>,
    named: &[PackRef],
    source: &Source,
    folder: &Folder,
) -> (Arc<Catalog>, Vec<Diagnostic>) {
    if named.is_empty() {
        return (types.clone(), Vec::new());
    }
    let mut catalog = Catalog::clone(types);
    let mut findings = Vec::new();
    for PackRef { path, location: place } in named {
        // The files of this machine belong to the user who started the process, and to no other tenant.
        if folder.is_nowhere() || host.tenant != Tenant::local() {
            findings.push(Error::NoFolder.at(source, place.clone()));
            continue;
        }
        let shown = folder.join(path);
        let found = folder.resolve_pack(path).map_err(|source| Error::Read { path: shown.clone(), source });
        let added = found.and_then(|file| add_pack_file(&host.shared.engine, &mut catalog, &file, &shown));
        match added {
            Ok(pack) if !host.policy.allows_pack(&pack.digest.0) => {
                findings.push(pack_denied(source, place.clone(), &pack.digest.0));
            }
            Ok(pack) => remember_packs(host, [(pack.digest, pack.bytes)]),
            Err(error) => findings.push(error.at(source, place.clone())),
        }
    }
    (Arc::new(catalog), findings)
}

/// Performs [`Host::pack_readme`].
pub(crate) fn pack_readme(host: &Host, pack: &Digest) -> Option<String> {
    host.shared.engine.pack_readme(pack)
}

/// Performs [`Host::pack_size`].
pub(crate) fn pack_size(host: &Host, pack: &Digest) -> Option<usize> {
    host.shared.engine.pack_size(pack)
}

/// Performs [`Host::reload_packs`].
pub(crate) fn reload_packs(host: &Host) -> Result<PackChanges, Error> {
    let changes = host.shared.node_types.reload(|packs| remember_packs(host, packs))?;
    if !changes.is_empty() {
        host.shared.checked.forget_all();
    }
    Ok(changes)
}

/// Remembers the bytes of packs, so that runs can pin them.
pub(super) fn remember_packs(host: &Host, packs: impl IntoIterator<Item = (Digest, Arc<[u8]>)>) {
    let mut known = host.shared.packs.lock();
    packs.into_iter().for_each(|(digest, bytes)| _ = known.entry(digest).or_insert(KnownPack::new(bytes)));
}

/// Reports a pack that the operator does not let the tenant use.
pub(super) fn pack_denied(source: &Source, place: Location, digest: &str) -> Diagnostic {
    let message = format!("the operator does not allow this tenant the pack {digest}");
    Diagnostic::error("pack_denied", &source.text, place, &message, None)
}

fn accept(checked: CheckedFlow) -> Result<LoadedFlow, LoadError> {
    checked.flow.ok_or(LoadError::Invalid(checked.diagnostics))
}

/// A pack that was added to an engine and a catalog.
pub(super) struct AddedPack {
    pub(super) id: PackId,
    pub(super) digest: Digest,
    pub(super) bytes: Arc<[u8]>,
}

/// Adds the pack of a file to an engine and a catalog. Error messages name the file as `shown`.
pub(super) fn add_pack_file(
    engine: &Engine,
    catalog: &mut Catalog,
    file: &Path,
    shown: &Path,
) -> Result<AddedPack, Error> {
    let bytes: Arc<[u8]> = fs::read(file).map_err(|source| Error::Read { path: shown.to_owned(), source })?.into();
    let origin = shown.display().to_string();
    let pack = engine.add_pack(bytes.to_vec(), &origin)?;
    let (id, digest) = (PackId::of(&pack.manifest), pack.digest.clone());
    register(catalog, pack, &origin)?;
    Ok(AddedPack { id, digest, bytes })
}

/// Adds a pinned pack to an engine and a catalog. It fails if the pack's name and version differ from those in the lock.
pub(super) fn add_locked_pack(engine: &Engine, catalog: &mut Catalog, locked: LockedPack) -> Result<AddedPack, Error> {
    let LockedPack { id, bytes, signer: _ } = locked;
    let origin = format!("{id} of the lock");
    let pack = engine.add_pack(bytes.clone(), &origin)?;
    let (found, digest) = (PackId::of(&pack.manifest), pack.digest.clone());
    if found != id {
        return Err(InstallError::Other { wanted: id.to_string(), origin, found }.into());
    }
    register(catalog, pack, &origin)?;
    Ok(AddedPack { id, digest, bytes: bytes.into() })
}

/// Adds the node types of a pack to a catalog. It fails if another pack has one of their names.
pub(super) fn register(catalog: &mut Catalog, pack: Pack, origin: &str) -> Result<(), Error> {
    let version = pack.manifest.version.clone();
    match catalog.add(pack.manifest, &pack.digest).first() {
        None => Ok(()),
        Some(taken) => Err(Error::Taken { origin: origin.to_owned(), node_type: format!("{taken}@{version}") }),
    }
}

/// Returns the pack files in the folder `path`, sorted by name. If `path` is a file, returns only this file.
pub(super) fn pack_files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |source| Error::Read { path: path.to_owned(), source };
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).map_err(read)?;
    let mut files =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(read)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "wasm"));
    files.sort();
    Ok(files)
}
