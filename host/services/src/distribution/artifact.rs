//! Artifacts: packs in a registry, in the form that `wkg` and other tools for WebAssembly read and write.

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

/// A component and its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Artifact {
    /// The bytes of the component.
    pub bytes: Bytes,
    /// The names of the component's imports.
    pub imports: Vec<String>,
    /// The names of the component's exports.
    pub exports: Vec<String>,
    /// The metadata of the component: `org.opencontainers.image.title` and others.
    pub annotations: BTreeMap<String, String>,
}

/// The manifest of an artifact.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
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
    /// Returns two JSON texts: the description of the component, and the manifest, which refers to the component and to
    /// that description. Both depend only on the artifact.
    pub(super) fn config_and_manifest(&self) -> Result<(Bytes, Bytes), Failure> {
        let digest = sha256(&self.bytes);
        let config = Config {
            // A fixed time, so that publishing the same pack again produces the same bytes.
            created: "1970-01-01T00:00:00Z",
            author: None,
            architecture: "wasm",
            os: "wasip2",
            layer_digests: [&digest],
            component: Component { exports: &self.exports, imports: &self.imports, target: None },
        };
        let config = json(&config)?;
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(MANIFEST_TYPE.into()),
            config: Descriptor { media_type: CONFIG_TYPE.into(), digest: sha256(&config), size: config.len() as u64 },
            layers: vec![Descriptor { media_type: LAYER_TYPE.into(), digest, size: self.bytes.len() as u64 }],
            annotations: self.annotations.clone(),
        };
        Ok((config, json(&manifest)?))
    }
}

impl Manifest {
    /// Reads a registry's answer. The error says why it is not the manifest of a component.
    pub(super) fn read(bytes: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest =
            serde_json::from_slice(bytes).map_err(|error| format!("is not the manifest of a component: {error}"))?;
        if manifest.config.media_type != CONFIG_TYPE {
            return Err(format!(
                "is not a component: its config is `{}`, not `{CONFIG_TYPE}`",
                manifest.config.media_type
            ));
        }
        match manifest.layers.as_slice() {
            [layer]
                if layer.media_type == LAYER_TYPE && layer.digest.strip_prefix("sha256:").is_some_and(is_sha256) =>
            {
                Ok(manifest)
            }
            [layer] if layer.media_type == LAYER_TYPE => {
                Err(format!("has a digest that is not a SHA-256: `{}`", layer.digest))
            }
            [layer] => Err(format!("is not a component: its layer is `{}`, not `{LAYER_TYPE}`", layer.media_type)),
            layers => Err(format!("is not a component: it has {} layers, not 1", layers.len())),
        }
    }

    /// Returns the descriptor of the component.
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
        let read = Manifest::read(&manifest).unwrap();
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
            let refused = Manifest::read(manifest.as_bytes()).unwrap_err();
            assert!(refused.contains(why), "{manifest}: {refused}");
        }
    }
}
