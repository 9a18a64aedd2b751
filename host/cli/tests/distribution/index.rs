//! Tests indexes of packs: they are built, signed, searched and installed from, and forged ones are refused.

use std::fs;

use serde_json::{Value, json};

use crate::{
    distribution::{
        pack::{Version, acme, digest},
        project::Project,
        registries::get,
        registry::Registry,
    },
    kit,
    outside::server::{Server, answer},
};

const BUILD: [&str; 7] = ["node", "index", "build", "./first.wasm", "./second.wasm", "--key", "file:ada.key"];
const INSTALL: [&str; 5] = ["node", "install", "acme", "--index", "index.json"];

/// Returns a project with two versions of a signed pack, a signed index of them, and the public key.
fn indexed() -> (Project, String) {
    let project = Project::new();
    let key = project.done(&["node", "keygen", "ada.key"]).trim().to_owned();
    for (file, version) in [("first.wasm", Version::First), ("second.wasm", Version::Second)] {
        project.pack(file, version);
        project.done(&["node", "sign", file, "--key", "file:ada.key"]);
    }
    assert_eq!(project.done(&BUILD), "index.json\n");
    (project, key)
}

/// Replaces a text of the index, and removes its signature.
fn forge(project: &Project, old: &str, new: &str) {
    let index = fs::read_to_string(project.path().join("index.json")).unwrap();
    assert!(index.contains(old), "{index}");
    project.write("index.json", index.replacen(old, new, 1).as_bytes());
    sign(project, None);
}

/// Replaces the signature of the index, which is before those of its packs. Returns the signature that it had.
fn sign(project: &Project, signature: Option<&str>) -> Option<String> {
    let index = fs::read_to_string(project.path().join("index.json")).unwrap();
    let (head, rest) = index.split_once("\"index\": ").unwrap();
    let old = serde_json::from_str::<Value>(&format!("{head}\"index\": 0}}")).unwrap()["signature"].take();
    let member = signature.map(|signature| format!("\"signature\": \"{}\", ", signature.trim())).unwrap_or_default();
    let version = head.split_once("\"version\": ").unwrap().1.split(',').next().unwrap();
    project.write("index.json", format!("{{ \"version\": {version}, {member}\"index\": {rest}").as_bytes());
    old.as_str().map(str::to_owned)
}

