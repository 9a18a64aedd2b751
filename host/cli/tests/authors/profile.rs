//! Tests `flowcell node profile`: it names the functions where a node computes.

use std::fs;

use crate::{
    authors::language::{Language, done, flowcell, project},
    guests, kit,
};

/// A function that computes for some milliseconds.
const CRUNCH: &str = "
#[inline(never)]
fn crunch(name: &str) -> usize {
    (0..5_000_000_usize).fold(name.len(), |sum, n| std::hint::black_box(sum.wrapping_mul(31) ^ n))
}

fn greet";

#[test]
fn the_function_that_computes_is_named_in_the_table_and_the_picture() {
    let (_folder, project) = project("shop", Language::Rust);
    let code = fs::read_to_string(project.join("src/lib.rs")).unwrap();
    let slow = code.replacen("\nfn greet", CRUNCH, 1).replace("input.name) })", "crunch(&input.name)) })");
    assert_ne!(code, slow);
    fs::write(project.join("src/lib.rs"), slow).unwrap();
    done(flowcell(&project).args(["node", "build"]).env("CARGO_PROFILE_RELEASE_STRIP", "false"));
    let arguments = ["node", "profile", "shop.greet", "--packs", "dist", "--seconds", "1"];
    let table = done(flowcell(&project).args(arguments).args(["--out", "graph.svg"]));
    let row = table.lines().find(|line| line.contains("crunch")).unwrap_or_else(|| panic!("{table}"));
    let own: f64 = row.split('%').next().unwrap().trim().parse().unwrap();
    assert!(own > 50.0 && table.contains("the example \"A name\""), "{table}");
    let picture = fs::read_to_string(project.join("graph.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("crunch ("), "{picture}");
    done(flowcell(&project).args(arguments).args(["--out", "stacks.txt"]));
    let stacks = fs::read_to_string(project.join("stacks.txt")).unwrap();
    let deepest = stacks.lines().find(|line| line.contains("crunch")).unwrap_or_else(|| panic!("{stacks}"));
    assert!(deepest.contains(';') && deepest.rsplit(' ').next().unwrap().parse::<u64>().is_ok(), "{deepest}");
}

#[test]
fn a_node_that_computes_too_shortly_or_fails_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let built = guests::build("hostile", "");
    let packs = built.to_str().unwrap();
    let profile = |node: &str| {
        let arguments = ["node", "profile", node, "--packs", packs, "--seconds", "1"];
        flowcell(folder.path()).args(arguments).output().unwrap()
    };
    let failed = profile("hostile.trap");
    assert_eq!(failed.status.code(), Some(1));
    assert!(kit::stderr(&failed).contains("fails with this input"), "{}", kit::stderr(&failed));
    let short = profile("hostile.echo");
    assert!(short.status.success() && kit::stdout(&short).contains("samples of"), "{}", kit::stderr(&short));
}
