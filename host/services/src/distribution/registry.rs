//! One repository of a registry, over the protocol of the Open Container Initiative.

use bytes::Bytes;
use flowcell_contract::{BINARY, Failure};
use hyper::{
    Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LINK, LOCATION},
};
use parking_lot::Mutex;
use semver::Version;
use serde::Deserialize;
use url::{Host, Url};
use zeroize::Zeroizing;

use super::{
    MAX_DOCUMENT_BYTES, MAX_PAGES, PAGE_SIZE,
    access::{self, Access},
    artifact::{Artifact, Content, MANIFEST_TYPE, Manifest},
    credentials::Credentials,
    digest::sha256,
    realm::Realm,
    reference::{Reference, Wanted, tag_of, version_of},
    wire::{Ask, Reply, Wire, is_this_machine, refusal},
};
use crate::{
    code,
    egress::Egress,
    redaction::{Redaction, SearchBudget},
    secret::Key,
};

/// One repository of a registry.
pub struct Registry {
    wire: Wire,
    /// The registry and the repository, for messages: `ghcr.io/acme/greet`.
    name: String,
    /// The repository within the registry: `acme/greet`.
    repository: String,
    /// The base URL: `https://ghcr.io/v2/acme/greet`.
    base: String,
    /// The registry's name in references.
    registry: String,
    credentials: Option<Credentials>,
    /// Token servers that may see the credentials, beside the registry.
    realms: Vec<Realm>,
    /// The last value of the header `authorization` that the host sent; `None` before the registry demands one.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A page of tags.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

impl Registry {
    /// Opens the repository that a reference names.
    pub fn open(egress: &Egress, reference: &Reference, credentials: Option<Credentials>) -> Result<Registry, Failure> {
        let Reference { registry, repository, .. } = reference;
        // Docker's registry answers at another host than its name in references.
        let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
        let local = Url::parse(&format!("http://{host}")).is_ok_and(|url| is_local(&url));
        let base = format!("{}://{host}/v2/{repository}", if local { "http" } else { "https" });
        Ok(Registry {
            wire: Wire::new(egress, &base)?,
            name: format!("{registry}/{repository}"),
            repository: repository.clone(),
            base,
            registry: registry.clone(),
            credentials,
            realms: Vec::new(),
            authorization: Mutex::default(),
        })
    }

    /// Returns the same repository, whose credentials may also be sent to these token servers.
    pub fn with_realms(self, realms: &[Realm]) -> Registry {
        Registry { realms: realms.to_vec(), ..self }
    }

    /// Returns the versions of the repository, the highest first.
    pub async fn versions(&self) -> Result<Vec<Version>, Failure> {
        let listed = self.list().await;
        self.redacted(listed).await
    }

    async fn list(&self) -> Result<Vec<Version>, Failure> {
        let mut url = format!("{}/tags/list?n={PAGE_SIZE}", self.base);
        let mut versions = Vec::new();
        for _ in 0..MAX_PAGES {
            let reply = self.ask(Ask::get(&url, MAX_DOCUMENT_BYTES)).await?;
            if reply.status == StatusCode::NOT_FOUND {
                return Err(self.missing("no version"));
            }
            let reply = self.require_status(reply, &[StatusCode::OK])?;
            let page: Page = serde_json::from_slice(&reply.body)
                .map_err(|error| refusal(&url, &format!("sends no valid list of tags: {error}")))?;
            versions.extend(page.tags.iter().flatten().filter_map(|tag| version_of(tag)));
            match next_page(&url, &reply) {
                Some(next) => url = next,
                None => break,
            }
        }
        versions.sort_by(|a, b| b.cmp(a));
        Ok(versions)
    }

    /// Returns the highest version that is not a pre-release. If all versions are pre-releases, returns the highest of
    /// them.
    pub async fn highest(&self) -> Result<Version, Failure> {
        let versions = self.versions().await?;
        let last = versions.iter().find(|version| version.pre.is_empty()).or(versions.first());
        last.cloned().ok_or_else(|| self.missing("no version"))
    }