#[test]
fn packs_are_found_and_installed_by_their_digests() {
    let (project, key) = indexed();
    let found = project.done(&["node", "search", "GREET", "--index", "index.json"]);
    for part in [
        &*format!("1 of 2 versions in the index, signed by {key}"),
        &*format!("acme 0.2.0, signed by {key}"),
        "asks for agent, log",
        "types     acme.ask, acme.each, acme.greet, acme.scribe",
        "versions 0.1.0, 0.2.0",
        "flowcell node install acme@0.2.0 --index index.json",
    ] {
        assert!(found.contains(part), "{part}\n{found}");
    }
    let none = project.done(&["node", "search", "greet", "mail", "--index", "index.json"]);
    assert!(none.starts_with("no pack in the index has all of these words; the index has 2 versions"), "{none}");
    let listed = project.done(&["node", "search", "--index", "index.json", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["versions"], json!(["0.1.0", "0.2.0"]));
    assert_eq!(listed[0]["digest"], format!("sha256:{}", digest(&acme(Version::Second))));
    assert!(project.done(&INSTALL).starts_with(&format!("acme 0.2.0, signed by {key}\nasks for agent, log\n")));
    assert!(project.lock().contains("acme@0.2.0") && project.lock().contains("second.wasm"), "{}", project.lock());
    project.done(&["node", "install", "acme@0.1.0", "--index", "index.json"]);
    assert!(project.lock().contains("acme@0.1.0"));
    project.run_refused(&["node", "install", "shop", "--index", "index.json"], &["no pack `shop`"]);
    project.run_refused(&["node", "install", "--index", "index.json"], &["PACK"]);
}

#[test]
fn a_pack_that_is_not_the_one_of_the_index_is_refused() {
    let (project, _) = indexed();
    project.pack("second.wasm", Version::Altered);
    project.run_refused(&INSTALL, &["acme@0.2.0 from second.wasm is sha256:", "but the index says sha256:"]);
    // The digest of another version: the bytes fit, but not the name and version.
    let [first, second] = [Version::First, Version::Second].map(|version| digest(&acme(version)));
    project.pack("second.wasm", Version::First);
    forge(&project, &second, &first);
    project.run_refused(&INSTALL, &["second.wasm has acme@0.1.0, not acme@0.2.0"]);
    assert_eq!(project.lock(), "");
}

/// Changes the entry of the second version, and removes the signature of the index.
fn change(project: &Project, change: impl FnOnce(&mut Value)) {
    let text = fs::read_to_string(project.path().join("index.json")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    file.as_object_mut().unwrap().remove("signature");
    change(&mut file["index"]["packs"][1]);
    project.write("index.json", file.to_string().as_bytes());
}

#[test]
fn an_entry_that_does_not_fit_its_pack_is_refused_with_both_values() {
    let (project, key) = indexed();
    type Change = fn(&mut Value);
    let cases: [(Change, &[&str]); 6] = [
        (|pack| pack["size"] = json!(1), &["`size` is 1 in the index, and "]),
        (|pack| _ = pack.as_object_mut().unwrap().remove("signature"), &["`signer` is nothing in the index", &key]),
        (|pack| pack["license"] = json!("Other-1.0"), &["`license` is \"Other-1.0\" in the index"]),
        (|pack| _ = pack["types"].as_array_mut().unwrap().pop(), &["`types` is [", "\"acme.scribe\"] in the pack"]),
        (
            |pack| pack["types"][2]["asksFor"] = json!([]),
            &["`asksFor of acme.greet` is [] in the index, and [\"log\"] in"],
        ),
        (|pack| pack["types"][0]["mayUse"] = json!(["http"]), &["`mayUse of acme.ask` is [\"http\"] in the index"]),
    ];
    for (forged, told) in cases {
        project.done(&BUILD);
        change(&project, forged);
        project.run_refused(&INSTALL, &[&["acme@0.2.0 from second.wasm is not as the index says"][..], told].concat());
    }
    assert_eq!(project.lock(), "");
    project.done(&BUILD);
    project.done(&INSTALL);
    // A signature that the index has, and the file lacks, is the same signature.
    fs::remove_file(project.path().join("second.wasm.sig")).unwrap();
    project.done(&INSTALL);
}

/// Builds an index of these packs with a number. Returns the content of its file.
fn numbered(project: &Project, number: &str, packs: &[&str]) -> Vec<u8> {
    project.done(&[&["node", "index", "build", "--key", "file:ada.key", "--serial", number][..], packs].concat());
    fs::read(project.path().join("index.json")).unwrap()
}

#[test]
fn an_older_index_is_refused_until_it_is_accepted_on_purpose() {
    let (project, key) = indexed();
    fs::remove_file(project.path().join("index.json")).unwrap();
    let old = numbered(&project, "5", &["./first.wasm"]);
    let new = numbered(&project, "6", &["./first.wasm", "./second.wasm"]);
    let search = ["node", "search", "--index", "index.json"];
    assert!(project.done(&search).contains(&format!("signed by {key}, number 6 of 2")));
    assert_eq!(project.lock(), "", "a search records nothing");
    project.done(&INSTALL);
    let lock = project.lock();
    assert!(lock.contains("indexes:\n  index.json:\n    serial: 6\n") && lock.contains(&key), "{lock}");
    // The reader gets the old index, on which the second version is missing.
    project.write("index.json", &old);
    let told =
        ["the index index.json is refused: its serial number is 5 of 2", "has the number 6 of 2", "`--accept-index`"];
    let absolute = project.path().canonicalize().unwrap().join("index.json");
    for place in ["index.json", "./index.json", absolute.to_str().unwrap()] {
        project.run_refused(&["node", "search", "--index", place], &told[1..]);
        project.run_refused(&["node", "install", "acme", "--index", place], &told[1..]);
    }
    project.run_refused(&search, &told);
    assert_eq!(project.lock(), lock);
    let accepted = project.run(&[&search[..], &["--accept-index"]].concat());
    assert!(kit::stderr(&accepted).contains("warning: the index index.json is refused"), "{accepted:?}");
    assert!(accepted.status.success() && project.lock() == lock);
    project.done(&[&INSTALL[..], &["--accept-index"]].concat());
    assert!(project.lock().contains("    serial: 5\n"), "{}", project.lock());
    project.write("index.json", &new);
    project.done(&INSTALL);
    // Another content under the same number, and no number at all.
    fs::remove_file(project.path().join("index.json")).unwrap();
    numbered(&project, "6", &["./first.wasm"]);
    project.run_refused(&INSTALL, &["its serial number is 6 of 2", "with the content sha256:"]);
    project.write("index.json", br#"{ "version": 1, "index": { "packs": [] } }"#);
    project.run_refused(&INSTALL, &["it has no serial number, but the last one"]);
    project.run_refused(&["node", "install", "acme", "--accept-index"], &["--index"]);
}

#[test]
fn another_signer_of_an_index_is_refused() {
    let (project, key) = indexed();
    project.done(&INSTALL);
    let signature = sign(&project, None);
    project.run_refused(&INSTALL, &["it is not signed, but the last one", &key]);
    sign(&project, signature.as_deref());
    project.done(&INSTALL);
    let eve = project.done(&["node", "keygen", "eve.key"]).trim().to_owned();
    project.done(&[&BUILD[..5], &["--key", "file:eve.key"]].concat());
    project.run_refused(&INSTALL, &[&format!("it is signed by {eve}"), &format!("was signed by {key}")]);
    // The operator says that eve may sign, too.
    let keys = format!("ada: {{ key: \"{key}\", packs: ['*'] }}, eve: {{ key: \"{eve}\", packs: [], index: true }}");
    project.write("flowcell.trust.yaml", format!("keys: {{ {keys} }}\n").as_bytes());
    project.done(&INSTALL);
    assert!(project.lock().contains(&eve), "{}", project.lock());
}

#[test]
fn numbers_of_indexes_rise() {
    let (project, _) = indexed();
    fs::remove_file(project.path().join("index.json")).unwrap();
    numbered(&project, "9007199254740990", &["./first.wasm"]);
    fn build<'m>(more: &[&'m str]) -> Vec<&'m str> {
        [&BUILD[..4], more].concat()
    }
    project.run_refused(&build(&["--serial", "9007199254740990"]), &["is not higher than 9007199254740990"]);
    project.run_refused(&build(&["--serial", "9007199254740992"]), &["--serial"]);
    project.run_refused(&build(&["--serial", "0"]), &["--serial"]);
    project.done(&build(&[]));
    assert!(fs::read_to_string(project.path().join("index.json")).unwrap().contains("\"serial\": 9007199254740991,"));
    project.run_refused(&build(&[]), &["no serial number is higher than 9007199254740991"]);
    // A file that is no index is replaced with a warning.
    project.write("index.json", b"{ no");
    let built = project.run(&build(&[]));
    assert!(built.status.success() && kit::stderr(&built).contains("the index in index.json is not read"));
    // Who trusts the key of an index does not accept the next one without a signature.
    let warned =
        |arguments: &[&str]| kit::stderr(&project.run(arguments)).contains("does not accept this one: it is not");
    let unsigned = &BUILD[..5];
    assert!(!warned(&BUILD) && warned(unsigned) && !warned(unsigned) && !warned(&BUILD));
}

