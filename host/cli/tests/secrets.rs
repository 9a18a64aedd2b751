//! Tests the secrets of tenants in the store, with the library and the real program. Ids such as T9 are cases in
//! `tests/README.md`.

#![cfg(unix)]

mod locked;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use flowcell::{
    Host, LoadError, RunOptions, Source,
    contract::{Tenant, code},
    tenants::{Tenants, audit::Outcome},
    vault::{KEY_FILE, KeySource, MAX_SECRETS, MAX_VALUE, MIN_VALUE, VaultError},
};
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::kit::{self, flowcell, output_of, stderr, stdout};

const VALUE: &str = "hunter2-hunter2";

fn local() -> Tenant {
    Tenant::local()
}

fn memory() -> Host {
    Host::builder().cache_dir(kit::CACHE).instances(4).build().unwrap()
}

/// Opens a host on the store of a folder, with these keys.
fn host(folder: &Path, keys: &[&Path]) -> Host {
    let keys = keys.iter().map(|path| KeySource::File(path.to_path_buf()));
    Host::builder()
        .cache_dir(kit::CACHE)
        .instances(4)
        .state_dir(folder.join("state"))
        .secret_keys(keys)
        .build()
        .unwrap()
}

/// Writes a file with a key.
fn key_file(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(name);
    let digits: String = name.bytes().cycle().take(32).map(|byte| format!("{byte:02x}")).collect();
    fs::write(&file, digits).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

fn set(host: &Host, tenant: &str, name: &str, value: &str) {
    host.vault().set(&Tenant::from(tenant), "test", name, value, &[], None).unwrap();
}

fn open(host: &Host, tenant: &str, name: &str) -> Result<Option<String>, VaultError> {
    Ok(host.vault().open(&Tenant::from(tenant), name)?.map(|value| value.to_string()))
}

fn open_secret(host: &Host, tenant: &str, name: &str) -> Option<String> {
    open(host, tenant, name).unwrap()
}

/// Returns the refused actions in a tenant's audit log.
fn refusals(host: &Host, tenant: &str) -> Vec<String> {
    let all = Tenants::of(host).audit(tenant, 0, 500).unwrap().into_iter();
    let refused = all.filter(|entry| entry.outcome == Outcome::Refused);
    refused.map(|entry| format!("{} {} {}", entry.actor, entry.action, entry.subject)).collect()
}

#[test]
fn t3_each_tenant_has_its_own_secret_of_a_name() {
    let host = memory();
    for (tenant, value) in [("a", "the value of a"), ("b", "the value of b")] {
        set(&host, tenant, "api-token", value);
    }
    assert_eq!(open_secret(&host, "a", "api-token").unwrap(), "the value of a");
    assert_eq!(open_secret(&host, "b", "api-token").unwrap(), "the value of b");
    assert_eq!(open_secret(&host, "local", "api-token"), None);
    host.vault().remove(&Tenant::from("a"), "test", "api-token").unwrap();
    assert_eq!((open_secret(&host, "a", "api-token"), open_secret(&host, "b", "api-token").is_some()), (None, true));
}

#[test]
fn a_secret_set_again_has_the_next_version_and_names_and_values_have_limits() {
    let (host, tenant) = (memory(), local());
    let set = |name: &str, value: &str, origins: &[&str]| {
        let origins: Vec<_> = origins.iter().map(|origin| (*origin).to_owned()).collect();
        host.vault().set(&tenant, "test", name, value, &origins, None)
    };
    let first = set("a", VALUE, &["https://api.example.com"]).unwrap();
    let second = set("a", "another value", &[]).unwrap();
    assert_eq!((first.version, second.version, second.created), (1, 2, first.created));
    assert_eq!((host.vault().list(&tenant).unwrap(), second.origins.len()), (vec![second], 0));
    assert_eq!(open_secret(&host, "local", "a").unwrap(), "another value");
    for name in ["", "a b", "../a", "a.b", "ä", &"a".repeat(65)] {
        assert_eq!(set(name, VALUE, &[]).unwrap_err().code(), "invalid_name", "{name}");
        assert_eq!(open_secret(&host, "local", name), None);
    }
    set(&"a".repeat(64), &"x".repeat(MAX_VALUE), &[]).unwrap();
    set("short", &"x".repeat(MIN_VALUE), &[]).unwrap();
    set("lines", "-----BEGIN KEY-----\nabc\n-----END KEY-----", &[]).unwrap();
    for value in [&*"x".repeat(MAX_VALUE + 1), &"x".repeat(MIN_VALUE - 1), "", "hunter2-hunter2\n"] {
        let refused = set("b", value, &[]).unwrap_err();
        assert_eq!(refused.code(), "invalid_secret");
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
    assert_eq!(set("b", VALUE, &["api.example.com"]).unwrap_err().code(), "invalid_secret");
    assert_eq!(host.vault().remove(&tenant, "test", "b").unwrap_err().code(), "secret_not_found");
    for n in host.vault().list(&tenant).unwrap().len()..MAX_SECRETS {
        set(&format!("n{n}"), VALUE, &[]).unwrap();
    }
    assert!(matches!(set("more", VALUE, &[]), Err(VaultError::TooMany)));
    assert!(set("a", VALUE, &[]).is_ok(), "what is there may change");
}

#[test]
fn t9_another_key_opens_nothing_and_that_is_audited() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (key_file(folder.path(), "one"), key_file(folder.path(), "two"));
    set(&host(folder.path(), &[&one]), "a", "api-token", VALUE);
    let wrong = host(folder.path(), &[&two]);
    let refused = open(&wrong, "a", "api-token").unwrap_err();
    assert_eq!(refused.code(), "secret_key_wrong");
    assert!(refused.to_string().contains("pass the right key with `--secret-key`"), "{refused}");
    // A secret is never encrypted under another key than the tenant's other secrets.
    assert_eq!(
        wrong.vault().set(&Tenant::from("a"), "test", "b", VALUE, &[], None).unwrap_err().code(),
        "secret_key_wrong"
    );
    // Repeated failures are recorded once.
    open(&wrong, "a", "api-token").unwrap_err();
    assert_eq!(refusals(&wrong, "a"), ["host secret.read api-token"]);
    drop(wrong);
    assert_eq!(open_secret(&host(folder.path(), &[&two, &one]), "a", "api-token").unwrap(), VALUE);
}

#[test]
fn after_a_reset_a_tenant_that_has_lost_its_key_can_have_secrets_again() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (key_file(folder.path(), "one"), key_file(folder.path(), "two"));
    let first = host(folder.path(), &[&one]);
    for (tenant, name) in [("a", "api-token"), ("a", "other"), ("b", "kept")] {
        set(&first, tenant, name, VALUE);
    }
    drop(first);
    let (a, b) = (Tenant::from("a"), Tenant::from("b"));
    // With the key, nothing is lost and nothing is removed.
    let right = host(folder.path(), &[&two, &one]);
    assert!(right.vault().lost(&a).unwrap().is_empty() && right.vault().reset(&a, "test").unwrap().is_empty());
    assert_eq!(open_secret(&right, "a", "other").unwrap(), VALUE);
    drop(right);
    let wrong = host(folder.path(), &[&two]);
    let lost = wrong.vault().lost(&a).unwrap();
    assert_eq!(
        (&lost.secrets[..], lost.data_keys.len(), lost.removed),
        (&["api-token".into(), "other".into()][..], 1, false)
    );
    assert_eq!(wrong.vault().list(&a).unwrap().len(), 2, "a list removes nothing");
    assert_eq!(wrong.vault().reset(&a, "test").unwrap().secrets, lost.secrets);
    set(&wrong, "a", "new", VALUE);
    assert_eq!(
        (open_secret(&wrong, "a", "new").unwrap(), wrong.vault().list(&a).unwrap().len()),
        (VALUE.to_owned(), 1)
    );
    // The other tenant keeps its rows for the day on which the key is found.
    assert_eq!(
        (wrong.vault().lost(&b).unwrap().secrets, wrong.vault().list(&b).unwrap().len()),
        (vec!["kept".into()], 1)
    );
    drop(wrong);
    let both = host(folder.path(), &[&two, &one]);
    assert_eq!(
        (open_secret(&both, "a", "new").unwrap(), open_secret(&both, "b", "kept").unwrap()),
        (VALUE.into(), VALUE.into())
    );
}

