//! Tests the files that packages carry beside the program.

#![cfg(unix)]

use std::{fs, process::Command};

use crate::kit::{has_program, output_of, root, stderr, stdout};

#[test]
fn man_pages_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let written = output_of(folder.path(), &["man-pages", "new/man1"]);
    assert!(written.status.success(), "{}", stderr(&written));
    let mut pages: Vec<_> =
        fs::read_dir(folder.path().join("new/man1")).unwrap().map(|it| it.unwrap().path()).collect();
    pages.sort();
    assert!(pages.len() > 80, "only {} pages were written", pages.len());
    if !has_program("groff") {
        return;
    }
    let checked = Command::new("groff").args(["-k", "-man", "-Tutf8", "-ww", "-z"]).args(&pages).output().unwrap();
    let warnings = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && warnings.is_empty(), "{warnings}");
}

#[test]
fn man_pages_name_the_folder_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let refused = output_of(folder.path(), &["man-pages", "file"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("cannot write the man pages into file"), "{}", stderr(&refused));
}

/// Returns a file that packages carry.
fn packaged(file: &str) -> String {
    fs::read_to_string(root().join("host/cli/package").join(file)).unwrap()
}

/// The largest exposure of the unit that `systemd-analyze security` may find, in tenths: 3.0.
const MAX_EXPOSURE: &str = "30";

#[test]
fn the_unit_is_valid_and_exposes_little() {
    if !has_program("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("flowcell.service");
    let installed = "/usr/bin/flowcell ";
    let text = packaged("flowcell.service");
    assert_eq!(text.matches(installed).count(), 2, "the unit calls the program in another way");
    fs::write(&unit, text.replace(installed, concat!(env!("CARGO_BIN_EXE_flowcell"), " "))).unwrap();
    let analyze = |arguments: &[&str]| {
        let output = Command::new("systemd-analyze").args(arguments).arg(&unit).output().unwrap();
        (output.status.success(), format!("{}{}", stdout(&output), stderr(&output)))
    };
    // It tells of an unknown setting in a message only.
    assert_eq!(analyze(&["verify", "--man=no"]), (true, String::new()));
    let threshold = format!("--threshold={MAX_EXPOSURE}");
    let (is_below, report) = analyze(&["security", "--offline=yes", &threshold]);
    assert!(is_below && report.contains("Overall exposure level"), "{report}");
    // The check can fail: a unit without these settings exposes more.
    let has = |line: &str| ["Private", "Protect", "SystemCall"].iter().any(|start| line.starts_with(start));
    let bare: String = text.lines().filter(|line| !has(line)).map(|line| format!("{line}\n")).collect();
    fs::write(&unit, bare).unwrap();
    assert!(!analyze(&["security", "--offline=yes", &threshold]).0, "a unit without protection is below the threshold");
}

/// Returns the values of an instruction of the Containerfile.
fn instructions<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect()
}

#[test]
fn the_container_runs_without_root_and_with_read_only_files() {
    let image = fs::read_to_string(root().join("Containerfile")).unwrap();
    assert_eq!(instructions(&image, "FROM"), ["scratch"]);
    let user = "65532:65532";
    assert_eq!(instructions(&image, "USER"), [user]);
    let home = "/var/lib/flowcell";
    assert_eq!((instructions(&image, "VOLUME"), instructions(&image, "WORKDIR")), (vec![home], vec![home]));
    assert!(image.contains(&format!("COPY --chown={user} home/ {home}/\n")), "the volume has another owner");
    for variable in ["FLOWCELL_STATE", "FLOWCELL_FLOWS", "FLOWCELL_CACHE"] {
        assert!(image.contains(&format!("{variable}={home}/")), "{variable} is outside of the volume");
    }
    let services: serde_json::Value = serde_yaml::from_str(&packaged("compose.yaml")).unwrap();
    let service = &services["services"]["flowcell"];
    assert_eq!((&service["read_only"], &service["cap_drop"][0]), (&true.into(), &"ALL".into()));
    assert_eq!(service["volumes"][0], format!("flowcell:{home}"));
    let port = instructions(&image, "EXPOSE")[0];
    assert!(service["ports"][0].as_str().unwrap().ends_with(&format!(":{port}")), "{service}");
    assert!(image.contains(&format!("\"0.0.0.0:{port}\"")), "the server listens on another port");
}

#[test]
fn the_settings_of_the_package_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = packaged("serve.yaml");
    let state = "/var/lib/flowcell";
    assert_eq!(text.matches(&format!(": {state}/")).count(), 2, "{text}");
    let here = folder.path().to_str().unwrap();
    fs::write(folder.path().join("serve.yaml"), text.replace(state, here)).unwrap();
    let checked = output_of(folder.path(), &["serve", "--config", "serve.yaml", "--check"]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert!(stdout(&checked).contains(&format!("state: \"{here}/store\"")), "{}", stdout(&checked));
}
