//! A server with a file of issuers, and the real `oidc-provider` beside it.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::visitor::Visitor;
use crate::{
    client::{Answer, ask},
    kit::{Running, has_program, output_of, root, skip_without, stderr, stdout},
    server::process::{serve, stop},
};

/// The secret of the client, with characters that a header escapes.
pub(in crate::server) const SECRET: &str = "a secret/with+odd:chars%of-tests";

/// A server without issuers, until [`Site::write`].
pub(super) struct Site {
    pub(super) folder: TempDir,
    serving: Option<Running>,
    pub(super) address: SocketAddr,
}

impl Site {
    /// Starts a server with these tenants.
    pub(super) fn start(tenants: &[&str]) -> Site {
        let folder = tempfile::tempdir().unwrap();
        tenants.iter().for_each(|tenant| drop(run(folder.path(), &["tenant", "create", tenant])));
        fs::write(folder.path().join("secret"), SECRET).unwrap();
        fs::write(folder.path().join("sign-in.yaml"), "issuers: []\n").unwrap();
        let (serving, address) = serve(folder.path(), &["--sign-in", "sign-in.yaml"]);
        Site { folder, serving: Some(serving), address }
    }

    /// Writes the file of issuers, and lets the server read it.
    pub(super) fn write(&self, issuers: &str) {
        let count = self.try_write(issuers).unwrap();
        assert_eq!(count, issuers.matches("- name:").count());
    }

    /// Writes the file of issuers, and returns their number or the errors of the reload.
    pub(super) fn try_write(&self, issuers: &str) -> Result<usize, String> {
        let named = format!("http://flowcell.localhost:{}", self.address.port());
        let text = format!("origins: ['{}', '{named}']\nissuers:\n{issuers}", self.origin());
        fs::write(self.folder.path().join("sign-in.yaml"), text).unwrap();
        let output = output_of(self.folder.path(), &["reload", "--json"]);
        let reloaded: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
        let read = reloaded["signIn"]["issuers"].as_u64();
        read.map(|count| count as usize).ok_or_else(|| reloaded["errors"].to_string())
    }

    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin())
    }

    /// Runs a command on the store of the server.
    pub(super) fn run(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&run(self.folder.path(), arguments)).unwrap()
    }

    /// Returns the answer about the caller that a browser is.
    pub(super) fn me(&self, visitor: &Visitor) -> Answer {
        let cookies = visitor.cookies_for(self.address.port(), "/v1/me", false);
        ask(self.address, "GET", "/v1/me", &[("Cookie", &cookies)], "")
    }

    /// Stops the server.
    pub(super) fn end(mut self) {
        assert_eq!(stop(self.serving.take().unwrap()), Some(0));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut serving) = self.serving.take() {
            _ = serving.kill();
            _ = serving.wait();
        }
    }
}

/// Runs a command, and returns its output.
#[track_caller]
fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output).trim().to_owned()
}

/// The real issuer, until the value is dropped.
pub(in crate::server) struct Provider {
    node: Child,
    pub(in crate::server) address: SocketAddr,
}

impl Provider {
    /// Starts the issuer. Returns `None` if it is not installed.
    pub(in crate::server) fn start() -> Option<Provider> {
        let module = module().filter(|_| has_program("node"))?;
        let script = root().join("host/cli/tests/server/sign_in/provider.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(module).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut node = command.spawn().unwrap();
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines().map(Result::unwrap);
        let port = lines.find_map(|line| Some(line.strip_prefix("listening on ")?.parse().unwrap())).unwrap();
        // Read the later output, so that the issuer does not block.
        std::thread::spawn(move || lines.count());
        Some(Provider { node, address: SocketAddr::from(([127, 0, 0, 1], port)) })
    }

    pub(in crate::server) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes the issuer anew, with a client for each `(id, algorithm)`, these keys, and the people of the tests.
    pub(super) fn set_up(&self, site: &Site, clients: &[(&str, &str)], keys: &[(&str, &str)]) {
        let client = |(id, alg): &(&str, &str)| {
            let callbacks = ["127.0.0.1", "flowcell.localhost"]
                .map(|name| format!("http://{name}:{}/console/sign-in/callback", site.address.port()));
            json!({ "client_id": id, "client_secret": SECRET, "redirect_uris": callbacks,
                "id_token_signed_response_alg": alg })
        };
        let key = |(alg, kid): &(&str, &str)| json!({ "alg": alg, "kid": kid });
        let people = json!({
            "ada": { "groups": ["users", "admins"] },
            "bob": { "groups": ["users"], "email": "bob@acme.test", "email_verified": false },
            "eve": { "groups": ["others"] },
        });
        let clients: Vec<_> = clients.iter().map(client).collect();
        let keys: Vec<_> = keys.iter().map(key).collect();
        self.tell("/test/setup", &json!({ "clients": clients, "keys": keys, "people": people }));
    }

    /// Says who sits at the keyboard.
    pub(in crate::server) fn seat(&self, person: &str) {
        self.tell("/test/person", &json!({ "name": person }));
    }

    pub(in crate::server) fn tell(&self, path: &str, body: &Value) {
        let answer = ask(self.address, "POST", path, &[], &body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Returns an issuer of the file, with these rules.
    pub(super) fn issuer(&self, name: &str, client: &str, rules: &str) -> String {
        format!(
            "- name: {name}\n  title: The {name}\n  issuer: {}\n  clientId: {client}\n  clientSecretFrom: file:secret\n  \
             allowPrivate: true\n  rules: [{rules}]\n",
            self.origin()
        )
    }

    pub(super) fn stop(&mut self) {
        _ = self.node.kill();
        _ = self.node.wait();
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the module of the issuer, which lies beside the programs of its package manager.
fn module() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&paths).map(|folder| folder.join("../oidc-provider/lib/index.js"));
    let found = places.filter_map(|place| place.canonicalize().ok()).next();
    if found.is_none() {
        skip_without("oidc-provider");
    }
    found
}
