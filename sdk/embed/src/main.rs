//! Runs a flow in this process and prints its outputs as JSON. Usage: `cargo run -- FLOW [URL]`. `FLOW` is the path of
//! the flow's file. `URL` names a shared store; without it the run is kept in memory.

use std::{env, error::Error};

use flowcell_platform::{Host, RunOptions, RunStatus};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or("usage: embed FLOW [URL]")?;
    let builder = Host::builder();
    let host = match arguments.next() {
        Some(url) => builder.server(url).build().map_err(|error| error.to_string())?,
        None => builder.build()?,
    };
    let flow = host.load_flow(path)?;
    let runner = host.runner(&flow, RunOptions::default())?;
    let result = tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(runner.run());
    println!("{}", result.outputs.to_text());
    match result.status {
        RunStatus::Succeeded => Ok(()),
        status => Err(format!("the run ended as {status:?}").into()),
    }
}
