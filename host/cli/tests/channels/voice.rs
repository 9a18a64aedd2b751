//! Tests `flows/channels/voice.sh` by the audio files that it writes.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    process::Stdio,
};

use serde_json::{Value, json};

use crate::{
    channels::flow,
    kit::{flowcell, has_program, root, stderr},
};

/// Returns whether the programs of the voice are installed. If not, prints that the test is skipped.
fn can_speak() -> bool {
    has_program("espeak-ng") && has_program("jq")
}

/// Reads a mono WAV file with 16 bits. Returns its samples per second and its samples.
fn samples(file: &Path) -> (u32, Vec<i16>) {
    let bytes = fs::read(file).unwrap();
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((&bytes[..4], &bytes[8..16]), (&b"RIFF"[..], &b"WAVEfmt "[..]));
    // Uncompressed, mono, two bytes for each sample.
    assert_eq!((&bytes[20..24], &bytes[34..36]), (&[1, 0, 1, 0][..], &[16, 0][..]));
    assert_eq!(&bytes[36..40], b"data");
    let data = &bytes[44..44 + number(40) as usize];
    assert_eq!(bytes.len(), 44 + data.len(), "the sizes in the head are right");
    (number(24), data.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect())
}

/// Returns the duration of a file in seconds. Fails if the file is silent.
fn spoken(file: &Path) -> f64 {
    let (rate, samples) = samples(file);
    let loud = samples.iter().filter(|sample| sample.unsigned_abs() > 1_000).count();
    assert!(loud * 20 > samples.len(), "{} of {} samples are loud: that is silence", loud, samples.len());
    samples.len() as f64 / f64::from(rate)
}

#[test]
fn messages_of_agents_are_spoken() {
    if !can_speak() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let voice = format!("exec:'{}' --out said", root().join("flows/channels/voice.sh").display());
    let output = flowcell(folder.path())
        .args(["run", &flow("agents/research.yaml"), "--simulate", "model", "--quiet", "--channel", &voice])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    // The file says "simulated reply to: How many parcels are there?" and the reviewer's text, so it lasts seconds and
    // not minutes.
    let first = spoken(&folder.path().join("said/0001.wav"));
    assert!((1.5..8.0).contains(&first), "{first} s");
    let slow = format!("exec:'{}' --out slow --speed 80", root().join("flows/channels/voice.sh").display());
    let output = flowcell(folder.path())
        .args(["run", &flow("agents/research.yaml"), "--simulate", "model", "--quiet", "--channel", &slow])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let slow = spoken(&folder.path().join("slow/0001.wav"));
    assert!(slow > first * 1.3, "at 80 words a minute it takes longer: {slow} s against {first} s");
}

#[test]
fn a_typed_line_answers_a_spoken_question() {
    if !can_speak() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("typed");
    let voice = format!("exec:'{}' --out said --listen typed", root().join("flows/channels/voice.sh").display());
    let child = flowcell(folder.path())
        .args(["run", &flow("graph/gate.yaml"), "--quiet", "--channel", &voice])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The person hears the question before answering it.
    let asked = folder.path().join("said/0001.wav");
    while !asked.exists() {
        std::thread::yield_now();
    }
    assert!(spoken(&asked) > 1.0);
    writeln!(OpenOptions::new().write(true).open(&fifo).unwrap(), "publish").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let outputs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outputs, json!({ "decision": "publish", "published": "Version 2 is out" }));
}
