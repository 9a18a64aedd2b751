//! The pack of `data.query`: queries in the language jq. It is a component of its own, so that flows without queries do
//! not load the interpreter.
//!
//! | module | purpose |
//! |---|---|
//! | program | parses and compiles a query; errors with line and column |
//! | absent | functions of jq that queries do not have, with the reason |
//! | functions | the functions that queries have |
//! | run | runs a query within its limits |
//! | value | conversion between JSON and the values of the interpreter |

mod absent;
mod functions;
mod program;
mod run;
#[cfg(test)]
mod tests;
mod value;

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "data.query" => run::run,
}
