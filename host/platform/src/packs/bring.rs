//! Fetches packs from their sources.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use flowcell_engine::Limits;
use flowcell_services::{
    distribution::{self, Artifact, Credentials, Realm, Reference, Registry, Wanted},
    egress::{Egress, EgressPolicy},
};

use super::{Arrival, InstallError, MAX_SIGNATURE, Signature, Source, index::MAX_INDEX};

/// The annotation with the signature of an artifact in a registry.
const ANNOTATION: &str = "flowcell.signature";
/// The ending of the signature file beside a pack.
const ENDING: &str = ".sig";

/// Fetches packs from their sources, and publishes them to registries.
pub struct PackClient {
    egress: Egress,
    /// The host name of the default registry, the only registry that gets `credentials`.
    home: Option<String>,
    credentials: Option<Credentials>,
    realms: Vec<Realm>,
    offline: bool,
}

impl PackClient {
    /// Creates a client. Only `registry` receives these credentials; other registries receive those of `docker login`.
    /// If `offline` is true, the client makes no connection, and reads only files.
    pub fn new(
        registry: Option<&str>,
        credentials: Option<Credentials>,
        offline: bool,
    ) -> Result<PackClient, InstallError> {
        let egress = Egress::new(EgressPolicy::default()).map_err(InstallError::Outside)?;
        let home = registry.map(|registry| registry.split('/').next().unwrap_or(registry).to_owned());
        Ok(PackClient { egress, home, credentials, realms: Vec::new(), offline })
    }

    /// Returns the same client, which also sends a registry's credentials to these token servers.
    pub fn trusting(self, realms: Vec<Realm>) -> PackClient {
        PackClient { realms, ..self }
    }

    /// Fetches a pack, and its signature if there is one.
    pub async fn fetch(&self, source: &Source) -> Result<Arrival, InstallError> {
        match source {
            Source::File(file) => read(file, max_pack_bytes()),
            _ if self.offline => Err(InstallError::Offline(source.to_string())),
            Source::Url(url) => self.download(url, max_pack_bytes()).await,
            Source::Registry(reference) => self.pull(reference).await,
        }
    }

    /// Fetches an index of packs from a file or an address, with its signature if there is one.
    pub async fn fetch_index(&self, place: &str) -> Result<Arrival, InstallError> {
        match place.contains("://") {
            true if self.offline => Err(InstallError::Offline(place.to_owned())),
            true => self.download(place, MAX_INDEX).await,
            false => read(Path::new(place), MAX_INDEX),
        }
    }

    async fn download(&self, url: &str, most: usize) -> Result<Arrival, InstallError> {
        let get = async |url: &str, most| {
            distribution::download(&self.egress, url, most).await.map_err(InstallError::Outside)
        };
        let bytes = get(url, most).await?.ok_or_else(|| InstallError::Nothing(url.to_owned()))?;
        let (path, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
        let beside = get(&format!("{path}{ENDING}{query}"), MAX_SIGNATURE).await?;
        let signature = beside.map(|bytes| parse_signature(&String::from_utf8_lossy(&bytes))).transpose()?;
        Ok(Arrival { source: Source::Url(url.to_owned()), bytes, signature })
    }

    async fn pull(&self, reference: &Reference) -> Result<Arrival, InstallError> {
        let registry = self.open_registry(reference)?;
        let wanted = match &reference.wanted {
            Wanted::Highest => Wanted::Version(registry.highest().await.map_err(InstallError::Outside)?),
            wanted => wanted.clone(),
        };
        let artifact = registry.pull(&wanted, max_pack_bytes()).await.map_err(InstallError::Outside)?;
        let signature = artifact.annotations.get(ANNOTATION).map(|text| parse_signature(text)).transpose()?;
        Ok(Arrival {
            source: Source::Registry(reference.with_wanted(wanted)),
            bytes: artifact.bytes.to_vec(),
            signature,
        })
    }

    /// Publishes a pack to a registry. An existing version stays unchanged, but a signature may be added to it.
    pub async fn push(
        &self,
        reference: &Reference,
        mut artifact: Artifact,
        signature: Option<Signature>,
    ) -> Result<(), InstallError> {
        if self.offline {
            return Err(InstallError::Offline(reference.to_string()));
        }
        let registry = self.open_registry(reference)?;
        if let Wanted::Version(version) = &reference.wanted {
            let there = registry.digest(version).await.map_err(InstallError::Outside)?;
            let here = flowcell_engine::digest(&artifact.bytes);
            if let Some(there) = there.filter(|there| *there != here.to_string()) {
                return Err(InstallError::Published { reference: reference.to_string(), there, here });
            }
        }
        artifact.annotations.extend(signature.map(|signature| (ANNOTATION.to_owned(), signature.to_string())));
        registry.push(&artifact, &reference.wanted).await.map_err(InstallError::Outside)
    }

    fn open_registry(&self, reference: &Reference) -> Result<Registry, InstallError> {
        let own = self.credentials.clone().filter(|_| self.home.as_ref() == Some(&reference.registry));
        let credentials = match own {
            Some(own) => Some(own),
            None => Credentials::from_docker_login(&reference.registry).map_err(InstallError::Outside)?,
        };
        let registry = Registry::open(&self.egress, reference, credentials).map_err(InstallError::Outside)?;
        Ok(registry.with_realms(&self.realms))
    }
}

/// Returns the path of the signature file beside a pack's file.
pub fn signature_file(pack: &Path) -> PathBuf {
    let mut path = pack.as_os_str().to_owned();
    path.push(ENDING);
    path.into()
}

fn read(file: &Path, most: usize) -> Result<Arrival, InstallError> {
    let bounded = |path: &Path, most: usize| -> Result<Option<Vec<u8>>, InstallError> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(|_| Some(bytes)).map_err(|source| InstallError::Read { path: path.to_owned(), source }),
        }
    };
    // One byte more than the limit reveals a file that is too large.
    let bytes = bounded(file, most)?.ok_or_else(|| InstallError::Nothing(file.display().to_string()))?;
    let beside = bounded(&signature_file(file), MAX_SIGNATURE)?;
    let signature = beside.map(|bytes| parse_signature(&String::from_utf8_lossy(&bytes))).transpose()?;
    Ok(Arrival { source: Source::File(file.to_owned()), bytes, signature })
}

/// Returns the maximum size of a pack in bytes.
fn max_pack_bytes() -> usize {
    Limits::default().component
}

fn parse_signature(text: &str) -> Result<Signature, InstallError> {
    text.parse().map_err(InstallError::Source)
}
