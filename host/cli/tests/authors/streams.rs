//! Files that are larger than the memory of the nodes and of the host that pass them on.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    authors::language::{Language, done, flowcell, project},
    kit,
    outside::server::{Server, answer},
};

/// Size in MiB of the file that passes, times `FLOWCELL_TEST_SCALE`: 16 makes 1 GiB.
const SIZE_MIB: usize = 64;
/// The memory that the host may take in addition while the file passes, in bytes.
const MAX_GROWTH: u64 = 64 << 20;

/// Puts a line before the content.
const RUST: &str = r#"
use std::io::{self, BufRead, Write};

use flowcell_sdk::{file, prelude::*};

#[derive(Deserialize)]
struct Input {
    file: Value,
}

fn add(input: Input) -> Result<Value> {
    let mut to = file::Writer::new()?;
    let mut from = file::Reader::new(&input.file);
    let copied = to.write_all(b"first\n").and_then(|()| io::copy(&mut from, &mut to));
    if let Some(failure) = from.take_failure() {
        return Err(failure);
    }
    let copied = copied.map_err(|error| Failure::new("failed", error.to_string()))?;
    Ok(json!({ "file": to.finish("text/plain")?, "copied": copied }))
}

fn count(input: Input) -> Result<Value> {
    let (mut lines, mut reader) = (0_u64, file::Reader::at(&input.file, 6));
    loop {
        let piece = reader.fill_buf().map_err(|error| Failure::new("failed", error.to_string()))?;
        if piece.is_empty() {
            break;
        }
        lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        let length = piece.len();
        reader.consume(length);
    }
    let chunks = file::Reader::new(&input.file).chunks().try_fold(0, |count, chunk| chunk.map(|_| count + 1))?;
    Ok(json!({ "lines": lines, "chunks": chunks }))
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "solid.add" => add,
    "solid.count" => count,
}
"#;

const RUST_MANIFEST: &str = "name: solid
version: 0.1.0
nodes:
  - { type: solid.add, title: Add, input: {}, output: {} }
  - { type: solid.count, title: Count, input: {}, output: {} }
";

/// Removes the first line of the content again. `fluid.halt` asks a server between two parts.
const JS: &str = r#"
import { file, http, pack } from "flowcell-sdk";

function cut({ input }) {
  const to = new file.Writer();
  for (const piece of file.chunks(input.file, 6)) to.write(piece);
  return { file: to.finish("text/plain") };
}

function halt({ input }) {
  const to = new file.Writer();
  const lost = new file.Writer();
  lost.write(new Uint8Array(3 << 20));
  let size = 0;
  for (const piece of file.chunks(input.file)) {
    size = to.write(piece);
    if (size === 2 << 20) http.send({ url: input.url });
  }
  return { file: to.finish("text/plain"), size };
}

function lines({ input }) {
  const found = [];
  for (const line of file.lines(input.file)) found.push(line);
  return { found };
}

function refused({ input }) {
  const codes = [];
  const attempt = (work) => {
    try {
      work();
      codes.push("none");
    } catch (thrown) {
      codes.push(thrown.code);
    }
  };
  const done = new file.Writer();
  const value = done.finish();
  attempt(() => done.finish());
  attempt(() => done.write(new Uint8Array(1)));
  attempt(() => file.readBytes({ kind: "file", fileId: "0".repeat(64) }));
  attempt(() => file.readBytes({ kind: "file", fileId: "../../flowcell.db" }));
  attempt(() => file.readBytes(value, 2 ** 40, 10));
  done.discard();
  attempt(() => { for (;;) new file.Writer(); });
  return { codes, size: value.size };
}

export const node = pack({
  "fluid.cut": cut,
  "fluid.halt": halt,
  "fluid.lines": lines,
  "fluid.refused": refused,
});
"#;

