//! Tests the members of a manifest that describe a pack to people, and the places that show them.

use std::fs;

use serde_json::{Value, json};

use crate::{
    authors::language::{Language, done, flowcell, project},
    kit,
};

const ABOUT: &str = "icon: 📦
categories: [sales]
keywords: [crm, contacts]
docs: https://docs.example.com/shop
homepage: https://example.com/shop
repository: https://git.example.com/acme/shop
deprecated: Use shop2, which also greets groups.
nodes:
";

#[test]
fn people_read_what_the_manifest_tells_them() {
    let (_folder, project) = project("shop", Language::Rust);
    let manifest = fs::read_to_string(project.join("node.yaml")).unwrap();
    let with = |about: &str| fs::write(project.join("node.yaml"), manifest.replacen("nodes:\n", about, 1)).unwrap();
    for (about, named) in [
        ("docs: javascript:alert(1)\nnodes:\n", "`docs` is `javascript:alert(1)`"),
        ("categories: [a/b]\nnodes:\n", "`a/b` in `categories`"),
        ("hompage: https://example.com\nnodes:\n", "unknown field `hompage`"),
    ] {
        with(about);
        let refused = flowcell(&project).args(["node", "build"]).output().unwrap();
        let told = kit::stderr(&refused);
        assert!(refused.status.code() == Some(2) && told.contains(named), "{told}");
    }
    with(ABOUT);
    done(flowcell(&project).args(["node", "build"]));
    let listed = done(flowcell(&project).args(["nodes", "--packs", "dist"]));
    assert!(listed.contains("Greet (deprecated)"), "{listed}");
    let described = done(flowcell(&project).args(["nodes", "shop.greet", "--packs", "dist"]));
    let page = done(flowcell(&project).args(["node", "docs", "shop.greet", "--packs", "dist"]));
    for text in [&described, &page] {
        assert!(text.contains("https://docs.example.com/shop") && text.contains("Use shop2"), "{text}");
    }
    assert!(page.starts_with("# `shop.greet@0.1.0`\n") && page.contains("| `name` (required) | `string` |"), "{page}");
    assert!(
        page.contains("| `nobody` | The name is empty. |") && page.contains("    \"text\": \"Hello Ada\""),
        "{page}"
    );
    let flow = "flow: { name: greets }\nnodes: [{ id: greet, type: shop.greet, input: { name: Ada } }]\n";
    fs::write(project.join("greets.yaml"), flow).unwrap();
    let checked = flowcell(&project).args(["validate", "greets.yaml", "--packs", "dist"]).output().unwrap();
    let told = [kit::stderr(&checked), String::from_utf8_lossy(&checked.stdout).into_owned()].concat();
    assert!(checked.status.success(), "{told}");
    for part in ["warning[deprecated_type]", "greets.yaml:2:28", "its pack says: Use shop2, which also greets groups."]
    {
        assert!(told.contains(part), "{told}");
    }
    let inspected = done(flowcell(&project).args(["node", "inspect", "dist/shop.wasm", "--json"]));
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(inspected["about"]["keywords"], json!(["crm", "contacts"]), "{inspected}");
    let shown = done(flowcell(&project).args(["node", "install", "./dist/shop.wasm"]));
    let first: Vec<&str> = shown.lines().take(2).collect();
    assert_eq!(first, ["shop 0.1.0, not signed", "asks for log"], "{shown}");
    assert!(shown.contains("deprecated  Use shop2") && !shown.contains("flowcell:node/context"), "{shown}");
}

#[test]
fn a_readme_travels_in_its_pack() {
    let (_folder, project) = project("shop", Language::Rust);
    let written = |text: &[u8]| fs::write(project.join("README.md"), text).unwrap();
    let built = || flowcell(&project).args(["node", "build"]).output().unwrap();
    let docs = |of: &str| done(flowcell(&project).args(["node", "docs", of, "--packs", "dist"]));
    written("# Shop\r\n\nGreets *people*.\u{1b}[2J\u{202e}\n".as_bytes());
    assert!(built().status.success());
    let home = std::env::home_dir().unwrap();
    let bytes = fs::read(project.join("dist/shop.wasm")).unwrap();
    let paths = home.join(".cargo/registry").display().to_string();
    assert!(!bytes.windows(paths.len()).any(|part| part == paths.as_bytes()), "the pack names {paths}");
    let expected = "# Shop\n\nGreets *people*.\\u{1b}[2J\\u{202e}\n";
    assert_eq!((docs("shop").as_str(), docs("dist/shop.wasm").as_str()), (expected, expected));
    assert!(docs("shop.greet").starts_with("# `shop.greet@0.1.0`\n"), "a type is described");
    let shown = done(flowcell(&project).args(["node", "install", "./dist/shop.wasm"]));
    assert!(shown.contains("readme      "), "{shown}");
    assert_eq!(done(flowcell(&project).args(["node", "docs", "shop"])), expected, "an installed pack");
    let inspected = done(flowcell(&project).args(["node", "inspect", "dist/shop.wasm", "--json"]));
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert!(inspected["readme"].as_str().unwrap().starts_with("# Shop"), "{inspected}");
    for (text, named) in
        [(vec![b'a'; (256 << 10) + 1], "it has 262145 bytes; the limit is 262144"), (b"\xff".to_vec(), "cannot read")]
    {
        written(&text);
        let refused = built();
        let told = kit::stderr(&refused);
        assert!(refused.status.code() == Some(2) && told.contains(named) && told.contains("README"), "{told}");
    }
    for file in ["README.md", "flowcell.lock"] {
        fs::remove_file(project.join(file)).unwrap();
    }
    // A link must not publish another file of the author.
    fs::write(project.join("../outside.txt"), "private").unwrap();
    std::os::unix::fs::symlink("../outside.txt", project.join("README.md")).unwrap();
    let refused = built();
    let told = kit::stderr(&refused);
    assert!(refused.status.code() == Some(2) && told.contains("README.md is a link that leads out of"), "{told}");
    fs::remove_file(project.join("README.md")).unwrap();
    assert!(built().status.success());
    for of in ["shop", "dist/shop.wasm"] {
        let refused = flowcell(&project).args(["node", "docs", of, "--packs", "dist"]).output().unwrap();
        assert!(kit::stderr(&refused).contains("has no README"), "{}", kit::stderr(&refused));
    }
}
