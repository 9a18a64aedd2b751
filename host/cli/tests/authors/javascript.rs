//! Tests what JavaScript finds in a pack beside the language: promises, timers, `fetch`, and packages of npm.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    authors::{
        killed::answers_keep_their_order,
        language::{Language, copy, done, flowcell, npm_install, project},
    },
    kit,
    outside::server::{Server, answer},
};

/// Creates a project with the code and the manifest of a guest.
fn guest(name: &str) -> (TempDir, PathBuf) {
    let (folder, project) = project(name, Language::Js);
    fs::remove_dir_all(project.join("cases")).unwrap();
    copy(&kit::root().join("tests/guests").join(name), &project);
    (folder, project)
}

#[test]
fn the_web_is_as_in_node() {
    if !Language::Js.is_there("the web") {
        return;
    }
    let (_folder, project) = guest("web");
    let expected = done(Command::new("node").arg(kit::root().join("tests/guests/web/node.js")));
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let names: Vec<&String> = expected.as_object().unwrap().keys().collect();
    assert!(names.len() > 15, "{names:?}");
    done(flowcell(&project).args(["node", "build"]));
    let nodes: Vec<Value> =
        names.iter().map(|name| json!({ "id": name, "type": "web.check", "input": { "name": name } })).collect();
    fs::write(project.join("flow.json"), json!({ "flow": { "name": "web" }, "nodes": nodes }).to_string()).unwrap();
    let given = done(flowcell(&project).args(["run", "flow.json", "--quiet", "--store", "memory:", "--packs", "dist"]));
    let given: Value = serde_json::from_str(&given).unwrap();
    for name in names {
        assert_eq!(given[name], expected[name], "{name}");
    }
}

#[test]
fn packages_of_npm_are_used() {
    if !Language::Js.is_there("packages of npm") {
        return;
    }
    let (_folder, project) = guest("npm");
    fs::remove_dir_all(project.join("node_modules")).unwrap();
    npm_install(&project);
    let cases = project.join("cases");
    let all = project.join("all");
    fs::rename(&cases, &all).unwrap();
    let asked = fs::read_to_string(project.join("package.json")).unwrap();
    let mut count = 0;
    // All together have more code than a node has memory.
    for group in ["text", "data", "time", "web"] {
        let _ = fs::remove_dir_all(&cases);
        fs::create_dir(&cases).unwrap();
        fs::copy(all.join(format!("{group}.yaml")), cases.join("all.yaml")).unwrap();
        fs::write(project.join("package.json"), asked.replace("text.js", &format!("{group}.js"))).unwrap();
        let tested = flowcell(&project).args(["node", "test"]).output().unwrap();
        let told = kit::stderr(&tested);
        assert!(tested.status.success(), "{group}: {told}");
        let cases = fs::read_to_string(cases.join("all.yaml")).unwrap().matches("- name: ").count();
        assert!(told.contains(&format!("{cases} cases, 0 failed")), "{told}");
        count += cases;
    }
    // csv-parse is used twice.
    assert_eq!(count, 31);
}

#[test]
fn the_engine_is_as_documented() {
    if !Language::Js.is_there("the engine") {
        return;
    }
    let (_folder, project) = guest("engine");
    let tested = flowcell(&project).args(["node", "test"]).output().unwrap();
    let told = kit::stderr(&tested);
    assert!(tested.status.success() && told.contains("16 cases, 0 failed"), "{told}");
}

#[test]
fn errors_of_a_build_name_the_line_of_the_author() {
    if !Language::Js.is_there("errors of a build") {
        return;
    }
    let (_folder, project) = project("broken", Language::Js);
    let code = fs::read_to_string(project.join("nodes.js")).unwrap();
    let broken = format!("{code}\nfunction failAtOnce() {{\n  return undefined.name;\n}}\nfailAtOnce();\n");
    fs::write(project.join("nodes.js"), &broken).unwrap();
    let line = broken.lines().position(|line| line.contains("undefined.name")).unwrap() + 1;
    let built = flowcell(&project).args(["node", "build"]).output().unwrap();
    let told = kit::stderr(&built);
    // The engine gives the line of the function, and the line of the call at the top.
    let is_placed = told.contains("at failAtOnce (nodes.js:") && told.contains(&format!("(nodes.js:{})", line + 2));
    assert!(!built.status.success() && is_placed, "{told}");
    assert!(!told.contains("flowcell-bundle.js:"), "{told}");
}