    /// Pulls an artifact whose content has at most `most` bytes. Checks the content against the digest in its manifest.
    pub async fn pull(&self, wanted: &Wanted, content: Content, most: usize) -> Result<Artifact, Failure> {
        let pulled = self.artifact(wanted, content, most).await;
        let mut artifact = self.redacted(pulled).await?;
        let redaction = self.redaction();
        for (name, text) in std::mem::take(&mut artifact.annotations) {
            artifact.annotations.insert(redaction.text(&name).await, redaction.text(&text).await);
        }
        Ok(artifact)
    }

    async fn artifact(&self, wanted: &Wanted, content: Content, most: usize) -> Result<Artifact, Failure> {
        let highest = match wanted {
            Wanted::Highest => Some(tag_of(&self.highest().await?)),
            _ => None,
        };
        let path = highest.or_else(|| wanted.to_path_segment()).unwrap_or_default();
        let manifest = self.manifest(&path, content).await?.ok_or_else(|| self.missing(&format!("no `{path}`")))?;
        let layer = manifest.layer().ok_or_else(|| self.missing("no content"))?;
        if layer.size > most as u64 {
            let why = format!("{}: the content has {} bytes; the limit is {most}", self.name, layer.size);
            return Err(Failure::new(code::BODY_TOO_LARGE, why));
        }
        let url = format!("{}/blobs/{}", self.base, layer.digest);
        let reply = self.ask(Ask::get(&url, most)).await?;
        let bytes: Bytes = self.require_status(reply, &[StatusCode::OK])?.body.into();
        self.check_digest(&layer.digest, &bytes)?;
        Ok(Artifact { content, bytes, annotations: manifest.annotations, ..Artifact::default() })
    }

    /// Returns the digest of a version's component, or `None` if the version does not exist.
    pub async fn digest(&self, version: &Version) -> Result<Option<String>, Failure> {
        let manifest = self.manifest(&tag_of(version), Content::Component).await;
        let manifest = self.redacted(manifest).await?;
        Ok(manifest.and_then(|manifest| Some(manifest.layer()?.digest.clone())))
    }

    /// Pushes an artifact under a version or a tag.
    pub async fn push(&self, artifact: &Artifact, wanted: &Wanted) -> Result<(), Failure> {
        let put = self.put(artifact, wanted).await;
        self.redacted(put).await
    }

    async fn put(&self, artifact: &Artifact, wanted: &Wanted) -> Result<(), Failure> {
        let path = wanted.to_path_segment().ok_or_else(|| self.missing("no version or tag to push to"))?;
        let (config, manifest) = artifact.config_and_manifest()?;
        self.upload(artifact.bytes.clone()).await?;
        self.upload(config).await?;
        let mut ask = Ask::new(Method::PUT, &format!("{}/manifests/{path}", self.base), MAX_DOCUMENT_BYTES);
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static(MANIFEST_TYPE));
        ask.body = manifest;
        let reply = self.ask(ask).await?;
        self.require_status(reply, &[StatusCode::CREATED, StatusCode::OK, StatusCode::ACCEPTED]).map(drop)
    }

    /// Returns the manifest of a tag or a digest, or `None` if it does not exist.
    async fn manifest(&self, path: &str, content: Content) -> Result<Option<Manifest>, Failure> {
        let url = format!("{}/manifests/{path}", self.base);
        let mut ask = Ask::get(&url, MAX_DOCUMENT_BYTES);
        ask.headers.insert(ACCEPT, HeaderValue::from_static(MANIFEST_TYPE));
        let reply = self.ask(ask).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let reply = self.require_status(reply, &[StatusCode::OK])?;
        if path.starts_with("sha256:") {
            self.check_digest(path, &reply.body)?;
        }
        Manifest::read(&reply.body, content).map(Some).map_err(|why| refusal(&url, &why))
    }

