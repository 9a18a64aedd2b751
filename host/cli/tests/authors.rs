//! Tests the steps of a node author, as the page `node` of the manual describes them: create a project, build it, test
//! it and run it. Packs in languages other than Rust need their toolchains. If one is missing, its tests print a note
//! and are skipped; with `FLOWCELL_TEST_TOOLCHAINS=1` they fail.

mod about;
mod bench;
mod conformance;
mod credentials;
mod dev;
mod examples;
mod fuzz;
mod javascript;
mod killed;
mod language;
mod machine;
mod profile;
mod published;
mod python;
mod recipe;
mod roles;
mod scaffold;
mod streamed;
mod streams;
mod vendors;
