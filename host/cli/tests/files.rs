//! Tests `flowcell files`, and files as inputs of runs.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::kit::{self, output_of, stderr, stdout};

const FLOW: &str = r#"{ "flow": { "name": "hand", "outputs": { "photo": "{{ flow.input.photo }}", "text": "{{ flow.input.text }}" } },
    "nodes": [{ "id": "a", "type": "control.noop" }] }"#;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\nnot really";

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn project_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hand.json"), FLOW).unwrap();
    fs::write(folder.path().join("photo.dat"), PNG).unwrap();
    folder
}

fn check_round_trip(folder: &Path) {
    let put =
        json(&output_of(folder, &["files", "put", "photo.dat", "--name", "a.png", "--metadata", r#"{"of":"Ada"}"#]));
    let id = put["fileId"].as_str().unwrap();
    assert_eq!((&put["kind"], &put["mime"], &put["name"]), (&json!("file"), &json!("image/png"), &json!("a.png")));
    let listed = json(&output_of(folder, &["files", "list"]));
    assert_eq!((&listed[0]["fileId"], &listed[0]["metadata"]), (&put["fileId"], &json!({ "of": "Ada" })));
    assert_eq!(output_of(folder, &["files", "get", id]).stdout, PNG);
    assert!(output_of(folder, &["files", "get", id, "--out", "copy.png"]).status.success());
    assert_eq!(fs::read(folder.join("copy.png")).unwrap(), PNG);
    json(&output_of(folder, &["files", "rm", id]));
    let gone = output_of(folder, &["files", "get", id]);
    assert_eq!(gone.status.code(), Some(2));
    assert!(stderr(&gone).contains("does not exist"), "{}", stderr(&gone));
    assert_eq!(json(&output_of(folder, &["files", "list"])), json!([]));
}

#[test]
fn files_are_put_listed_fetched_and_removed() {
    check_round_trip(project_folder().path());
}

#[cfg(unix)]
#[test]
fn the_owner_of_the_store_handles_files_for_other_processes() {
    let folder = project_folder();
    let mut command = kit::flowcell(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listening on")));
    check_round_trip(folder.path());
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn only_listed_files_survive_a_sweep() {
    let folder = project_folder();
    let kept = json(&output_of(folder.path(), &["files", "put", "photo.dat"]));
    fs::write(folder.path().join("other.txt"), "other").unwrap();
    let other = json(&output_of(folder.path(), &["files", "put", "other.txt"]));
    let id = |file: &Value| file["fileId"].as_str().unwrap().to_owned();
    json(&output_of(folder.path(), &["files", "rm", &id(&other)]));
    let swept = output_of(folder.path(), &["runs", "gc", "--keep", "0"]);
    assert!(swept.status.success(), "{}", stderr(&swept));
    assert_eq!(output_of(folder.path(), &["files", "get", &id(&kept)]).stdout, PNG);
    // Removing a file deletes its bytes and not only its row.
    let flow = r#"{ "flow": { "name": "x" }, "nodes": [{ "id": "a", "type": "control.noop", "input": { "value": "{{ flow.input.f }}" } }] }"#;
    fs::write(folder.path().join("x.json"), flow).unwrap();
    for (file, found) in [(&kept, true), (&other, false)] {
        let given = format!("f={file}");
        let output = output_of(folder.path(), &["run", "x.json", "--quiet", "-i", &given, "--out", "made"]);
        assert_eq!(output.status.success(), found, "{}", stderr(&output));
    }
}

#[test]
fn a_file_is_an_input_and_an_output() {
    let folder = project_folder();
    let run = |more: &[&str]| {
        let arguments = ["run", "hand.json", "-i", "photo=@photo.dat", "-i", "text=@@ada"];
        output_of(folder.path(), &[&arguments[..], more].concat())
    };
    let output = run(&["--out", "made/here", "--run-id", "a"]);
    let outputs = json(&output);
    assert_eq!((&outputs["photo"]["mime"], &outputs["photo"]["name"]), (&json!("image/png"), &json!("photo.dat")));
    assert_eq!(outputs["text"], "@ada");
    assert!(stderr(&output).contains("photo.png"), "{}", stderr(&output));
    assert_eq!(fs::read(folder.path().join("made/here/photo.png")).unwrap(), PNG);
    // The same command resumes the run or prints its result again.
    assert_eq!(json(&run(&["--quiet", "--run-id", "a"])), outputs);
    assert_eq!(json(&output_of(folder.path(), &["files", "list"])), json!([]), "it is kept for the run alone");
    let missing = output_of(folder.path(), &["run", "hand.json", "-i", "photo=@nowhere.png"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("cannot read nowhere.png"), "{}", stderr(&missing));
    assert!(stdout(&missing).is_empty());
}

#[cfg(unix)]
#[test]
fn outputs_are_written_only_into_their_folder() {
    let folder = project_folder();
    let made = folder.path().join("made");
    fs::create_dir(&made).unwrap();
    fs::write(folder.path().join("precious"), "mine").unwrap();
    std::os::unix::fs::symlink("../precious", made.join("photo.png")).unwrap();
    let output = output_of(folder.path(), &["run", "hand.json", "-i", "photo=@photo.dat", "--out", "made", "--quiet"]);
    assert_eq!(fs::read_to_string(folder.path().join("precious")).unwrap(), "mine", "{}", stderr(&output));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_refuses_a_large_file_and_the_store_goes_on() {
    let Some(disk) = kit::Disk::mount(24) else { return };
    let outside = tempfile::tempdir().unwrap();
    let large = outside.path().join("large.bin");
    fs::write(&large, vec![7; 40 << 20]).unwrap();
    fs::write(disk.path().join("photo.dat"), PNG).unwrap();
    let refused = output_of(disk.path(), &["files", "put", large.to_str().unwrap()]);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("cannot write a large file"), "{}", stderr(&refused));
    let unfinished = disk.path().join(".flowcell/flowcell.files/unfinished");
    assert_eq!(fs::read_dir(unfinished).unwrap().count(), 0, "the room is free again");
    check_round_trip(disk.path());
}
