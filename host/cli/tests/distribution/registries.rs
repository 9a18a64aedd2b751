//! Tests packs in a registry.

use std::{fs, io::Write as _};

use serde_json::{Value, json};

use crate::distribution::{
    pack::{Version, acme, digest},
    project::Project,
    registry::{PASSWORD, Registry},
};

/// Returns a project with this default registry.
fn project_with_registry(registry: &Registry) -> Project {
    Project::new().with("FLOWCELL_REGISTRY", &format!("{}/packs", registry.address))
}

/// Sends a GET request to a registry. Returns the JSON of the response.
pub(crate) fn get(registry: &Registry, path: &str) -> Value {
    let mut stream = std::net::TcpStream::connect(&registry.address).unwrap();
    let accept = "application/vnd.oci.image.manifest.v1+json";
    let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\nAccept: {accept}\r\n\r\n", registry.address);
    stream.write_all(request.as_bytes()).unwrap();
    let answer = std::io::read_to_string(stream).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn packs_are_pushed_listed_pulled_and_installed() {
    let Some(registry) = Registry::start(false) else { return };
    let author = project_with_registry(&registry);
    for (file, version) in [("first.wasm", Version::First), ("second.wasm", Version::Second)] {
        author.pack(file, version);
        author.done(&["node", "push", file, "acme"]);
    }
    let pushed = author.done(&["node", "push", "second.wasm", "acme@0.2.0"]);
    assert_eq!(pushed.trim(), format!("{}/packs/acme@0.2.0", registry.address));
    author.run_refused(&["node", "push", "second.wasm", "acme@0.3.0"], &["the pack is acme@0.2.0, not version 0.3.0"]);

    let user = project_with_registry(&registry);
    assert_eq!(user.done(&["node", "pull", "acme"]).trim(), "acme.wasm");
    assert_eq!(fs::read(user.path().join("acme.wasm")).unwrap(), acme(Version::Second), "the highest version");
    let shown = user.done(&["node", "install", "acme@0.1.0"]);
    assert!(shown.contains("asks for `log`: to say whom it greets"), "{shown}");
    assert!(user.lock().contains(&format!("source: {}/packs/acme@0.1.0", registry.address)), "{}", user.lock());
    assert_eq!(user.greeting("0.1"), json!({ "greet": { "text": "Hello Ada" } }));

    // Another machine has only the lock.
    let other = Project::new();
    other.write("flowcell.lock", user.lock().as_bytes());
    other.run_refused(&["nodes"], &["download it with `flowcell node install`"]);
    other.run_refused(&["node", "install", "--offline"], &["`--offline` forbids connections"]);
    other.done(&["node", "install"]);
    assert_eq!(other.lock(), user.lock());
    drop(registry);
    other.greeting("0.1");
    other.done(&["node", "install", "--offline"]);
    other.done(&["node", "install"]);
}

#[test]
fn a_pushed_pack_is_a_standard_oci_artifact() {
    let Some(registry) = Registry::start(false) else { return };
    let author = project_with_registry(&registry);
    author.pack("acme.wasm", Version::First);
    author.done(&["node", "push", "acme.wasm", "acme"]);
    let manifest = get(&registry, "/v2/packs/acme/manifests/0.1.0");
    assert_eq!(manifest["mediaType"], "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    assert_eq!(manifest["layers"][0]["mediaType"], "application/wasm");
    let annotations = json!({
        "org.opencontainers.image.title": "acme",
        "org.opencontainers.image.version": "0.1.0",
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.description": "What a stranger writes from the WIT alone.",
    });
    assert_eq!(manifest["annotations"], annotations);
    let config = get(&registry, &format!("/v2/packs/acme/blobs/{}", manifest["config"]["digest"].as_str().unwrap()));
    assert_eq!((&config["architecture"], &config["os"]), (&json!("wasm"), &json!("wasip2")));
    assert_eq!(config["layerDigests"], json!([manifest["layers"][0]["digest"]]));
    assert!(
        config["component"]["exports"].as_array().unwrap().contains(&json!("flowcell:node/node@0.1.0")),
        "{config}"
    );
}

#[test]
fn a_signature_is_pushed_and_installed_with_its_pack() {
    let Some(registry) = Registry::start(false) else { return };
    let author = project_with_registry(&registry);
    let key = author.done(&["node", "keygen", "ada.key"]);
    author.pack("acme.wasm", Version::First);
    let user = project_with_registry(&registry);
    user.write(
        "flowcell.trust.yaml",
        format!("keys: {{ ada: {{ key: \"{}\", packs: [acme] }} }}\n", key.trim()).as_bytes(),
    );
    author.done(&["node", "push", "acme.wasm", "acme"]);
    user.run_refused(&["node", "install", "acme"], &["it is not signed"]);
    author.done(&["node", "push", "acme.wasm", "acme", "--key", "file:ada.key"]);
    assert!(user.done(&["node", "install", "acme"]).contains("signed by ada"));
    user.done(&["node", "pull", "acme"]);
    fs::remove_file(user.path().join("flowcell.lock")).unwrap();
    assert!(user.done(&["node", "install", "./acme.wasm"]).contains("signed by ada"), "the file beside it");
}

#[test]
fn n29_a_changed_version_in_a_registry_is_refused() {
    let Some(registry) = Registry::start(false) else { return };
    let author = project_with_registry(&registry);
    author.pack("acme.wasm", Version::First);
    author.done(&["node", "push", "acme.wasm", "acme"]);
    author.pack("acme.wasm", Version::Altered);
    author.run_refused(&["node", "push", "acme.wasm", "acme"], &["is already published", "versions never change"]);
    // The owner of the registry can move a tag nevertheless.
    let user = project_with_registry(&registry);
    user.pack("first.wasm", Version::First);
    user.done(&["node", "push", "first.wasm", "acme:next"]);
    user.done(&["node", "install", "acme:next"]);
    author.done(&["node", "push", "acme.wasm", "acme:next"]);
    let digests = [Version::First, Version::Altered].map(|version| digest(&acme(version)));
    user.run_refused(&["node", "install", "acme:next"], &["acme@0.1.0 has changed", &digests[0], &digests[1]]);
    fs::remove_file(user.stored_pack()).unwrap();
    user.run_refused(&["node", "install"], &["acme@0.1.0 has changed", &digests[0], &digests[1]]);
}

#[test]
fn a_private_registry_requires_credentials() {
    let Some(registry) = Registry::start(true) else { return };
    let stranger = project_with_registry(&registry);
    stranger.pack("acme.wasm", Version::First);
    stranger.run_refused(
        &["node", "push", "acme.wasm", "acme"],
        &["denies access without credentials", "FLOWCELL_REGISTRY_USER"],
    );
    let wrong = project_with_registry(&registry)
        .with("FLOWCELL_REGISTRY_USER", "ada")
        .with("FLOWCELL_REGISTRY_PASSWORD", "guessed");
    wrong.run_refused(&["node", "install", "acme"], &["denies access with these credentials"]);
    let known = project_with_registry(&registry)
        .with("FLOWCELL_REGISTRY_USER", "ada")
        .with("FLOWCELL_REGISTRY_PASSWORD", PASSWORD);
    known.pack("acme.wasm", Version::First);
    known.done(&["node", "push", "acme.wasm", "acme"]);
    known.done(&["node", "install", "acme"]);
    // Credentials are sent only to the default registry. This one has another name.
    let (_, port) = registry.address.rsplit_once(':').unwrap();
    let elsewhere = format!("localhost:{port}/packs/acme");
    known.run_refused(&["node", "pull", &elsewhere], &["denies access without credentials"]);
    // The file that `docker login` writes.
    fs::create_dir(stranger.path().join("docker")).unwrap();
    let auths = json!({ "auths": { (registry.address.clone()): { "username": "ada", "password": PASSWORD } } });
    stranger.write("docker/config.json", auths.to_string().as_bytes());
    stranger.done(&["node", "install", "acme@0.1.0"]);
}

#[test]
fn packs_missing_in_a_registry_are_reported() {
    let Some(registry) = Registry::start(false) else { return };
    let project = project_with_registry(&registry);
    project.run_refused(&["node", "install", "acme"], &["has no version", "packs/acme"]);
    project.pack("acme.wasm", Version::First);
    project.done(&["node", "push", "acme.wasm", "acme"]);
    project.run_refused(&["node", "install", "acme@9.0.0"], &["has no `9.0.0`"]);
    project.run_refused(&["node", "install", "acme@9"], &["`9` is not a version"]);
    project.run_refused(&["node", "pull", "./acme.wasm"], &["is not a reference to a registry"]);
    project.run_refused(&["node", "install", "acme", "--offline"], &["`--offline` forbids connections"]);
    let address = registry.address.clone();
    drop(registry);
    project.run_refused(&["node", "install", "acme"], &[&address]);
}