/// The code of a node that waits for races, for several calls at once, and for a timer. Its later requests depend on the
/// order of earlier answers.
const RELAY: &str = r#"
import { Failure, file, http, pack, queue } from "flowcell-sdk";

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Ends are found also if they came before somebody asks, and timers without a delay keep no call from ending.
async function ends({ input }) {
  const calls = ["a", "b"].map((name) => http.startSend({ url: `${input.base}/${name}` }));
  await sleep(50);
  const statuses = [];
  for (const call of calls) statuses.push((await queue.ended(call)).status);
  const texts = calls.map((call) => http.takeResponse(call).text);
  let isDone = false;
  fetch(`${input.base}/c`).then(() => (isDone = true));
  while (!isDone) await sleep(0);
  const kept = http.keep(new TextEncoder().encode("kept é"), "text/plain");
  return { statuses, texts, kept: file.readText(kept), bytes: file.readBytes(kept, 5).length };
}

async function relay({ input }) {
  const ask = async (name) => (await fetch(`${input.base}/${name}`)).text();
  const asked = ["a", "b", "c"].map(async (name) => (await ask(name)) && name);
  const first = await Promise.race(asked);
  const won = await ask(`won-${first}`);
  const order = [];
  await Promise.all(["d", "e", "f"].map((name) => ask(name).then((text) => order.push(text))));
  await new Promise((resolve) => setTimeout(resolve, 20));
  const last = await ask(`last-${order.join("")}`);
  return { first, won, order, last, all: await Promise.all(asked) };
}

export const node = pack({
  "relay.run": relay,
  "relay.ends": ends,
  "relay.cycle": () => {
    const details = {};
    details.self = details;
    throw new Failure("cycle", "no JSON", { details });
  },
  "relay.unhandled": () => void Promise.reject(new Error("nobody looks")),
  "relay.stuck": () => new Promise(() => {}),
  "relay.endless": () => {
    for (;;);
  },
  "relay.refused": async ({ input }) => (await fetch(input.base)).status,
  "relay.deep": async () => {
    await null;
    throw new Error("deep");
  },
});
"#;

const RELAY_MANIFEST: &str = "name: relay
version: 0.1.0
nodes:
  - { type: relay.run, title: Relay, input: {}, output: {}, capabilities: [{ name: http, reason: asks }] }
  - { type: relay.ends, title: Ends, input: {}, output: {}, capabilities: [{ name: http, reason: asks }] }
  - { type: relay.cycle, title: Cycle, input: {}, output: {} }
  - { type: relay.unhandled, title: Unhandled, input: {}, output: {} }
  - { type: relay.stuck, title: Stuck, input: {}, output: {} }
  - { type: relay.endless, title: Endless, input: {}, output: {} }
  - { type: relay.refused, title: Refused, input: {}, output: {}, capabilities: [{ name: http, reason: asks }] }
  - { type: relay.deep, title: Deep, input: {}, output: {} }
";

/// Builds the pack with the node [`RELAY`].
fn relay() -> (TempDir, PathBuf) {
    let (folder, project) = project("relay", Language::Js);
    fs::write(project.join("nodes.js"), RELAY).unwrap();
    fs::write(project.join("node.yaml"), RELAY_MANIFEST).unwrap();
    done(flowcell(&project).args(["node", "build"]));
    (folder, project)
}

#[test]
fn promises_settle_in_the_recorded_order_after_a_crash() {
    if !Language::Js.is_there("promises") {
        return;
    }
    let (_folder, project) = relay();
    answers_keep_their_order(&project, 1..=8);
}

#[test]
fn ends_of_calls_and_files_are_read_however_they_come() {
    if !Language::Js.is_there("ends of calls") {
        return;
    }
    let (_folder, project) = relay();
    let server = Server::start(|seen, _| {
        let path = seen.head.split(' ').nth(1).unwrap_or_default();
        answer("200 OK", &[("content-type", "text/plain")], path)
    });
    let (base, host) = (server.origin(), server.address.to_string());
    let (input, grants) = (format!("base={base}"), format!("http=[\"{base}\"]"));
    let mut command = flowcell(&project);
    command.args(["node", "run", "relay.ends", "--quiet", "--packs", "dist", "-i", &input, "--grant", &grants]);
    let ended = done(command.args(["--allow-private", &host, "--timeout-ms", "60000"]));
    let expected = json!({ "statuses": [200, 200], "texts": ["/a", "/b"], "kept": "kept é", "bytes": 2 });
    assert_eq!(serde_json::from_str::<Value>(&ended).unwrap(), expected);
}

