//! Helpers of the tests: [`Kit`] has the tools of a configuration, and the store for their files.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use flowcell_contract::{BlobRef, Blobs, Failure, Json, Progress, Tenant};
use flowcell_mcpfake::{Plan, http::Fake};
use flowcell_services::{
    client::Client,
    egress::{Egress, EgressPolicy},
    mcp::{McpTools, Servers},
};
use serde_json::{Value, json};

/// A time limit that no step reaches, unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A key that cannot be confused with other text.
pub(crate) const CANARY: &str = "sk-canary/5+x=";

/// Blobs in memory, numbered.
#[derive(Default)]
pub(crate) struct MemoryBlobs(Mutex<Vec<Arc<[u8]>>>);

impl Blobs for MemoryBlobs {
    fn put(&self, _: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let mut blobs = self.0.lock().unwrap();
        blobs.push(bytes.clone());
        let file_id = (blobs.len() - 1).to_string();
        BlobRef { file_id: file_id.into(), size: bytes.len() as u64, mime: mime.into() }
    }

    fn get(&self, _: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        Ok(self.0.lock().unwrap().get(blob.file_id.parse::<usize>().unwrap()).cloned())
    }
}

pub(crate) struct Kit {
    pub(crate) tools: McpTools,
    pub(crate) blobs: Arc<MemoryBlobs>,
    pub(crate) told: Arc<Mutex<Vec<Value>>>,
}

impl Kit {
    /// Creates a kit from a configuration of servers.
    pub(crate) fn of(servers: &Value) -> Kit {
        let servers = Servers::parse(&servers.to_string(), Path::new("")).unwrap();
        let client = Client::new(Egress::new(EgressPolicy::default()).unwrap());
        let blobs = Arc::new(MemoryBlobs::default());
        let tools = McpTools::new(&client, blobs.clone(), &servers).with_environment(Arc::new(|name| match name {
            "CANARY" => Some(CANARY.to_owned()),
            "NOT_SET" => None,
            name => std::env::var(name).ok(),
        }));
        Kit { tools, blobs, told: Arc::default() }
    }

    pub(crate) async fn call(&self, server: &str, tool: &str, input: Value) -> Result<Value, Failure> {
        self.call_within(server, tool, input, LONG).await
    }

    pub(crate) async fn call_within(
        &self,
        server: &str,
        tool: &str,
        input: Value,
        within: Duration,
    ) -> Result<Value, Failure> {
        let told = self.told.clone();
        let progress = Progress::new(move |kind, members| {
            assert_eq!(kind, "agent:tool:progress");
            told.lock().unwrap().push(members.to_serde());
        });
        let output = self.tools.call(&Tenant::local(), server, tool, Json::from(input), within, progress).await?;
        Ok(output.to_serde())
    }

    pub(crate) async fn names(&self, server: &str) -> Vec<String> {
        self.tools.list(server).await.unwrap().iter().map(|tool| tool.name.to_string()).collect()
    }

    /// Returns the bytes of a file reference, and their media type.
    pub(crate) fn file(&self, reference: &Value) -> (Arc<[u8]>, String) {
        let blob = flowcell_contract::Value::from(Json::from(reference.clone())).blob().unwrap();
        (self.blobs.get(&Tenant::local(), &blob).unwrap().unwrap(), blob.mime.to_string())
    }
}

/// Finds a program in the `PATH`. If the program is missing, prints that the test is skipped, or panics if
/// `FLOWCELL_TEST_NEEDS` lists the program.
pub(crate) fn installed(program: &str, test: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    if found.is_none() {
        let needed = std::env::var("FLOWCELL_TEST_NEEDS").unwrap_or_default();
        assert!(!needed.split(',').any(|needed| needed == program), "{test} needs `{program}`");
        eprintln!("skipped: {test}: `{program}` is missing");
    }
    found
}

/// Returns the configuration of a server that is a Node.js program. Such a program needs the variable `PATH`.
pub(crate) fn program(program: &Path, args: &[&str]) -> Value {
    json!({ "command": program, "args": args, "env": ["PATH"] })
}

/// Returns the configuration of the fake server as a program, with a key in its environment.
pub(crate) fn fake(plan: &Plan) -> Value {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap().join("examples/mcp_fake");
    assert!(built.is_file(), "build it first: cargo build -p flowcell-services --example mcp_fake");
    let plan = serde_json::to_string(plan).unwrap();
    json!({ "command": built, "args": [plan], "env": { "TOKEN": { "keyEnv": "CANARY" } } })
}

/// Returns the configuration of the fake server at an address, with a key in a header.
pub(crate) fn at(fake: &Fake) -> Value {
    let address = fake.address().to_string();
    json!({ "url": format!("http://{address}/mcp"), "allowPrivate": [address],
        "headers": { "Authorization": { "keyEnv": "CANARY" } } })
}

/// Returns three kits for each version of the protocol, with a description: the server is a program, a server
/// over HTTP that answers with streams of events, and one that answers with JSON. The server of a kit is a fake
/// with the name `fake`. The third value is the fake itself, if it is reached over HTTP.
pub(crate) async fn everywhere(plan: Plan) -> Vec<(String, Kit, Option<Fake>)> {
    let mut kits = Vec::new();
    for modern in [false, true] {
        let plan = Plan { modern, ..plan.clone() };
        kits.push((format!("program, modern: {modern}"), Kit::of(&json!({ "fake": fake(&plan) })), None));
        for json in [false, true] {
            let fake = Fake::start(Plan { json, ..plan.clone() }).await.unwrap();
            let kit = Kit::of(&json!({ "fake": at(&fake) }));
            kits.push((format!("address, modern: {modern}, json: {json}"), kit, Some(fake)));
        }
    }
    kits
}
