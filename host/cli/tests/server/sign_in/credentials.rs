//! Credentials of OAuth 2 that a person connects, with the real `oidc-provider` as authorization server and as API.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Output, Stdio},
};

use rusqlite::Connection;
use serde_json::{Value, json};

use super::{
    site::{Provider, SECRET},
    visitor::{Visitor, query},
};
use crate::kit::{Running, flowcell, output_of, stderr, stdout};

/// Starts the issuer with a client of this machine, and sets a credential for it. `None` without the issuer.
fn start() -> Option<(Provider, tempfile::TempDir)> {
    let provider = Provider::start()?;
    let client = json!({
        "client_id": "flow:cell", "client_secret": SECRET, "application_type": "native",
        "redirect_uris": ["http://127.0.0.1/callback"], "grant_types": ["authorization_code", "refresh_token"],
    });
    let key = json!({ "alg": "RS256", "kid": "first" });
    provider.tell("/test/setup", &json!({ "clients": [client], "keys": [key], "people": { "ada": {} } }));
    provider.seat("ada");
    let folder = tempfile::tempdir().unwrap();
    let origin = provider.origin();
    let settings = [
        "grant=authorization_code".to_owned(),
        format!("tokenUrl={origin}/token"),
        format!("authorizeUrl={origin}/auth"),
        "clientId=flow:cell".to_owned(),
        "scope=openid offline_access".to_owned(),
        "params.prompt=consent".to_owned(),
    ];
    let mut command = flowcell(folder.path());
    command.args(["credential", "set", "drive", "--kind", "oauth2", "--for", &origin, "--from-env", "CLIENT_SECRET"]);
    settings.iter().for_each(|setting| _ = command.args(["--set", setting]));
    let set = command.env("CLIENT_SECRET", SECRET).output().unwrap();
    assert!(set.status.success(), "{}", stderr(&set));
    let flow = format!(
        "flow: {{ name: one, outputs: {{ who: '{{{{ me.body.sub }}}}' }} }}\nnodes:\n  - {{ id: me, type: http.request, \
         input: {{ url: '{origin}/me' }}, grants: {{ http: ['{origin}'], credentials: [drive] }} }}\n"
    );
    fs::write(folder.path().join("one.yaml"), flow).unwrap();
    Some((provider, folder))
}

/// Begins to connect the credential. Returns the process and the address that it shows.
fn connect(folder: &Path, provider: &Provider) -> (Running, String) {
    let arguments = ["credential", "connect", "drive", "--allow-private", &provider.address.to_string()];
    let mut command = flowcell(folder);
    let mut child =
        Running::from(command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let at = lines.find(|line| line.starts_with("http://")).unwrap();
    std::thread::spawn(move || lines.count());
    (child, at)
}

fn run(folder: &Path, provider: &Provider) -> Output {
    output_of(folder, &["run", "one.yaml", "--json", "--quiet", "--allow-private", &provider.address.to_string()])
}

#[test]
fn a_person_connects_a_credential_and_the_host_renews_its_token() {
    let Some((provider, folder)) = start() else { return };
    let path = folder.path();
    let before = run(path, &provider);
    assert_eq!(before.status.code(), Some(1));
    assert!(stdout(&before).contains("flowcell credential connect drive"), "{}", stdout(&before));

    let (child, at) = connect(path, &provider);
    let mut visitor = Visitor::default();
    let callback = visitor.follow(&at, &query(&at, "redirect_uri"));
    assert!(callback.contains("/callback?code="), "{callback}");
    // Requests of others do not end the wait.
    let (address, _) = callback.split_once('?').unwrap();
    assert_eq!(visitor.open(&format!("{address}?code=mine&state=other")).status, 403);
    let page = visitor.open(&callback);
    assert!(page.status == 200 && page.body.contains("You can close this page"), "{page:?}");
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");

    let after = run(path, &provider);
    assert!(after.status.success(), "{}", stderr(&after));
    assert!(stdout(&after).contains(r#""who":"ada""#) || stdout(&after).contains(r#""who": "ada""#));
    let shown: Value = serde_json::from_str(&stdout(&output_of(path, &["credential", "show", "drive"]))).unwrap();
    assert_eq!(shown["token"]["exists"], true, "{shown}");
    let audit = stdout(&output_of(path, &["audit", "list", "local"]));
    assert!(audit.contains("credential.connect"), "{audit}");

    // At the end of the token the host renews it with the refresh token, which the issuer gives once.
    let store = Connection::open(path.join(".flowcell/flowcell.db")).unwrap();
    let end = |store: &Connection| {
        let sql = "UPDATE registry SET value = json_set(value, '$.renewAt', 1) WHERE kind = 'credential.token'";
        assert_eq!(store.execute(sql, []).unwrap(), 1);
    };
    for _ in 0..2 {
        end(&store);
        let renewed = run(path, &provider);
        assert!(renewed.status.success(), "{}", stderr(&renewed));
    }
    drop(store);
    let secret = fs::read(path.join(".flowcell/flowcell.db")).unwrap();
    assert!(!secret.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()));
}

#[test]
fn a_person_who_does_not_consent_connects_nothing() {
    let Some((provider, folder)) = start() else { return };
    provider.seat("mallory");
    let (child, at) = connect(folder.path(), &provider);
    let mut visitor = Visitor::default();
    let callback = visitor.follow(&at, &query(&at, "redirect_uri"));
    assert!(callback.contains("error=access_denied"), "{callback}");
    assert!(visitor.open(&callback).body.contains("was not allowed"));
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    let shown: Value =
        serde_json::from_str(&stdout(&output_of(folder.path(), &["credential", "show", "drive"]))).unwrap();
    assert_eq!(shown["token"]["exists"], false, "{shown}");
}