#[test]
fn t9_a_row_that_was_changed_or_moved_does_not_open_and_that_is_audited() {
    let attacks: [(&str, &str, &str); 7] = [
        (
            "flipped",
            "UPDATE registry SET value = replace(value, '\"text\":\"', '\"text\":\"AAAA') WHERE kind = 'secret' AND tenant = 'a' AND key = 'x'",
            "secret_damaged",
        ),
        (
            "renamed",
            "UPDATE registry SET value = (SELECT value FROM registry WHERE tenant = 'a' AND kind = 'secret' AND key = 'y') WHERE tenant = 'a' AND kind = 'secret' AND key = 'x'",
            "secret_damaged",
        ),
        (
            "of another tenant",
            "UPDATE registry SET value = (SELECT value FROM registry WHERE tenant = 'b' AND kind = 'secret' AND key = 'x') WHERE tenant = 'a' AND kind = 'secret' AND key = 'x'",
            "secret_damaged",
        ),
        (
            "for others",
            "UPDATE registry SET value = replace(value, '\"origins\":[]', '\"origins\":[\"https://evil.example\"]') WHERE kind = 'secret' AND tenant = 'a' AND key = 'x'",
            "secret_damaged",
        ),
        (
            "of another version",
            "UPDATE registry SET value = replace(value, '\"version\":1', '\"version\":2') WHERE kind = 'secret' AND tenant = 'a' AND key = 'x'",
            "secret_damaged",
        ),
        (
            "with another's key",
            "UPDATE registry SET value = (SELECT value FROM registry WHERE tenant = 'b' AND kind = 'secret.key') WHERE tenant = 'a' AND kind = 'secret.key'",
            "secret_damaged",
        ),
        ("without its key", "DELETE FROM registry WHERE tenant = 'a' AND kind = 'secret.key'", "secret_damaged"),
    ];
    for (what, sql, code) in attacks {
        let folder = tempfile::tempdir().unwrap();
        let key = key_file(folder.path(), "one");
        let before = host(folder.path(), &[&key]);
        for (tenant, name) in [("a", "x"), ("a", "y"), ("b", "x")] {
            set(&before, tenant, name, &format!("the value of {tenant}/{name}"));
        }
        drop(before);
        let connection = Connection::open(folder.path().join("state/flowcell.db")).unwrap();
        let old: String = of_x(&connection);
        let changed = connection.execute(sql, []).unwrap();
        assert!(
            changed == 1 && (of_x(&connection) != old || sql.contains("secret.key")),
            "{what}: nothing was changed"
        );
        drop(connection);
        let after = host(folder.path(), &[&key]);
        assert_eq!(open(&after, "a", "x").unwrap_err().code(), code, "{what}");
        assert_eq!(refusals(&after, "a"), ["host secret.read x"], "{what}");
        assert_eq!(open_secret(&after, "b", "x").unwrap(), "the value of b/x", "{what}");
        set(&after, "a", "x", "what is set anew");
        assert_eq!(open_secret(&after, "a", "x").unwrap(), "what is set anew", "{what}");
    }
}

