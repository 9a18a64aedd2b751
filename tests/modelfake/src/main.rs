//! Runs the server until it is stopped, and prints its address: `modelfake [SCENARIO.json [ADDRESS]]`. Without a
//! scenario it answers each request with `hello`.

use std::{env, error::Error, fs, future};

use flowcell_modelfake::Fake;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let scenario = match arguments.next() {
        Some(file) => serde_json::from_str(&fs::read_to_string(file)?)?,
        None => json!({ "turns": [{ "reply": { "text": "hello" }, "repeat": true }] }),
    };
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".into());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let fake = Fake::start_on(&address, scenario).await?;
        println!("{}", fake.url(""));
        future::pending().await
    })
}
