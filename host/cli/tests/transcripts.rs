//! Compares the output of the command line with transcripts. Every folder in `transcripts/` is a case.
//!
//! | file | content |
//! |---|---|
//! | `cmd` | the arguments, on one line, split at spaces outside of `"…"`; `$PACKS` is the folder of built packs |
//! | `stdin` | standard input, empty without the file |
//! | `stdout`, `stderr`, `exit` | the expected result |
//! | `*.expected` | the content of the file of that name which the command must write |
//! | others | files in the folder of the command |
//!
//! Run ids and times are replaced before comparing. `BLESS=1` writes the actual results instead of comparing.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use regex_lite::Regex;

#[test]
fn transcripts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut cases: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() > 20, "the cases are gone");
    let failures: Vec<String> = cases.iter().flat_map(|case| check(case)).collect();
    assert!(failures.is_empty(), "{}\n\nBLESS=1 accepts what came", failures.join("\n"));
}

/// Runs one case. Returns the differences.
fn check(case: &Path) -> Vec<String> {
    let scratch = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for entry in fs::read_dir(case).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match name.strip_suffix(".expected") {
            Some(name) => written.push(name.to_owned()),
            None => drop(fs::copy(&path, scratch.path().join(name)).unwrap()),
        }
    }
    let output = run(scratch.path());
    let mut came = vec![
        ("stdout".to_owned(), redact(&output.stdout)),
        ("stderr".to_owned(), redact(&output.stderr)),
        ("exit".to_owned(), format!("{}\n", output.status.code().unwrap_or(-1))),
    ];
    for name in written {
        let content = fs::read(scratch.path().join(&name)).unwrap_or_default();
        came.push((format!("{name}.expected"), redact(&content)));
    }
    came.iter().filter_map(|(file, came)| compare(&case.join(file), came)).collect()
}

fn run(folder: &Path) -> Output {
    let line = fs::read_to_string(folder.join("cmd")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
    command.args(split(line.trim_end()).iter().map(|argument| argument.replace("$PACKS", packs().to_str().unwrap())));
    command.current_dir(folder).env("FLOWCELL_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command.env_remove("FLOWCELL_LOG").stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Dropping the pipe ends the input.
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(&fs::read(folder.join("stdin")).unwrap_or_default());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn split(line: &str) -> Vec<String> {
    let word = Regex::new(r#"(?:[^\s"]|"[^"]*")+"#).unwrap();
    word.find_iter(line).map(|word| word.as_str().replace('"', "")).collect()
}

/// Returns the folder in which the build script puts the catalog's packs.
fn packs() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_flowcell"));
    let target = binary.ancestors().find(|folder| folder.join("guests").is_dir()).unwrap();
    target.join("guests/wasm32-wasip2/guest")
}

/// Replaces the parts that vary between runs.
fn redact(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap().replace(packs().to_str().unwrap(), "$PACKS");
    let changing = [
        (r"run-[0-9a-f]{20}", "run-ID"),
        (r#""(durationMs|ts|waitedMs|seed|size)":( ?)\d+"#, "\"$1\":${2}0"),
        (r"\b\d+(\.\d)? (ms|s)\b", "N ms"),
        (r"\b\d+ bytes\b", "N bytes"),
        (r#"time="[0-9.]+""#, "time=\"0\""),
        (r"sha256:[0-9a-f]{64}", "sha256:DIGEST"),
        (r#""digest":( ?)"[0-9a-f]{32}""#, "\"digest\":${1}\"DIGEST\""),
    ];
    changing
        .iter()
        .fold(text, |text, (pattern, with)| Regex::new(pattern).unwrap().replace_all(&text, *with).into_owned())
}

fn compare(file: &Path, came: &str) -> Option<String> {
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, came).unwrap();
        return None;
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    (expected != came).then(|| format!("\n{}\n--- expected\n{expected}--- came\n{came}", file.display()))
}