#[test]
fn failures_of_promises_say_why_and_where() {
    if !Language::Js.is_there("failures") {
        return;
    }
    let (_folder, project) = relay();
    let failure = |node: &str, more: &[&str]| -> Value {
        let mut command = flowcell(&project);
        command.args(["node", "run", node, "--json", "--quiet", "--packs", "dist"]).args(more);
        let output = command.output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", kit::stderr(&output)));
        told["error"].clone()
    };
    let unhandled = failure("relay.unhandled", &[]);
    assert_eq!((&unhandled["code"], &unhandled["message"]), (&json!("node_failed"), &json!("Error: nobody looks")));
    let stuck = failure("relay.stuck", &[]);
    assert!(stuck["message"].as_str().unwrap().contains("a promise that nothing can settle"), "{stuck}");
    let cycle = failure("relay.cycle", &[]);
    assert_eq!((&cycle["code"], &cycle["message"]), (&json!("cycle"), &json!("no JSON")), "{cycle}");
    assert!(cycle["details"]["unreadable"].as_str().unwrap().contains("circular"), "{cycle}");
    let endless = failure("relay.endless", &["--timeout-ms", "300"]);
    assert_eq!(endless["code"], "timeout", "{endless}");
    let deep = failure("relay.deep", &[]);
    let line = RELAY.lines().position(|line| line.contains("\"deep\"")).unwrap() + 1;
    let stack = deep["details"]["stack"].to_string();
    assert!(stack.contains(&format!("at relay.deep (nodes.js:{line})")), "{deep}");
    // The server refuses the connection, so a retry may help. The error of `fetch` keeps that.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let base = format!("http://{closed}");
    let grants = format!("http=[\"{base}\"]");
    let input = format!("base={base}");
    let refused = failure("relay.refused", &["-i", &input, "--grant", &grants, "--allow-private", &closed.to_string()]);
    assert_eq!((&refused["code"], &refused["retryable"]), (&json!("http_connect"), &json!(true)), "{refused}");
    let asked = RELAY.lines().position(|line| line.contains("\"relay.refused\"")).unwrap() + 1;
    assert_eq!(refused["details"]["stack"][0], json!(format!("at relay.refused (nodes.js:{asked})")), "{refused}");
    let denied = failure("relay.refused", &["-i", &input, "--grant", "http=[\"https://example.com\"]"]);
    assert_eq!(denied["code"], "denied", "{denied}");
}

