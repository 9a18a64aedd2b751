//! Fetches packs from their sources.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use flowcell_engine::Limits;
use flowcell_services::{
    distribution::{self, Artifact, Content, Credentials, Realm, Reference, Registry, Wanted},
    egress::{Egress, EgressPolicy},
};

use super::{Arrival, CheckedIndex, InstallError, MAX_SIGNATURE, Signature, Source, Trust, index::MAX_INDEX};

/// The annotation with the signature of an artifact in a registry.
const ANNOTATION: &str = "flowcell.signature";
/// The ending of the signature file beside a pack.
const ENDING: &str = ".sig";
/// The content of an index in a registry.
const INDEX: Content = Content::Document("application/vnd.flowcell.index.v1+json");
/// The tag of an index whose reference names none.
const INDEX_TAG: &str = "latest";
/// The file name of an index in a registry, for other tools that pull it.
const INDEX_NAME: &str = "index.json";
/// The annotation of a layer with the name of its file.
const TITLE: &str = "org.opencontainers.image.title";

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

    /// Fetches an index of packs, and checks it. A place is a file, an address, or a reference.
    pub async fn fetch_index(&self, place: &str, trust: &Trust) -> Result<CheckedIndex, InstallError> {
        let (source, bytes) = match index_source(place) {
            Source::File(file) => {
                let bytes = read_file(&file, MAX_INDEX)?;
                let bytes = bytes.ok_or_else(|| InstallError::Nothing(file.display().to_string()))?;
                (Source::File(file), bytes)
            }
            source if self.offline => return Err(InstallError::Offline(source.to_string())),
            Source::Url(url) => {
                let bytes = self.get(&url, MAX_INDEX).await?.ok_or_else(|| InstallError::Nothing(url.clone()))?;
                (Source::Url(url), bytes)
            }
            Source::Registry(reference) => {
                let reference = with_index_tag(&reference);
                let registry = self.open_registry(&reference)?;
                let pulled = registry.pull(&reference.wanted, INDEX, MAX_INDEX).await.map_err(InstallError::Outside)?;
                (Source::Registry(reference), pulled.bytes.to_vec())
            }
        };
        CheckedIndex::read(source, &bytes, trust)
    }

    /// Publishes the bytes of an index to a registry, under a tag. Returns the reference with the tag. The next push under
    /// the same tag replaces the index. Fails if the index is not valid in a registry.
    pub async fn push_index(&self, reference: &Reference, bytes: Vec<u8>) -> Result<Reference, InstallError> {
        let reference = with_index_tag(reference);
        if !matches!(reference.wanted, Wanted::Tag(_)) {
            let why = format!(
                "an index is pushed under a tag, not as {reference}: write `:TAG`, or nothing for `{INDEX_TAG}`"
            );
            return Err(InstallError::Source(why));
        }
        if self.offline {
            return Err(InstallError::Offline(reference.to_string()));
        }
        CheckedIndex::read(Source::Registry(reference.clone()), &bytes, &Trust::default())?;
        let annotations = [(TITLE.to_owned(), INDEX_NAME.to_owned())].into();
        let artifact = Artifact { content: INDEX, bytes: bytes.into(), annotations, ..Artifact::default() };
        let registry = self.open_registry(&reference)?;
        registry.push(&artifact, &reference.wanted).await.map_err(InstallError::Outside)?;
        Ok(reference)
    }

    /// Downloads the file at an address. Returns `None` if there is none.
    async fn get(&self, url: &str, most: usize) -> Result<Option<Vec<u8>>, InstallError> {
        distribution::download(&self.egress, url, most).await.map_err(InstallError::Outside)
    }

    async fn download(&self, url: &str, most: usize) -> Result<Arrival, InstallError> {
        let bytes = self.get(url, most).await?.ok_or_else(|| InstallError::Nothing(url.to_owned()))?;
        let (path, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
        let beside = self.get(&format!("{path}{ENDING}{query}"), MAX_SIGNATURE).await?;
        let signature = beside.map(|bytes| parse_signature(&String::from_utf8_lossy(&bytes))).transpose()?;
        Ok(Arrival { source: Source::Url(url.to_owned()), bytes, signature })
    }

    async fn pull(&self, reference: &Reference) -> Result<Arrival, InstallError> {
        let registry = self.open_registry(reference)?;
        let wanted = match &reference.wanted {
            Wanted::Highest => Wanted::Version(registry.highest().await.map_err(InstallError::Outside)?),
            wanted => wanted.clone(),
        };
        let artifact =
            registry.pull(&wanted, Content::Component, max_pack_bytes()).await.map_err(InstallError::Outside)?;
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

/// Returns the place that a text names: an address, a file (`./packs`, `/packs`, `packs/index.json`), or else a reference if
/// it begins with the host of a registry (`ghcr.io/acme/packs`).
fn index_source(place: &str) -> Source {
    if place.contains("://") {
        return Source::Url(place.to_owned());
    }
    let is_path = place.starts_with(['.', '/']) || place.ends_with(".json");
    let reference = if is_path { None } else { place.parse().ok() };
    reference.map_or_else(|| Source::File(place.into()), Source::Registry)
}

/// Returns the reference of an index, whose tag is [`INDEX_TAG`] if it names none.
fn with_index_tag(reference: &Reference) -> Reference {
    match reference.wanted {
        Wanted::Highest => reference.with_wanted(Wanted::Tag(INDEX_TAG.to_owned())),
        _ => reference.clone(),
    }
}

/// Reads a file, and one byte more than the limit if the file is larger. Returns `None` if there is no such file.
fn read_file(path: &Path, most: usize) -> Result<Option<Vec<u8>>, InstallError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(|_| Some(bytes)).map_err(|source| InstallError::Read { path: path.to_owned(), source }),
    }
}

fn read(file: &Path, most: usize) -> Result<Arrival, InstallError> {
    let bytes = read_file(file, most)?.ok_or_else(|| InstallError::Nothing(file.display().to_string()))?;
    let beside = read_file(&signature_file(file), MAX_SIGNATURE)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_index_is_a_file_an_address_or_a_reference() {
        for (place, is_file, is_reference) in [
            ("index.json", true, false),
            ("packs/index.json", true, false),
            ("ghcr.io/acme/index.json", true, false),
            ("./ghcr.io/acme/packs", true, false),
            ("/srv/packs", true, false),
            ("packs", true, false),
            ("ghcr.io/acme/packs", false, true),
            ("localhost:5000/packs:next", false, true),
            ("https://example.com/index.json", false, false),
        ] {
            let source = index_source(place);
            assert_eq!(matches!(source, Source::File(_)), is_file, "{place}");
            assert_eq!(matches!(source, Source::Registry(_)), is_reference, "{place}");
        }
    }
}