const JS_MANIFEST: &str = "name: fluid
version: 0.1.0
nodes:
  - { type: fluid.cut, title: Cut, input: {}, output: {} }
  - { type: fluid.halt, title: Halt, input: {}, output: {}, capabilities: [{ name: http, reason: asks }] }
  - { type: fluid.lines, title: Lines, input: {}, output: {} }
  - { type: fluid.refused, title: Refused, input: {}, output: {} }
";

/// Builds the pack in JavaScript.
fn fluid() -> (TempDir, PathBuf) {
    let (folder, project) = project("fluid", Language::Js);
    fs::write(project.join("nodes.js"), JS).unwrap();
    fs::write(project.join("node.yaml"), JS_MANIFEST).unwrap();
    done(flowcell(&project).args(["node", "build"]));
    (folder, project)
}

/// Builds the pack in Rust.
fn solid() -> (TempDir, PathBuf) {
    let (folder, project) = project("solid", Language::Rust);
    fs::write(project.join("src/lib.rs"), RUST).unwrap();
    fs::write(project.join("node.yaml"), RUST_MANIFEST).unwrap();
    done(flowcell(&project).args(["node", "build"]));
    (folder, project)
}

/// Writes lines of 16 bytes.
fn write_lines(path: &Path, mib: usize) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    (0..mib << 16).for_each(|number| writeln!(file, "{number:015}").unwrap());
    file.flush().unwrap();
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

/// Returns a value of a process, such as `VmRSS:` or its maximum `VmHWM:`, in bytes.
#[cfg(target_os = "linux")]
fn resident(process: u32, which: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(which)).unwrap();
    line.trim_matches(|letter: char| !letter.is_ascii_digit()).parse::<u64>().unwrap() * 1_024
}

#[cfg(target_os = "linux")]
#[test]
fn a_large_file_passes_nodes_in_rust_and_javascript_in_constant_memory() {
    if !Language::Js.is_there("a large file") {
        return;
    }
    let ((_solid, rust), (_fluid, js)) = (solid(), fluid());
    let folder = tempfile::tempdir().unwrap();
    let flow = json!({
        "flow": { "name": "pass", "outputs": { "same": "{{ cut.file }}", "added": "{{ add.copied }}", "count": "{{ count }}" } },
        "nodes": [
            { "id": "add", "type": "solid.add", "input": { "file": "{{ flow.input.file }}" } },
            { "id": "count", "type": "solid.count", "input": { "file": "{{ add.file }}" } },
            { "id": "cut", "type": "fluid.cut", "input": { "file": "{{ add.file }}" } },
        ],
        "edges": [{ "from": "add", "to": "count" }, { "from": "count", "to": "cut" }],
    });
    fs::write(folder.path().join("pass.json"), flow.to_string()).unwrap();
    let packs = [rust.join("dist"), js.join("dist")].map(|dist| dist.display().to_string());
    let packs = ["--packs", &packs[0], "--packs", &packs[1]];
    let serve = [&["serve", "--listen", "127.0.0.1:0"][..], &packs].concat();
    let owner = kit::Owner::start(folder.path(), &serve, "listening on");
    let pass = |mib: usize| {
        let path = folder.path().join("in.txt");
        write_lines(&path, mib);
        let put = kit::output_of(folder.path(), &["files", "put", "in.txt"]);
        assert!(put.status.success(), "{}", kit::stderr(&put));
        let file = parsed(&kit::stdout(&put));
        // Memory that the upload or an earlier run took does not count.
        fs::write(format!("/proc/{}/clear_refs", owner.id()), "5").unwrap();
        let before = resident(owner.id(), "VmRSS:");
        let input = format!("file={file}");
        let run = kit::output_of(folder.path(), &[&["run", "pass.json", "--quiet", "-i", &input][..], &packs].concat());
        assert!(run.status.success(), "{}", kit::stderr(&run));
        let grown = resident(owner.id(), "VmHWM:").saturating_sub(before);
        let outputs = parsed(&kit::stdout(&run));
        assert_eq!(outputs["same"]["fileId"], file["fileId"], "{outputs}");
        assert_eq!(outputs["added"], json!(mib << 20));
        assert_eq!(outputs["count"], json!({ "lines": mib << 16, "chunks": mib + 1 }));
        let id = file["fileId"].as_str().unwrap();
        let got = kit::output_of(folder.path(), &["files", "get", id, "--out", "out.txt"]);
        assert!(got.status.success(), "{}", kit::stderr(&got));
        let compared = Command::new("cmp").arg(&path).arg(folder.path().join("out.txt")).status().unwrap();
        assert!(compared.success());
        grown
    };
    // The first run compiles the nodes.
    pass(1);
    let grown = pass(SIZE_MIB * kit::scale());
    assert!(grown < MAX_GROWTH, "the memory of the host grew by {grown} bytes");
}