#[test]
fn cases_run_again_after_a_change_and_not_after_a_file_of_the_editor() {
    if !Language::Js.is_there("a watch") {
        return;
    }
    let (_folder, project) = project("shop", Language::Js);
    let mut command = flowcell(&project);
    command.args(["node", "test", "--watch", "--only", "letters"]).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    fn until(lines: &mut impl Iterator<Item = String>, word: &str) -> String {
        lines.find(|line| line.contains(word)).unwrap_or_else(|| panic!("it ended without `{word}`"))
    }
    until(&mut lines, "0 failed");
    fs::write(project.join(".nodes.js.swp"), "x").unwrap();
    fs::write(project.join("nodes.js~"), "x").unwrap();
    let code = fs::read_to_string(project.join("nodes.js")).unwrap();
    fs::write(project.join("nodes.js"), code.replace("Hello", "Hullo")).unwrap();
    let changed = until(&mut lines, "has changed");
    assert!(changed.contains("nodes.js has changed"), "{changed}");
    until(&mut lines, "1 failed");
    fs::write(project.join("nodes.js"), "const = 1;").unwrap();
    until(&mut lines, "cannot build the project");
    fs::write(project.join("nodes.js"), code).unwrap();
    until(&mut lines, "0 failed");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn functions_without_a_bundle_cannot_be_async() {
    if !Language::Js.is_there("functions") {
        return;
    }
    let (_folder, project) = project("plain", Language::Js);
    let package = fs::read_to_string(project.join("package.json")).unwrap();
    fs::write(project.join("package.json"), package.replace(r#", "esbuild": "0.28.2""#, "")).unwrap();
    fs::write(
        project.join("nodes.js"),
        "import { pack } from \"./vendor/flowcell-sdk/index.js\";\n\
         export const node = pack({ \"plain.greet\": async () => 1, \"plain.approve\": () => 2 });\n",
    )
    .unwrap();
    done(flowcell(&project).args(["node", "build"]));
    let arguments = ["node", "run", "plain.greet", "-i", "name=Ada", "--json", "--quiet", "--packs", "dist"];
    let ran = flowcell(&project).args(arguments).output().unwrap();
    let told = kit::stdout(&ran);
    assert!(told.contains("npm install --save-dev esbuild"), "{told}{}", kit::stderr(&ran));
}

/// Returns the path of the TypeScript compiler. Without it, the test is skipped.
pub(super) fn tsc(test: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&paths).map(|folder| folder.join("tsc")).find(|file| file.is_file());
    if found.is_none() {
        assert!(std::env::var_os("FLOWCELL_TEST_TOOLCHAINS").is_none(), "{test} needs tsc");
        eprintln!("skipped: {test}: `tsc` is missing");
    }
    found
}

/// The types that `flowcell init` writes beside a script fit it, and wrong names in it are found.
#[test]
fn scripts_have_types_for_editors() {
    let Some(tsc) = tsc("scripts_have_types_for_editors") else { return };
    let folder = tempfile::tempdir().unwrap();
    let check = |file: &str| {
        let options = "--noEmit --allowJs --checkJs --noImplicitAny false --target es2022 --module es2022".split(' ');
        let checked = Command::new(&tsc).current_dir(folder.path()).args(options).arg(file).output().unwrap();
        (checked.status.success(), kit::stdout(&checked))
    };
    for (example, file) in
        [("captions", "captions.flow.js"), ("statistics", "statistics.flow.js"), ("grades", "lib/passed.js")]
    {
        done(flowcell(folder.path()).args(["init", example, "--example", example]));
        let (is_right, told) = check(&format!("{example}/{file}"));
        assert!(is_right, "{example}: {told}");
    }
    let printed = done(flowcell(folder.path()).args(["schema", "--dialect", "script"]));
    assert_eq!(printed, fs::read_to_string(folder.path().join("grades/flow.d.ts")).unwrap());
    const RIGHT: &str = "/// <reference path=\"./flow.d.ts\" />
/** @type {FlowSetup} */
export function setup(flow) { flow.inText('name', 'Name', { optional: true }); }
/** @type {FlowRun} */
export async function run(services, facts) {
  services.outputs('slug', fn.slugify(`${facts.run.id} ${services.inputs.name}`));
  return fn.is.matches('AB', '^A') && (await services.img([], 'rain'));
}
";
    let script = folder.path().join("grades/own.js");
    fs::write(&script, RIGHT).unwrap();
    let (is_right, told) = check("grades/own.js");
    assert!(is_right, "{told}");
    for (right, wrong) in [
        ("inText", "inTxt"),
        ("optional", "optinal"),
        ("run.id", "run.ids"),
        ("slugify", "slugfy"),
        ("is.matches", "is.match"),
    ] {
        fs::write(&script, RIGHT.replace(right, wrong)).unwrap();
        let (is_right, told) = check("grades/own.js");
        let name = wrong.rsplit('.').next().unwrap();
        assert!(!is_right && told.contains(&format!("'{name}'")), "{wrong}: {told}");
    }
}

#[test]
fn types_of_the_sdk_are_those_of_its_code() {
    if !Language::Ts.is_there("types") {
        return;
    }
    let (_folder, project) = project("shop", Language::Ts);
    let Some(tsc) = tsc("types_of_the_sdk_are_those_of_its_code") else { return };
    let checked = |folder: &Path| Command::new(&tsc).current_dir(folder).output().unwrap();
    assert!(checked(&project).status.success(), "{}", kit::stdout(&checked(&project)));
    let code = fs::read_to_string(project.join("nodes.ts")).unwrap();
    fs::write(project.join("nodes.ts"), code.replace("input.name === \"\"", "input.nam === \"\"")).unwrap();
    assert!(kit::stdout(&checked(&project)).contains("nam"), "a wrong name is accepted");
    // The compiler knows the globals that exist, and no others.
    let uses = |code: &str| {
        let code = format!("export async function use(): Promise<unknown> {{ return {code}; }}\n");
        fs::write(project.join("nodes.ts"), code).unwrap();
        checked(&project)
    };
    for exists in [
        "fetch(\"https://example.com\", { timeoutMs: 1, stream: true }).then((answer) => answer.body?.getReader())",
        "crypto.subtle.digest(\"SHA-256\", new TextEncoder().encode(\"x\"))",
        "[new URL(\"x:y\").searchParams, new Headers({ a: \"b\" }), structuredClone([1]), new AbortController().signal]",
    ] {
        assert!(uses(exists).status.success(), "{exists}: {}", kit::stdout(&uses(exists)));
    }
    for missing in [
        "new ReadableStream()",
        "new CustomEvent(\"x\")",
        "document.title",
        "new WebSocket(\"wss://example.com\")",
        "fetch(\"https://example.com\").then((answer) => answer.body?.pipeThrough)",
        "crypto.subtle.encrypt",
    ] {
        assert!(!uses(missing).status.success(), "{missing} is accepted");
    }
}
