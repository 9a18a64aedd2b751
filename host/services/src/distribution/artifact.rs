//! Artifacts: packs in a registry, in the form that `wkg` and other tools for WebAssembly read and write, and documents.

use std::collections::BTreeMap;

use bytes::Bytes;
use flowcell_contract::Failure;
use serde::{Deserialize, Serialize};

use super::digest::{is_sha256, sha256};
use crate::code;

/// The media type of a manifest.
pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
const LAYER_TYPE: &str = "application/wasm";
/// The media type of the config of an artifact that needs none. Its content is `{}`.
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// The content of an artifact, its only layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// A component.
    #[default]
    Component,
    /// A document of this media type, which is also the type of its artifact.
    Document(&'static str),
}

/// A component or a document, and its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Artifact {
    /// The kind of the bytes.
    pub content: Content,
    /// The bytes of the component or of the document.
    pub bytes: Bytes,
    /// The names of the component's imports.
    pub imports: Vec<String>,
    /// The names of the component's exports.
    pub exports: Vec<String>,
    /// The metadata of the artifact: `org.opencontainers.image.title` and others.
    pub annotations: BTreeMap<String, String>,
}

/// The manifest of an artifact.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    config: Descriptor,
    layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// The reference to a blob in a manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// The description of a component, which tools read before they download it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    created: &'static str,
    author: Option<&'static str>,
    architecture: &'static str,
    os: &'static str,
    layer_digests: [&'a str; 1],
    component: Component<'a>,
}

#[derive(Serialize)]
struct Component<'a> {
    exports: &'a [String],
    imports: &'a [String],
    target: Option<&'static str>,
}

impl Artifact {
    /// Returns two JSON texts: the config, which describes a component, and the manifest, which refers to the content and
    /// to the config. Both depend only on the artifact.
    pub(super) fn config_and_manifest(&self) -> Result<(Bytes, Bytes), Failure> {
        let digest = sha256(&self.bytes);
        let config = match self.content {
            Content::Component => self.config(&digest)?,
            Content::Document(_) => Bytes::from_static(b"{}"),
        };
        // Tools that pull a document take the name of its file from its layer.
        let (artifact_type, of_layer) = match self.content {
            Content::Component => (None, BTreeMap::new()),
            Content::Document(kind) => (Some(kind.to_owned()), self.annotations.clone()),
        };
        let descriptor = |media_type: &str, bytes: &Bytes, annotations| Descriptor {
            media_type: media_type.to_owned(),
            digest: sha256(bytes),
            size: bytes.len() as u64,
            annotations,
        };
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(MANIFEST_TYPE.into()),
            artifact_type,
            config: descriptor(self.content.config_type(), &config, BTreeMap::new()),
            layers: vec![descriptor(self.content.layer_type(), &self.bytes, of_layer)],
            annotations: self.annotations.clone(),
        };
        Ok((config, json(&manifest)?))
    }

    fn config(&self, digest: &str) -> Result<Bytes, Failure> {
        let config = Config {
            // A fixed time, so that publishing the same pack again produces the same bytes.
            created: "1970-01-01T00:00:00Z",
            author: None,
            architecture: "wasm",
            os: "wasip2",
            layer_digests: [digest],
            component: Component { exports: &self.exports, imports: &self.imports, target: None },
        };
        json(&config)
    }
}

impl Content {
    fn config_type(self) -> &'static str {
        match self {
            Content::Component => CONFIG_TYPE,
            Content::Document(_) => EMPTY_TYPE,
        }
    }

    fn layer_type(self) -> &'static str {
        match self {
            Content::Component => LAYER_TYPE,
            Content::Document(kind) => kind,
        }
    }

    /// Returns the name for messages.
    fn name(self) -> String {
        match self {
            Content::Component => "a component".to_owned(),
            Content::Document(kind) => format!("a document of the type `{kind}`"),
        }
    }
}

