//! Which component files the engine accepts as packs, and which it refuses.

use flowcell_engine::{Config, Engine, Limits, PackError, digest, inspect};

use crate::guests::{HOSTILE, by_hand, with_manifest};

const MANIFEST: &str = "{ name: acme, version: 1.0.0, nodes: [{ type: acme.x, title: X }] }";

fn refusal(component: Vec<u8>) -> String {
    let engine =
        Engine::new(Config { limits: Limits { component: 1 << 20, ..Limits::default() }, ..Config::default() });
    let added: Result<_, PackError> = engine.unwrap().add_pack(component, "acme.wasm");
    added.map(|pack| pack.manifest.name.to_string()).unwrap_or_else(|error| error.to_string())
}

#[test]
fn n14_n21_n26_n28_only_valid_packs_are_accepted() {
    let plain = || by_hand("", "");
    let import = |name: &str| with_manifest(by_hand("", &format!(r#"(import "{name}" (instance))"#)), MANIFEST);
    let instances = |count| {
        let each: String = (0..count).map(|_| "(core instance (instantiate $n))").collect();
        with_manifest(by_hand("", &format!("(core module $n) {each}")), MANIFEST)
    };
    let mut truncated = with_manifest(plain(), MANIFEST);
    truncated.truncate(truncated.len() / 2);
    let cases = [
        ("a pack", with_manifest(plain(), MANIFEST), "acme"),
        ("no manifest", plain(), "has no manifest"),
        ("two manifests", with_manifest(with_manifest(plain(), MANIFEST), MANIFEST), "has 2 manifests"),
        ("a manifest that is no YAML", with_manifest(plain(), "{"), "the manifest:"),
        ("another prefix", with_manifest(plain(), &MANIFEST.replace("acme.x", "other.x")), "must begin with `acme.`"),
        ("a reserved prefix", with_manifest(plain(), &MANIFEST.replace("acme", "control")), "`control.` is reserved"),
        (
            "an unknown capability",
            with_manifest(
                plain(),
                &MANIFEST.replace("title: X", "title: X, capabilities: [{ name: nuke, reason: fun }]"),
            ),
            "`acme.x` asks for the capability `nuke`",
        ),
        ("an unknown interface", import("flowcell:host/nuke@0.1.0"), "imports `flowcell:host/nuke@0.1.0`"),
        ("wasi:http", import("wasi:http/outgoing-handler@0.2.6"), "acme"),
        ("a server", import("wasi:http/incoming-handler@0.2.6"), "imports `wasi:http/incoming-handler@0.2.6`"),
        ("inert WASI", import("wasi:cli/environment@0.2.12"), "acme"),
        ("no node", with_manifest(wat::parse_str("(component)").unwrap(), MANIFEST), "does not export"),
        ("64 instances", instances(63), "acme"),
        ("65 instances", instances(64), "65 core instances; the limit is 64"),
        ("a core module", wat::parse_str("(module)").unwrap(), "wasm32-wasip2"),
        ("text", b"hello, I am no component".to_vec(), "not a WebAssembly component"),
        ("streams", with_manifest(by_hand("", "(type (stream u8))"), MANIFEST), "not a WebAssembly component"),
        (
            "tasks that go on",
            with_manifest(by_hand("", "(core func (canon thread.yield))"), MANIFEST),
            "not a WebAssembly",
        ),
        ("nothing", Vec::new(), "not a WebAssembly component"),
        ("machine code", b"\x7fELF\x02\x01\x01\0".to_vec(), "not a WebAssembly component"),
        ("half a pack", truncated, "not a WebAssembly component"),
        (
            "a large file",
            vec![0; (1 << 20) + 1],
            "the file has 1.1 MiB; the limit of a pack is 1.0 MiB. A pack in JavaScript",
        ),
    ];
    for (name, component, expected) in cases {
        let told = refusal(component);
        assert!(told.contains(expected), "{name}: {told}");
    }
}

#[test]
fn n20_other_versions_of_socket_interfaces_are_refused() {
    // A pack may import sockets, so that ported code loads. They open nothing, as
    // `n22_n25_the_world_is_empty_and_its_time_stands_still` tests.
    for interface in ["tcp", "udp", "ip-name-lookup"] {
        let other = format!("wasi:sockets/{interface}@0.3.0");
        let component = with_manifest(by_hand("", &format!(r#"(import "{other}" (instance))"#)), MANIFEST);
        assert!(refusal(component).contains(&format!("imports `{other}`")), "{other}");
    }
}

#[test]
fn invalid_code_is_refused_when_the_pack_is_added() {
    let body = "(func (result i32) i32.const 0)";
    let mut component = with_manifest(by_hand(body, ""), MANIFEST);
    let at = component.windows(3).position(|bytes| bytes == [0x41, 0x00, 0x0b]).unwrap();
    component[at] = 0x42; // i64.const
    assert!(refusal(component).contains("type mismatch"));
}

#[test]
fn reserved_prefixes_are_for_built_in_packs() {
    let engine = Engine::new(Config::default()).unwrap();
    let component = with_manifest(by_hand("", ""), &MANIFEST.replace("acme", "control"));
    let digest = digest(&component);
    assert_eq!(&*engine.add_built_in(component, digest, "control").unwrap().manifest.name, "control");
}

#[test]
fn a_pack_can_be_inspected_without_an_engine() {
    let inspection = inspect(&HOSTILE).unwrap();
    assert_eq!(&*inspection.manifest.name, "hostile");
    assert_eq!((inspection.size, &inspection.digest), (HOSTILE.len(), &digest(&HOSTILE)));
    assert!(inspection.imports.iter().any(|import| import == "flowcell:host/state@0.1.0"));
    assert_eq!(inspection.exports, ["flowcell:node/node@0.1.0"]);
}

#[test]
fn n27_damaged_packs_never_panic() {
    let pack = with_manifest(by_hand("(memory 1) (func (drop (i32.load (i32.const 0))))", ""), MANIFEST);
    let engine = Engine::new(Config::default()).unwrap();
    let mut digests = Vec::new();
    for at in 0..pack.len() {
        for bit in [1, 0x80] {
            let mut damaged = pack.clone();
            damaged[at] ^= bit;
            digests.extend(engine.add_pack(damaged, "damaged").map(|pack| pack.digest));
        }
    }
    // A component that passed validation must compile or be refused, without a panic.
    for digest in digests {
        let _ = engine.prepare(&digest);
    }
}

#[test]
fn limits_out_of_range_are_refused_with_their_range_and_line() {
    let manifest = |limits: &str| {
        format!("name: acme\nversion: 1.0.0\nnodes:\n  - type: acme.x\n    title: X\n    limits: {limits}\n")
    };
    let told = |limits: &str| refusal(with_manifest(by_hand("", ""), &manifest(limits)));
    for (member, most) in [("memoryMib", "1024"), ("outputKib", "16384"), ("timeoutMs", "31536000000")] {
        assert_eq!(told(&format!("{{ {member}: 1 }}")), "acme");
        assert_eq!(told(&format!("{{ {member}: {most} }}")), "acme");
        let over = format!("{most}0");
        for value in ["0", "-1", "1.5", "1e3", &over, "99999999999999999999999", "~", "'8'", "yes", "[1]", "64MiB"] {
            let told = told(&format!("{{ {member}: {value} }}"));
            let expected = format!("a whole number from 1 to {most}");
            assert!(told.contains(&expected) && told.contains('6'), "{member}: {value}: {told}");
        }
    }
    for unknown in ["{ memory: 64 }", "{ memoryMiB: 64 }", "64"] {
        assert!(told(unknown).contains("the manifest:"), "{unknown}");
    }
    assert_eq!(told("{}"), "acme");
}