#[test]
fn a_file_that_a_killed_process_wrote_is_written_again_and_is_the_same() {
    if !Language::Js.is_there("a killed process") {
        return;
    }
    let (_folder, project) = fluid();
    let victim: Arc<Mutex<Option<u32>>> = Arc::default();
    let process = victim.clone();
    let server = Server::start(move |_, _| {
        if let Some(process) = process.lock().unwrap().take() {
            assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
        }
        answer("200 OK", &[], "go on")
    });
    let url = server.origin();
    let flow = json!({ "flow": { "name": "halt", "outputs": { "all": "{{ halt }}" } }, "nodes": [{
        "id": "halt", "type": "fluid.halt", "input": { "url": url, "file": "{{ flow.input.file }}" }, "grants": { "http": [url] },
    }] });
    fs::write(project.join("flow.json"), flow.to_string()).unwrap();
    write_lines(&project.join("in.txt"), 5);
    let host = server.address.to_string();
    let common = ["--quiet", "--allow-private", &host, "--packs", "dist"];
    let mut child = {
        let mut held = victim.lock().unwrap();
        let mut command = flowcell(&project);
        command.args(["run", "flow.json", "--run-id", "r", "-i", "file=@in.txt"]).args(common);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        *held = Some(child.id());
        child
    };
    assert!(!child.wait().unwrap().success());
    let state = project.join(".flowcell/flowcell.files");
    let unfinished = || fs::read_dir(state.join("unfinished")).unwrap().count();
    assert_eq!(unfinished(), 2, "a killed process leaves its unfinished files");
    let resumed = done(flowcell(&project).args(["runs", "resume", "r"]).args(common));
    let outputs = parsed(&resumed);
    assert_eq!((&outputs["all"]["size"], unfinished()), (&json!(5 << 20), 0), "{outputs}");
    // The copy has the content of the input, and so its id.
    let input = parsed(&done(flowcell(&project).args(["runs", "export", "r"])));
    assert!(input.to_string().contains(outputs["all"]["file"]["fileId"].as_str().unwrap()));
    assert_eq!(outputs["all"]["file"]["size"], json!(5 << 20));
}

#[test]
fn lines_are_read_and_misuse_has_an_error() {
    if !Language::Js.is_there("lines") {
        return;
    }
    let (_folder, project) = fluid();
    // The second long line has the border between two chunks.
    let long = "é".repeat(300_000);
    let text = format!("a\r\n\n{long}\n{long}\nlast");
    fs::write(project.join("in.txt"), &text).unwrap();
    let run = |node: &str, input: &[&str]| {
        let mut command = flowcell(&project);
        command.args(["node", "run", node, "--quiet", "--packs", "dist", "--timeout-ms", "60000"]).args(input);
        parsed(&done(&mut command))
    };
    assert_eq!(run("fluid.lines", &["-i", "file=@in.txt"])["found"], json!(["a", "", long, long, "last"]));
    let refused = run("fluid.refused", &[]);
    let codes = json!(["invalid_input", "invalid_input", "file_not_found", "file_not_found", "none", "limit_exceeded"]);
    assert_eq!((&refused["codes"], &refused["size"]), (&codes, &json!(0)));
}