impl Manifest {
    /// Reads a registry's answer. The error says why it is not the manifest of this content.
    pub(super) fn read(bytes: &[u8], content: Content) -> Result<Manifest, String> {
        let name = content.name();
        let manifest: Manifest =
            serde_json::from_slice(bytes).map_err(|error| format!("is not the manifest of {name}: {error}"))?;
        let (found, wanted) = (&manifest.config.media_type, content.config_type());
        if found != wanted {
            return Err(format!("is not {name}: its config is `{found}`, not `{wanted}`"));
        }
        let wanted = content.layer_type();
        match manifest.layers.as_slice() {
            [layer] if layer.media_type == wanted && layer.digest.strip_prefix("sha256:").is_some_and(is_sha256) => {
                Ok(manifest)
            }
            [layer] if layer.media_type == wanted => {
                Err(format!("has a digest that is not a SHA-256: `{}`", layer.digest))
            }
            [layer] => Err(format!("is not {name}: its layer is `{}`, not `{wanted}`", layer.media_type)),
            layers => Err(format!("is not {name}: it has {} layers, not 1", layers.len())),
        }
    }

    /// Returns the descriptor of the content.
    pub(super) fn layer(&self) -> Option<&Descriptor> {
        self.layers.first()
    }
}

fn json(value: &impl Serialize) -> Result<Bytes, Failure> {
    let written = serde_json::to_vec(value).map_err(|error| Failure::new(code::REGISTRY_REFUSED, error.to_string()))?;
    Ok(written.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    #[test]
    fn an_artifact_has_the_description_that_other_tools_expect() {
        let artifact =
            Artifact { bytes: Bytes::from_static(b"\0asm"), imports: vec!["a:b/c".into()], ..Artifact::default() };
        let (config, manifest) = artifact.config_and_manifest().unwrap();
        assert_eq!((config.clone(), manifest.clone()), artifact.config_and_manifest().unwrap());
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        assert_eq!((&config["architecture"], &config["os"]), (&json!("wasm"), &json!("wasip2")));
        assert_eq!(config["component"], json!({ "exports": [], "imports": ["a:b/c"], "target": null }));
        assert_eq!(config["layerDigests"], json!([sha256(b"\0asm")]));
        let read = Manifest::read(&manifest, Content::Component).unwrap();
        assert_eq!(read.layer().unwrap().digest, sha256(b"\0asm"));
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
        assert_eq!(manifest["layers"][0]["mediaType"], "application/wasm");
    }

    #[test]
    fn the_error_says_why_a_manifest_is_not_of_a_component() {
        let described = |config: &str, layers: &[&str]| {
            let one = |kind: &&str| json!({ "mediaType": kind, "digest": "sha256:0", "size": 0 });
            let layers: Vec<_> = layers.iter().map(one).collect();
            json!({ "schemaVersion": 2, "config": one(&config), "layers": layers }).to_string()
        };
        for (manifest, why) in [
            ("{".to_owned(), "is not the manifest"),
            (json!({ "schemaVersion": 2, "manifests": [] }).to_string(), "missing field `config`"),
            (described("application/vnd.oci.image.config.v1+json", &[LAYER_TYPE]), "its config is"),
            (described(CONFIG_TYPE, &["application/vnd.oci.image.layer.v1.tar+gzip"]), "its layer is"),
            (described(CONFIG_TYPE, &[LAYER_TYPE, LAYER_TYPE]), "it has 2 layers"),
            (described(CONFIG_TYPE, &[LAYER_TYPE]), "is not a SHA-256"),
        ] {
            let refused = Manifest::read(manifest.as_bytes(), Content::Component).unwrap_err();
            assert!(refused.contains(why), "{manifest}: {refused}");
        }
    }

    #[test]
    fn a_document_is_an_artifact_of_its_own_type() {
        let content = Content::Document("application/vnd.example+json");
        let annotations = BTreeMap::from([("org.opencontainers.image.title".to_owned(), "a.json".to_owned())]);
        let artifact = Artifact { content, bytes: Bytes::from_static(b"{ }"), annotations, ..Artifact::default() };
        let (config, manifest) = artifact.config_and_manifest().unwrap();
        assert_eq!(&config[..], b"{}");
        assert_eq!(Manifest::read(&manifest, content).unwrap().layer().unwrap().digest, sha256(b"{ }"));
        let refused = Manifest::read(&manifest, Content::Component).unwrap_err();
        assert!(refused.contains("is not a component: its config is"), "{refused}");
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["artifactType"], "application/vnd.example+json");
        assert_eq!(manifest["config"]["mediaType"], "application/vnd.oci.empty.v1+json");
        assert_eq!(manifest["layers"][0]["annotations"]["org.opencontainers.image.title"], "a.json");
    }
}
