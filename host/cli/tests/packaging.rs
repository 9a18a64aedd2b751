//! Tests the files that packages carry beside the program.

#![cfg(unix)]

use std::{fs, process::Command};

use crate::kit::{has_program, output_of, stderr};

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
