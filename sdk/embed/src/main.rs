//! Runs a flow in this process and prints its outputs as JSON: `cargo run -- FLOW`.

use std::{env, error::Error};

use flowcell_platform::{Host, RunOptions, RunStatus};

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: embed FLOW")?;
    let host = Host::builder().build()?;
    let flow = host.load_flow(path)?;
    let runner = host.runner(&flow, RunOptions::default())?;
    let result = tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(runner.run());
    println!("{}", result.outputs.to_text());
    match result.status {
        RunStatus::Succeeded => Ok(()),
        status => Err(format!("the run ended as {status:?}").into()),
    }
}