fn of_x(connection: &Connection) -> String {
    let sql = "SELECT value FROM registry WHERE tenant = ? AND kind = ? AND key = ?";
    connection.query_row(sql, params!["a", "secret", "x"], |row| row.get(0)).unwrap()
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn t8_only_their_owner_can_read_keys_and_stores_and_readable_keys_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    set(&host(folder.path(), &[]), "local", "api-token", VALUE);
    let (made, database) = (folder.path().join("state").join(KEY_FILE), folder.path().join("state/flowcell.db"));
    assert_eq!((mode(&made), mode(&database)), (0o600, 0o600));
    assert_eq!(open_secret(&host(folder.path(), &[]), "local", "api-token").unwrap(), VALUE);
    for open in [0o640, 0o604, 0o660, 0o666] {
        fs::set_permissions(&made, fs::Permissions::from_mode(open)).unwrap();
        let refused = self::open(&host(folder.path(), &[]), "local", "api-token").unwrap_err().to_string();
        assert!(refused.contains("other users may read it") && refused.contains("chmod 600"), "{refused}");
    }
    fs::set_permissions(&made, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&database, fs::Permissions::from_mode(0o644)).unwrap();
    let listed = output_of(folder.path(), &["secret", "list", "--state", "state"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    let warning = "warning: other users may read the store in state (mode 644); run `chmod -R go= state`";
    assert!(stderr(&listed).contains(warning), "{}", stderr(&listed));
}

#[test]
fn a_rotation_interrupted_at_any_point_continues_with_both_keys() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (key_file(folder.path(), "one"), key_file(folder.path(), "two"));
    let new = fs::read_to_string(&two).unwrap();
    let tenants = ["local", "a", "b"].map(Tenant::from);
    let first = host(folder.path(), &[&one]);
    for tenant in &tenants {
        ["x", "y"].iter().for_each(|name| set(&first, tenant.as_str(), name, VALUE));
    }
    assert_eq!(first.vault().rotate(&tenants, "test", Some("short")).unwrap_err().code(), "secret_key_missing");
    // The rotation ends after two of three tenants. The process that began it can read all.
    assert_eq!(first.vault().rotate(&tenants[..2], "test", Some(&new)).unwrap().secrets, 4);
    let all = |host: &Host| {
        tenants.iter().filter(|tenant| open(host, tenant.as_str(), "y").is_ok_and(|y| y.is_some())).count()
    };
    assert_eq!(all(&first), 3);
    drop(first);
    assert_eq!(all(&host(folder.path(), &[&one])), 1);
    assert_eq!(all(&host(folder.path(), &[&two])), 2);
    // Without the previous key, the rotation does not begin.
    let refused = host(folder.path(), &[&two]).vault().rotate(&tenants, "test", Some(&new)).unwrap_err();
    assert_eq!(refused.code(), "secret_key_wrong");
    assert!(refused.to_string().starts_with("the tenant `b`: "), "{refused}");
    let both = host(folder.path(), &[&one, &two]);
    assert_eq!(all(&both), 3);
    let rotated = both.vault().rotate(&tenants, "test", Some(&new)).unwrap();
    assert_eq!((rotated.data_keys, rotated.secrets), (1, 2));
    set(&both, "c", "x", VALUE);
    drop(both);
    let done = host(folder.path(), &[&two]);
    assert_eq!(all(&done), 3);
    assert_eq!(open_secret(&done, "c", "x").unwrap(), VALUE, "what is new is under the new key");
    assert_eq!(done.vault().list(&tenants[1]).unwrap()[0].version, 1, "the secret itself did not change");
    drop(done);
    assert_eq!(all(&host(folder.path(), &[&one])), 0);
}

#[test]
fn data_keys_that_nothing_is_encrypted_with_are_removed_by_the_rotation_after_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path(), &[]);
    set(&host, "local", "x", VALUE);
    let before = fs::read_to_string(folder.path().join("state").join(KEY_FILE)).unwrap();
    for _ in 0..4 {
        assert_eq!(host.vault().rotate(&[local()], "test", None).unwrap().data_keys, 1);
    }
    assert_ne!(fs::read_to_string(folder.path().join("state").join(KEY_FILE)).unwrap(), before);
    assert!(!folder.path().join("state/secret.key.next").exists());
    assert_eq!(open_secret(&host, "local", "x").unwrap(), VALUE);
    drop(host);
    let connection = Connection::open(folder.path().join("state/flowcell.db")).unwrap();
    let sql = "SELECT group_concat(key) FROM registry WHERE kind = 'secret.key'";
    let kept: String = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "00000004,00000005");
    assert_eq!(open_secret(&self::host(folder.path(), &[]), "local", "x").unwrap(), VALUE);
}