#[test]
fn an_index_without_a_number_is_read_with_a_warning() {
    let (project, _) = indexed();
    let text = fs::read_to_string(project.path().join("index.json")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    file["version"] = json!(1);
    ["serial", "date"].iter().for_each(|member| _ = file["index"].as_object_mut().unwrap().remove(*member));
    file.as_object_mut().unwrap().remove("signature");
    project.write("index.json", file.to_string().as_bytes());
    for command in [&INSTALL[..], &["node", "search", "--index", "index.json", "--json"]] {
        let said = project.run(command);
        let warned =
            kit::stderr(&said).contains("warning: the index has no serial number, so an old one is not noticed");
        assert!(said.status.success() && warned, "{said:?}");
    }
    assert!(project.lock().contains("acme@0.2.0") && !project.lock().contains("indexes"), "{}", project.lock());
}

#[test]
fn forged_entries_are_refused_with_their_reason() {
    for (old, new, told) in [
        ("./second.wasm", "../second.wasm", "leads out of the folder"),
        ("./second.wasm", "/etc/second.wasm", "leads out of the folder"),
        ("./second.wasm", "http://169.254.169.254/a.wasm", "https://"),
        ("acme@0.2.0", "http@0.2.0", "built-in"),
        ("acme.greet", "control.if", "does not begin with `acme.`"),
        ("acme@0.2.0", "acme@0.1.0", "occurs twice"),
        ("\"version\": 2", "\"version\": 3", "its format is 3"),
        ("\"version\": 2", "\"version\": 1", "the format 1 has no `serial`"),
        ("\"serial\": ", "\"serial\": -", "the index: invalid value"),
        ("\"date\": \"", "\"date\": \"\\u001b[2J", "its `date` is not a time"),
        ("What a stranger", "\\u001b[2JWhat", "control characters"),
    ] {
        let (project, _) = indexed();
        forge(&project, old, new);
        for command in [&INSTALL[..], &["node", "search", "--index", "index.json"]] {
            let said = project.run_refused(command, &[told]);
            assert!(!said.contains('\u{1b}'), "{said}");
        }
    }
    let project = Project::new();
    project.write("index.json", &vec![b' '; (8 << 20) + 1]);
    project.run_refused(&["node", "search", "--index", "index.json"], &["larger than"]);
    project.write("index.json", b"{ no");
    project.run_refused(&["node", "search", "--index", "index.json"], &["the index"]);
    fs::create_dir(project.path().join("below")).unwrap();
    project.pack("acme.wasm", Version::First);
    let outside = ["node", "index", "build", "./acme.wasm", "--out", "below/index.json"];
    project.run_refused(&outside, &["is not below the folder of the index"]);
}

#[test]
fn the_trust_file_names_the_keys_that_sign_indexes() {
    let (project, key) = indexed();
    let trust = |more: &str| {
        let text = format!("unsigned: refuse\nkeys:\n  ada: {{ key: \"{key}\", packs: ['*']{more} }}\n");
        project.write("flowcell.trust.yaml", text.as_bytes());
    };
    let search = ["node", "search", "--index", "index.json"];
    trust("");
    project.run_refused(&search, &["`ada`", "has no `index: true`"]);
    trust(", index: true");
    assert!(project.done(&search).contains("in the index, signed by ada"));
    // The signature of a pack is none of an index.
    let of_pack = fs::read_to_string(project.path().join("first.wasm.sig")).unwrap();
    let signature = sign(&project, Some(&of_pack)).unwrap();
    project.run_refused(&search, &["is for other bytes"]);
    sign(&project, Some(&signature));
    assert!(project.done(&search).contains("signed by ada"), "the members around the signed bytes may be written anew");
    forge(&project, "0.2.0", "0.3.0");
    project.run_refused(&search, &["it is not signed"]);
    sign(&project, Some(&signature));
    project.run_refused(&INSTALL, &["is for other bytes"]);
    fs::remove_file(project.path().join("flowcell.trust.yaml")).unwrap();
    project.run_refused(&search, &["is for other bytes"]);
    // An index that is built again without a key has no stale signature.
    project.done(&BUILD[..5]);
    assert!(project.done(&search).contains("in the index, not signed"));
}

#[test]
fn an_index_behind_an_address_names_packs_beside_it() {
    let (project, _) = indexed();
    let index = fs::read_to_string(project.path().join("index.json")).unwrap();
    let server = Server::start(move |seen, _| {
        let is_index = seen.head.starts_with("GET /shelf/index.json?a=/b ");
        if is_index { answer("200 OK", &[], &index) } else { answer("404 Not Found", &[], "") }
    });
    let place = format!("{}/shelf/index.json?a=/b", server.origin());
    assert!(project.done(&["node", "search", "--index", &place]).contains("acme 0.2.0"));
    let pack = format!("{}/shelf/second.wasm", server.origin());
    project.run_refused(&["node", "install", "acme", "--index", &place], &[&pack, "does not exist"]);
    project.run_refused(&["node", "search", "--index", &place, "--offline"], &["`--offline` forbids connections"]);
}

/// One file has the index and its signature, and is replaced by a rename, so no end of the program is between them.
#[test]
fn an_index_is_replaced_with_its_signature_or_not_at_all() {
    let (project, key) = indexed();
    let trust = format!("keys:\n  ada: {{ key: \"{key}\", packs: ['*'], index: true }}\n");
    project.write("flowcell.trust.yaml", trust.as_bytes());
    let file = project.path().join("index.json");
    let old = fs::read(&file).unwrap();
    // The build writes one file.
    let mut beside: Vec<_> = fs::read_dir(project.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    project.done(&["node", "index", "build", "./first.wasm", "--key", "file:ada.key"]);
    let mut after: Vec<_> = fs::read_dir(project.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    beside.sort();
    after.sort();
    assert_eq!(beside, after);
    assert!(project.done(&["node", "search", "--index", "index.json"]).contains("1 of 1 versions"));
    // A build that fails leaves the index.
    project.write("index.json", &old);
    project.run_refused(&["node", "index", "build", "./none.wasm", "--key", "file:ada.key"], &["./none.wasm"]);
    assert_eq!(fs::read(&file).unwrap(), old);
}

#[test]
fn an_index_in_a_registry_is_searched_and_installed_from() {
    let Some(registry) = Registry::start(false) else { return };
    let project = Project::new().with("FLOWCELL_REGISTRY", &format!("{}/packs", registry.address));
    let key = project.done(&["node", "keygen", "ada.key"]).trim().to_owned();
    let trust = format!("unsigned: refuse\nkeys:\n  ada: {{ key: \"{key}\", packs: ['*'], index: true }}\n");
    project.write("flowcell.trust.yaml", trust.as_bytes());
    for (file, version) in [("first.wasm", Version::First), ("second.wasm", Version::Second)] {
        project.pack(file, version);
        project.done(&["node", "push", file, "acme", "--key", "file:ada.key"]);
    }
    let build = |pack: &str, more: &[&str]| project.done(&[&["node", "index", "build", pack][..], more].concat());
    let signed = ["--key", "file:ada.key"];
    build("acme@0.1.0", &signed);
    let place = format!("{}/packs/index", registry.address);
    let push = ["node", "index", "push", "index.json", "index"];
    assert_eq!(project.done(&push).trim(), format!("{place}:latest"));
    let found = project.done(&["node", "search", "greet", "--index", &place]);
    assert!(found.contains("acme 0.1.0, signed by ada") && found.contains("index, signed by ada"), "{found}");
    assert!(found.contains(&format!("flowcell node install acme@0.1.0 --index {place}")), "{found}");
    project.done(&["node", "install", "acme", "--index", &place]);
    assert!(project.lock().contains(&format!("source: {}/packs/acme@0.1.0", registry.address)), "{}", project.lock());
    // A later push moves the tag; another tag stays.
    project.done(&["node", "index", "push", "index.json", "index:stable"]);
    build("acme@0.2.0", &signed);
    project.done(&push);
    assert!(project.done(&["node", "search", "--index", &place]).contains("acme 0.2.0"));
    assert!(project.done(&["node", "search", "--index", &format!("{place}:stable")]).contains("acme 0.1.0"));
    let manifest = get(&registry, "/v2/packs/index/manifests/latest");
    assert_eq!(manifest["artifactType"], "application/vnd.flowcell.index.v1+json");
    assert_eq!(manifest["layers"][0]["mediaType"], "application/vnd.flowcell.index.v1+json");
    assert_eq!(manifest["layers"][0]["annotations"]["org.opencontainers.image.title"], "index.json");
    let layer = get(&registry, &format!("/v2/packs/index/blobs/{}", manifest["layers"][0]["digest"].as_str().unwrap()));
    assert_eq!(layer, serde_json::from_slice::<Value>(&fs::read(project.path().join("index.json")).unwrap()).unwrap());
    // Refused: the wrong kind of artifact, an index without a signature, paths, versions, no connection.
    project.run_refused(&["node", "install", &format!("{place}:latest")], &["is not a component: its config is"]);
    let pack = format!("{}/packs/acme:0.1.0", registry.address);
    project.run_refused(&["node", "search", "--index", &pack], &["is not a document of the type"]);
    project.run_refused(&["node", "search", "--index", &format!("{place}:none")], &["has no `none`"]);
    project.run_refused(&["node", "search", "--index", &place, "--offline"], &["`--offline` forbids connections"]);
    project.run_refused(&["node", "index", "push", "index.json", "index@1.0.0"], &["an index is pushed under a tag"]);
    project.run_refused(&["node", "index", "push", "index.json", "./index"], &["is not a reference to a registry"]);
    // The publisher of an index that readers refuse gets a warning.
    build("acme@0.1.0", &["--key", "file:ada.key", "--out", "older.json", "--serial", "5"]);
    let warned = |file: &str| kit::stderr(&project.run(&["node", "index", "push", file, "index"]));
    assert_eq!(warned("index.json"), "");
    let told = warned("older.json");
    assert!(told.contains("does not accept this one: its serial number is 5 of 2"), "{told}");
    build("acme@0.1.0", &[]);
    project.done(&push);
    project.run_refused(&["node", "search", "--index", &place], &["it is not signed"]);
    build("./first.wasm", &signed);
    project.run_refused(&push, &["has no folder; push the pack"]);
    project.write("index.json", b"{ no");
    project.run_refused(&push, &["the index"]);
}
