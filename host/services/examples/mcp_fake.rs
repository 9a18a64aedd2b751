//! A fake MCP server over standard input and output, for the tests. Its argument is a plan as JSON.

use std::{env, error::Error, process};

fn main() -> Result<(), Box<dyn Error>> {
    let plan = env::args().nth(1).unwrap_or_else(|| "{}".into());
    process::exit(flowcell_mcpfake::stdio::serve(serde_json::from_str(&plan)?)?)
}