    /// Uploads bytes, unless the registry has them already.
    async fn upload(&self, bytes: Bytes) -> Result<(), Failure> {
        let digest = sha256(&bytes);
        let there = Ask::new(Method::HEAD, &format!("{}/blobs/{digest}", self.base), MAX_DOCUMENT_BYTES);
        if self.ask(there).await?.status == StatusCode::OK {
            return Ok(());
        }
        let begin = format!("{}/blobs/uploads/", self.base);
        let reply = self.ask(Ask::new(Method::POST, &begin, MAX_DOCUMENT_BYTES)).await?;
        let reply = self.require_status(reply, &[StatusCode::ACCEPTED])?;
        let place = reply.headers.get(LOCATION).and_then(|place| place.to_str().ok());
        let place = place.and_then(|place| Url::parse(&begin).ok()?.join(place).ok());
        let mut place = place.ok_or_else(|| refusal(&begin, "names no location for the upload"))?;
        place.query_pairs_mut().append_pair("digest", &digest);
        let mut ask = Ask::new(Method::PUT, place.as_str(), MAX_DOCUMENT_BYTES);
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static(BINARY));
        ask.body = bytes;
        let reply = self.ask(ask).await?;
        self.require_status(reply, &[StatusCode::CREATED, StatusCode::ACCEPTED]).map(drop)
    }

    /// Sends a request. After the status 401, sends it once more with the authentication that the registry demands.
    async fn ask(&self, ask: Ask) -> Result<Reply, Failure> {
        let reply = self.wire.ask(self.with_authorization(ask.clone())).await?;
        if reply.status != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        let rights = if matches!(ask.method, Method::GET) { "pull" } else { "pull,push" };
        let scope = format!("repository:{}:{rights}", self.repository);
        let access = Access {
            wire: &self.wire,
            registry: &self.registry,
            credentials: self.credentials.as_ref(),
            realms: &self.realms,
        };
        match access::authorization(&access, &reply.headers, &scope).await? {
            Some(authorization) => {
                *self.authorization.lock() = Some(authorization);
                self.wire.ask(self.with_authorization(ask)).await
            }
            None => Ok(reply),
        }
    }

    /// Returns a result with secrets redacted in its failure.
    async fn redacted<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        match result {
            Ok(done) => Ok(done),
            Err(failure) => Err(self.redaction().failure(failure).await),
        }
    }

    /// Returns the redaction of the password and the token that the registry received, for one call.
    fn redaction(&self) -> Redaction {
        let authorization = self.authorization.lock().clone();
        let token = authorization.as_ref().and_then(|authorization| authorization.to_str().ok()?.split_once(' '));
        let token = token.map(|(_, token)| Key::unchecked(Zeroizing::new(token.to_owned())));
        let password = self.credentials.as_ref().map(|credentials| Key::unchecked(credentials.password.clone()));
        Redaction::new(password.into_iter().chain(token), SearchBudget::default())
    }

    fn with_authorization(&self, mut ask: Ask) -> Ask {
        let authorization = self.authorization.lock().clone();
        if let Some(authorization) = authorization.filter(|_| self.wire.is_home(&ask.url)) {
            ask.headers.insert(AUTHORIZATION, authorization);
        }
        ask
    }

    fn require_status(&self, reply: Reply, statuses: &[StatusCode]) -> Result<Reply, Failure> {
        if statuses.contains(&reply.status) {
            return Ok(reply);
        }
        let status = reply.status.as_u16();
        let who = if self.credentials.is_some() { "with these credentials" } else { "without credentials" };
        Err(match status {
            401 | 403 => Failure::new(code::REGISTRY_DENIED, format!("{} denies access {who} ({status})", self.name)),
            _ => Failure::new(code::REGISTRY_REFUSED, format!("{} answers {status}", self.name)),
        })
    }

    fn check_digest(&self, digest: &str, bytes: &[u8]) -> Result<(), Failure> {
        let found = sha256(bytes);
        if found == digest {
            return Ok(());
        }
        let why = format!("{} sends content with the digest {found}, not {digest}", self.name);
        Err(Failure::new(code::PACK_CHANGED, why))
    }

    fn missing(&self, what: &str) -> Failure {
        Failure::new(code::REGISTRY_NOT_FOUND, format!("{} has {what}", self.name))
    }
}

fn is_local(url: &Url) -> bool {
    let host: Option<Host<&str>> = url.host();
    host.is_some_and(|host| is_this_machine(&host))
}

/// Returns the URL of the next page from `Link: </v2/…>; rel="next"`.
fn next_page(url: &str, reply: &Reply) -> Option<String> {
    let link = reply.headers.get(LINK)?.to_str().ok()?;
    let (path, rest) = link.strip_prefix('<')?.split_once('>')?;
    let next = Url::parse(url).ok()?.join(path).ok()?;
    rest.contains("next").then(|| next.into())
}