/// Returns a flow of one node with a grant of a secret.
fn asks(name: &str) -> Source {
    let text = format!(
        "flow: {{ name: asks }}\nnodes:\n  - {{ id: a, type: http.request, input: {{ url: 'http://127.0.0.1:9' }}, grants: {{ \
         http: ['http://127.0.0.1:9'], secrets: [{{ name: {name} }}] }} }}\n"
    );
    Source { name: "asks.yaml".into(), text }
}

fn findings(host: &Host, source: Source) -> Vec<String> {
    match host.load_source(source) {
        Ok(_) => Vec::new(),
        Err(LoadError::Invalid(found)) => {
            found.into_iter().map(|found| format!("{}: {}", found.code, found.message)).collect()
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn t4_the_secret_of_another_tenant_is_unknown_to_checks_and_runs() {
    let host = Host::builder()
        .cache_dir(kit::CACHE)
        .instances(4)
        .allow_private(["127.0.0.1:9".parse().unwrap()])
        .build()
        .unwrap();
    let (a, b) = (host.for_tenant(Tenant::from("a")), host.for_tenant(Tenant::from("b")));
    let origin = ["http://127.0.0.1:9".to_owned()];
    host.vault().set(b.tenant(), "test", "theirs", VALUE, &origin, None).unwrap();
    assert_eq!(findings(&b, asks("theirs")), Vec::<String>::new());
    let (foreign, nobodys) = (findings(&a, asks("theirs")), findings(&a, asks("nobodys")));
    assert!(foreign.len() == 1 && foreign[0].contains("the secret `theirs` does not exist"), "{foreign:?}");
    assert_eq!(foreign[0].replace("theirs", "nobodys"), nobodys[0], "whether others have it shows nowhere");
    // The grant is checked again when the request is sent.
    host.vault().set(a.tenant(), "test", "theirs", VALUE, &origin, None).unwrap();
    let flow = a.load_source(asks("theirs")).unwrap();
    host.vault().remove(a.tenant(), "test", "theirs").unwrap();
    let runner = a.runner(&flow, RunOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(runner.run()).error.unwrap();
    assert!(
        error.failure.code == code::DENIED && error.failure.message.contains("the secret `theirs` does not exist"),
        "{error:?}"
    );
    assert_eq!((refusals(&host, "a"), refusals(&host, "b").len()), (vec!["host secret.read theirs".to_owned()], 0));
}

#[test]
fn n23_state_and_cache_of_another_tenant_are_not_found_under_their_names() {
    let host = memory();
    let text = "flow: { name: same }
nodes:
  - { id: state, type: system.state.get, input: { key: k } }
  - { id: cache, type: system.cache.get, input: { key: k } }
  - { id: keep, type: system.state.set, input: { key: k, value: '{{ flow.input.value }}' } }
  - { id: remember, type: system.cache.set, input: { key: k, value: '{{ flow.input.value }}' } }
edges: [{ from: state, to: keep }, { from: cache, to: remember }]
";
    let found = |tenant: &str| {
        let host = host.for_tenant(Tenant::from(tenant));
        let flow = host.load_source(Source { name: "same.yaml".into(), text: text.into() }).unwrap();
        let input = flowcell::Json::parse(&format!("{{\"value\":\"of {tenant}\"}}")).unwrap();
        let runner = host.runner(&flow, RunOptions { input, ..RunOptions::default() }).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outputs: Value = serde_json::from_str(&runtime.block_on(runner.run()).outputs.to_text()).unwrap();
        (outputs["state"]["value"].clone(), outputs["cache"]["value"].clone())
    };
    let of = |tenant: &str| (Value::from(format!("of {tenant}")), Value::from(format!("of {tenant}")));
    assert_eq!(found("a"), (Value::Null, Value::Null));
    assert_eq!(found("b"), (Value::Null, Value::Null));
    assert_eq!((found("a"), found("b")), (of("a"), of("b")));
}

#[test]
fn the_host_itself_reads_a_secret_of_its_tenant_before_one_of_the_operators_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), "from_the_file").unwrap();
    fs::write(folder.path().join("damaged"), "whsec_is_no_base64").unwrap();
    let file = folder.path().join("secrets.yaml");
    let secrets =
        "hook: { keyFile: damaged, for: [] }\nother: { keyFile: key, for: [] }\nbad: { keyFile: damaged, for: [] }\n";
    fs::write(&file, secrets).unwrap();
    let host = Host::builder().cache_dir(kit::CACHE).instances(4).secrets_file(&file).build().unwrap();
    set(&host, "local", "hook", "from_the_store");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let signs = |tenant: &str, name: &str| {
        let key = runtime.block_on(host.for_tenant(Tenant::from(tenant)).signing_key(name));
        key.map(drop).map_err(|failure| failure.code)
    };
    assert_eq!((signs("local", "hook"), signs("local", "other")), (Ok(()), Ok(())));
    assert!(signs("local", "bad").is_err());
    for (tenant, name) in [("local", "nothing"), ("a", "hook"), ("a", "other")] {
        assert_eq!(signs(tenant, name).unwrap_err(), "denied", "{tenant} {name}");
    }
}

/// Sets a secret from standard input. Returns the output of the command.
fn put(folder: &Path, arguments: &[&str], value: &str) -> Output {
    let mut child = flowcell(folder);
    child.args(["secret", "set"]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn ask(folder: &Path, arguments: &[&str]) -> Value {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn secrets_are_set_through_the_owner_of_the_store_and_every_change_is_audited() {
    let folder = tempfile::tempdir().unwrap();
    ask(folder.path(), &["tenant", "create", "a"]);
    let mut owner = flowcell(folder.path()).arg("drive").stderr(Stdio::piped()).spawn().unwrap();
    // The first line says that the process listens.
    BufReader::new(owner.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    let set = put(folder.path(), &["api-token", "--for", "https://a.example", "--tenant", "a"], "hunter2-hunter2\n");
    assert!(set.status.success(), "{}", stderr(&set));
    let rotated = ask(folder.path(), &["secret", "rotate-key"]);
    assert_eq!((&rotated["secrets"], &rotated["dataKeys"]), (&1.into(), &1.into()), "{rotated}");
    let listed = ask(folder.path(), &["secret", "list", "--tenant", "a"]);
    assert_eq!((&listed[0]["name"], &listed[0]["for"][0]), (&"api-token".into(), &"https://a.example".into()));
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(ask(folder.path(), &["secret", "list", "--tenant", "a"]), listed);
    assert_eq!(ask(folder.path(), &["secret", "list"]), Value::Array(Vec::new()));
    let short = put(folder.path(), &["b", "--tenant", "a"], "short");
    assert_eq!((short.status.code(), stderr(&short).contains("short")), (Some(2), false), "{}", stderr(&short));
    let nobody = put(folder.path(), &["b", "--tenant", "nobody"], VALUE);
    assert!(nobody.status.code() == Some(2) && stderr(&nobody).contains("the tenant `nobody` does not exist"));
    let unset = output_of(folder.path(), &["secret", "set", "b", "--from-env", "FLOWCELL_TEST_UNSET"]);
    assert!(
        unset.status.code() == Some(2)
            && stderr(&unset).contains("the environment variable FLOWCELL_TEST_UNSET is not set")
    );
    let mut from = flowcell(folder.path());
    from.args(["secret", "set", "b", "--tenant", "a", "--from-env", "FLOWCELL_TEST_VALUE"]);
    assert!(from.env("FLOWCELL_TEST_VALUE", VALUE).output().unwrap().status.success());
    ask(folder.path(), &["secret", "rm", "b", "--tenant", "a"]);
    let actions: Vec<_> = ask(folder.path(), &["audit", "list", "a"]).as_array().unwrap().clone();
    let actions: Vec<_> = actions.iter().map(|entry| entry["action"].as_str().unwrap().to_owned()).collect();
    assert_eq!(actions, ["tenant.create", "secret.set", "secret.rotate", "secret.set", "secret.rm"]);
    assert_eq!(ask(folder.path(), &["audit", "verify", "a"])["damage"], Value::Array(Vec::new()));
}
