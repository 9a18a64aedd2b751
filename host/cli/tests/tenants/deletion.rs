//! Tests the removal of a tenant with the real program, on a store in a folder.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

use flowcell::{
    Host,
    contract::Tenant,
    identity::{AuthError, Identify},
    tenants::{TenantError, Tenants, callers::Callers},
};
use serde_json::{Value, json};

use super::{
    ask, host_of,
    kit::{Owner, flowcell, output_of, stderr, stdout},
    park,
};

/// A tenant to remove, and one whose name begins with that name.
const NAMES: [&str; 2] = ["acme", "acme-2"];
/// Number of kill points between two kills of a removal.
#[cfg(target_os = "linux")]
const KILL_STEP: usize = 4;
const SECRET: &str = "hunter2-hunter2";

fn set_secret(folder: &Path, tenant: &str) {
    give_secret(folder, &["secret", "set", "token", "--tenant", tenant]);
}

/// Calls a command that reads a secret from its standard input.
fn give_secret(folder: &Path, arguments: &[&str]) {
    let mut command = flowcell(folder);
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(SECRET.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Fills a folder with two tenants that have data of every kind. Returns the token of the one to remove.
fn fill(folder: &Path) -> String {
    let mut tokens = Vec::new();
    for name in NAMES {
        ask(folder, &["tenant", "create", name]);
        tokens.push(ask(folder, &["token", "create", name, "--name", "ci"])["token"].as_str().unwrap().to_owned());
        park(folder, name, "r");
        ask(folder, &["runs", "bulk", "delete", "--status", "failed", "--tenant", name, "--yes", "--json"]);
        set_secret(folder, name);
        let credential = ["credential", "set", "crm", "--kind", "bearer", "--for", "https://crm.example"];
        give_secret(folder, &[&credential[..], &["--tenant", name]].concat());
        fs::write(folder.join("note.txt"), format!("a note of {name}.")).unwrap();
        ask(folder, &["files", "put", "note.txt", "--tenant", name]);
        let flows = folder.join("flows/.tenants").join(name);
        fs::create_dir_all(flows.join("flows")).unwrap();
        fs::write(flows.join("flows/hello.yaml"), "flow: { name: hello }\n").unwrap();
        let files = folder.join("files/.flowcell-tenants").join(name);
        fs::create_dir_all(&files).unwrap();
        fs::write(files.join("plan.txt"), "a plan").unwrap();
        symlink(folder.join("note.txt"), files.join("link")).unwrap();
    }
    tokens.swap_remove(0)
}

fn check_refused(folder: &Path, arguments: &[&str], why: &str) {
    let output = output_of(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    assert!(stderr(&output).contains(why), "{arguments:?}: {}", stderr(&output));
}

/// Checks that the other tenant has everything that it had.
fn check_other(folder: &Path) {
    assert_eq!(ask(folder, &["runs", "list", "--json", "--tenant", NAMES[1]])[0]["runId"], "r");
    assert_eq!(ask(folder, &["files", "list", "--tenant", NAMES[1]]).as_array().unwrap().len(), 1);
    assert_eq!(ask(folder, &["token", "list", "--tenant", NAMES[1]]).as_array().unwrap().len(), 1);
    assert!(ask(folder, &["audit", "verify", NAMES[1]])["damage"].as_array().unwrap().is_empty());
    assert!(folder.join("flows/.tenants/acme-2/flows/hello.yaml").exists());
    assert!(folder.join("files/.flowcell-tenants/acme-2/plan.txt").exists());
    assert!(folder.join("note.txt").exists(), "the target of a link stays");
    let opened = host_of(folder, NAMES[1]).vault().open(&Tenant::from(NAMES[1]), "token").unwrap();
    assert_eq!(opened.unwrap().as_str(), SECRET);
}

#[test]
fn a_removed_tenant_is_gone_and_a_certificate_says_what_remains() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = fill(folder);
    check_refused(
        folder,
        &["tenant", "delete", "acme", "--yes"],
        "stop it first with `flowcell tenant disable acme --stop`",
    );
    let disabled = ask(folder, &["tenant", "disable", "acme"]);
    assert_eq!(disabled["liveRuns"], 1);
    let stopped = ask(folder, &["tenant", "disable", "acme", "--stop"]);
    assert_eq!(stopped, json!({ "cancelled": 1, "notCancelled": [] }));
    let runs = ask(folder, &["runs", "list", "--json", "--tenant", "acme"]);
    assert_eq!(runs[0]["status"], "cancelled");
    let jobs = ask(folder, &["jobs", "list", "--json", "--tenant", "acme"]).as_array().unwrap().len() as u64;
    let planned = ask(folder, &["tenant", "delete", "acme"]);
    assert_eq!((&planned["found"]["rows"]["runs"], &planned["found"]["tokens"]), (&json!(1), &json!(1)), "{planned}");
    assert_eq!(ask(folder, &["runs", "list", "--json", "--tenant", "acme"]), runs, "nothing is removed yet");
    let removal = ["tenant", "delete", "acme", "--yes", "--files", "files", "--certificate", "certificate.json"];
    let certificate = ask(folder, &removal);
    let written: Value = serde_json::from_str(&fs::read_to_string(folder.join("certificate.json")).unwrap()).unwrap();
    assert_eq!(written, certificate);
    let mode = fs::metadata(folder.join("certificate.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let removed = &certificate["removed"];
    let counts = ["secrets", "credentials", "tokens", "accounts", "jobs"].map(|kind| removed[kind].as_u64().unwrap());
    assert_eq!((&removed["rows"]["runs"], counts), (&json!(1), [1, 1, 1, 0, jobs]), "{certificate}");
    assert!(jobs > 0, "the bulk deletion is a job");
    assert_eq!(
        (&certificate["left"], &certificate["keyDestroyed"], &certificate["overwritten"]),
        (&json!({}), &json!(true), &json!(true)),
        "{certificate}"
    );
    assert_eq!(
        (&certificate["files"]["flows"], &certificate["files"]["files"]),
        (&json!(2), &json!(2)),
        "{certificate}"
    );
    assert!(certificate["audit"]["entries"].as_u64().unwrap() > 5);
    let copies = certificate["copies"].to_string();
    assert!(
        copies.contains("backups") && copies.contains("destroyed key") && !copies.contains("`--files`"),
        "{copies}"
    );
    check_other(folder);
    assert!(!folder.join("flows/.tenants/acme").exists() && !folder.join("files/.flowcell-tenants/acme").exists());
    for file in ["flowcell.db", "flowcell.db-wal"] {
        let bytes = fs::read(folder.join(".flowcell").join(file)).unwrap_or_default();
        // The last word is the beginning of the row of the tenant itself.
        for word in ["Go, acme?", "a note of acme.", token.rsplit('_').next().unwrap(), "tenantacme{"] {
            assert!(!bytes.windows(word.len()).any(|part| part == word.as_bytes()), "{file} has {word}");
        }
    }
    // Its token is unknown, and no name of it is left but a hash.
    let names = ask(folder, &["tenant", "list"]);
    assert_eq!(names.as_array().unwrap().len(), 1, "{names}");
    check_refused(folder, &["runs", "list", "--tenant", "acme"], "the tenant `acme` does not exist");
    check_refused(folder, &["tenant", "create", "acme"], "`flowcell tenant create acme --reuse-name`");
    let again = ask(folder, &["tenant", "delete", "acme", "--yes"]);
    assert_eq!((&again["id"], &again["audit"]), (&certificate["id"], &certificate["audit"]));
    {
        let host = host_of(folder, "local");
        assert_eq!(Callers::of(&host).unwrap().identify(Some(&token)).unwrap_err(), AuthError::Unknown);
    }
    ask(folder, &["tenant", "create", "acme", "--reuse-name"]);
    assert_eq!(ask(folder, &["jobs", "list", "--tenant", "acme", "--json"]), json!([]), "no job of the removed tenant");
    assert!(ask(folder, &["runs", "list", "--json", "--tenant", "acme"]).as_array().unwrap().is_empty());
    assert_eq!(ask(folder, &["audit", "verify", "acme"])["entries"], 1);
    set_secret(folder, "acme");
    check_other(folder);
}

#[test]
fn names_that_are_no_tenants_remove_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fill(folder);
    ask(folder, &["tenant", "disable", "acme-2"]);
    let long = "a".repeat(1_000);
    for name in ["", ".", "..", "../acme", "acme/..", "acm", "ACME", "acme-", "acmé", "a%", "'; DROP TABLE runs", &long]
    {
        check_refused(folder, &["tenant", "delete", name, "--yes"], "does not exist");
        check_refused(folder, &["tenant", "disable", name, "--stop"], "does not exist");
    }
    check_refused(folder, &["tenant", "delete", "local", "--yes"], "cannot be removed");
    ask(folder, &["tenant", "enable", "acme-2"]);
    check_other(folder);
    assert_eq!(ask(folder, &["runs", "list", "--json", "--tenant", "acme"])[0]["runId"], "r");
    // A file that exists is not overwritten by a certificate.
    ask(folder, &["tenant", "disable", "acme"]);
    let taken = ["tenant", "delete", "acme", "--yes", "--certificate", "note.txt"];
    check_refused(folder, &taken, "cannot write the certificate");
    assert_eq!(ask(folder, &["tenant", "list"]).as_array().unwrap().len(), 2);
}

#[test]
fn a_tenant_is_removed_beside_the_owner_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = fill(folder);
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--files", "files"];
    let owner = Owner::start(folder, &arguments, "listening on");
    let stopped = ask(folder, &["tenant", "disable", "acme", "--stop"]);
    assert_eq!(stopped, json!({ "cancelled": 1, "notCancelled": [] }));
    let certificate = ask(folder, &["tenant", "delete", "acme", "--yes"]);
    assert_eq!((&certificate["left"], &certificate["files"]["files"]), (&json!({}), &json!(2)), "{certificate}");
    // The owner refuses writes for the tenant from now on, until it is created again.
    check_refused(folder, &["secret", "list", "--tenant", "acme"], "does not exist");
    ask(folder, &["tenant", "create", "acme", "--reuse-name"]);
    set_secret(folder, "acme");
    drop(owner);
    check_other(folder);
    let host = host_of(folder, "local");
    assert_eq!(Callers::of(&host).unwrap().identify(Some(&token)).unwrap_err(), AuthError::Unknown);
    assert!(host.vault().open(&Tenant::from("acme"), "token").unwrap().is_some());
}

#[test]
fn the_secrets_of_a_removed_tenant_are_unreadable_in_an_older_copy() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fill(folder);
    set_secret(folder, "local");
    ask(folder, &["store", "backup", "saved"]);
    ask(folder, &["tenant", "disable", "acme", "--stop"]);
    ask(folder, &["tenant", "delete", "acme", "--yes"]);
    for file in ["flowcell.db-wal", "flowcell.db-shm"] {
        let _ = fs::remove_file(folder.join(".flowcell").join(file));
    }
    fs::copy(folder.join("saved/flowcell.db"), folder.join(".flowcell/flowcell.db")).unwrap();
    {
        let host = host_of(folder, "acme");
        let error = host.vault().open(&Tenant::from("acme"), "token").unwrap_err();
        assert_eq!(error.code(), "secret_key_missing", "{error}");
        for tenant in ["acme-2", "local"] {
            assert_eq!(host.vault().open(&Tenant::from(tenant), "token").unwrap().unwrap().as_str(), SECRET);
        }
    }
    let lost = ask(folder, &["secret", "reset", "--tenant", "acme"]);
    assert_eq!(lost["secrets"], json!(["token"]));
    // The key of the store rotates, although the restored tenant has lost its own.
    ask(folder, &["secret", "reset", "--tenant", "acme", "--yes"]);
    ask(folder, &["secret", "rotate-key"]);
    set_secret(folder, "acme");
    check_other(folder);
}

/// In a store of an older version, the key of the store alone opens the data keys.
#[test]
fn a_rotation_gives_older_secrets_the_key_of_their_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let digits = "0123456789abcdef".repeat(4);
    fs::create_dir(folder.join(".flowcell")).unwrap();
    fs::write(folder.join(".flowcell/secret.key"), &digits).unwrap();
    fs::set_permissions(folder.join(".flowcell/secret.key"), fs::Permissions::from_mode(0o600)).unwrap();
    ask(folder, &["tenant", "create", "acme"]);
    let given = ["--secret-key", "file:.flowcell/secret.key"];
    let set = |value: &str| {
        let mut command = flowcell(folder);
        command
            .args(["secret", "set", "token", "--tenant", "acme"])
            .args(given)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    };
    set(SECRET);
    let keys = folder.join(".flowcell/secret.key.tenants");
    assert!(!keys.exists(), "a key from the operator makes no keys of tenants");
    let open = || host_of(folder, "acme").vault().open(&Tenant::from("acme"), "token");
    assert_eq!(open().unwrap().unwrap().as_str(), SECRET);
    ask(folder, &["secret", "rotate-key"]);
    let file = fs::read_dir(&keys).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(open().unwrap().unwrap().as_str(), SECRET);
    // With the option, too, the key of the tenant is found beside the key file.
    set("another-value-of-it");
    assert_eq!(open().unwrap().unwrap().as_str(), "another-value-of-it");
    fs::rename(&file, folder.join("moved")).unwrap();
    assert_eq!(open().unwrap_err().code(), "secret_key_missing");
    fs::rename(folder.join("moved"), &file).unwrap();
    assert!(open().unwrap().is_some());
}

#[cfg(target_os = "linux")]
#[test]
fn a_removal_that_is_killed_goes_on_where_it_stopped() {
    let library = crate::guests::bad_machine();
    let filled = tempfile::tempdir().unwrap();
    fill(filled.path());
    ask(filled.path(), &["tenant", "disable", "acme", "--stop"]);
    let mut killed = 0;
    for at in (1..).step_by(KILL_STEP) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let all = filled.path().join(".");
        assert!(Command::new("cp").arg("-a").args([&*all, folder]).status().unwrap().success());
        let mut command = flowcell(folder);
        command.args(["tenant", "delete", "acme", "--yes", "--files", "files"]);
        command.env("LD_PRELOAD", &library).env("BAD_DISK", format!("die:{at}"));
        let output = command.output().unwrap();
        if folder.join("bad-disk").exists() {
            killed += 1;
            check_half(folder);
            let certificate = ask(folder, &["tenant", "delete", "acme", "--yes", "--files", "files"]);
            assert_eq!(certificate["left"], json!({}), "{at}: {certificate}");
            assert_eq!(certificate["removed"]["rows"]["runs"], 1, "{at}: {certificate}");
            assert_eq!(certificate["keyDestroyed"], true, "{at}: {certificate}");
        } else {
            assert!(output.status.success(), "{at}: {}", stderr(&output));
        }
        check_other(folder);
        assert!(!folder.join("flows/.tenants/acme").exists(), "{at}");
        check_refused(folder, &["runs", "list", "--tenant", "acme"], "does not exist");
        if output.status.success() {
            break;
        }
    }
    assert!(killed > 3, "only {killed} processes were killed");
}

/// Checks that a tenant whose removal may have begun is refused everywhere.
#[cfg(target_os = "linux")]
fn check_half(folder: &Path) {
    let listed = ask(folder, &["tenant", "list"]);
    let row = listed.as_array().unwrap().iter().find(|row| row["name"] == "acme").cloned();
    let Some(row) = row else { return };
    assert_eq!(row["disabled"], true);
    if row["beingRemoved"] == true {
        check_refused(folder, &["tenant", "enable", "acme"], "is being removed");
        check_refused(folder, &["runs", "list", "--tenant", "acme"], "is being removed");
        check_refused(folder, &["token", "create", "acme"], "is being removed");
        check_refused(folder, &["tenant", "create", "acme", "--reuse-name"], "already exists");
    }
}

#[test]
fn the_last_removed_tenant_does_not_open_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::builder().cache_dir(crate::kit::CACHE).instances(1).state_dir(folder.path()).build().unwrap();
    let tenants = Tenants::of(&host);
    tenants.create("a").unwrap();
    tenants.enable("a", false).unwrap();
    let operation = flowcell::tenants::operation::Operation::DeleteTenant {
        name: "a".into(),
        folder: folder.path().join("flows"),
        confirmed: true,
    };
    tenants.operate(&operation).unwrap();
    assert!(tenants.list().unwrap().is_empty());
    let callers = Callers::of(&host).unwrap();
    assert!(callers.asks_for_tokens());
    assert_eq!(callers.identify(None).unwrap_err(), AuthError::Missing);
    assert!(matches!(tenants.create("a"), Err(TenantError::Removed(_))));
    // A store in memory has nothing that lasts.
    let memory = super::host();
    Tenants::of(&memory).create("a").unwrap();
    Tenants::of(&memory).enable("a", false).unwrap();
    assert!(Tenants::of(&memory).operate(&operation).unwrap_err().to_string().contains("no lasting store"));
}

#[test]
fn tokens_have_names_and_last_uses() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    ask(folder, &["tenant", "create", "a"]);
    ask(folder, &["tenant", "create", "b"]);
    let token = ask(folder, &["token", "create", "a", "--name", "ci", "--expires", "3d"]);
    check_refused(
        folder,
        &["token", "create", "a", "--name", "ci"],
        "has the name `ci`; revoke it, or choose another name",
    );
    check_refused(folder, &["token", "create", "a", "--name", "c i"], "is not a valid name of a token");
    ask(folder, &["token", "create", "b", "--name", "ci", "--expires", "never"]);
    let row = |folder: &Path| ask(folder, &["token", "list", "--tenant", "a"])[0].clone();
    assert_eq!((&row(folder)["name"], &row(folder)["lastUsed"]), (&json!("ci"), &Value::Null));
    assert_eq!(row(folder)["warning"], "expires in 2 days");
    let used = {
        let host = host_of(folder, "local");
        let callers = Callers::of(&host).unwrap();
        callers.flush().unwrap();
        let caller = callers.identify(token["token"].as_str()).unwrap();
        assert_eq!(
            Tenants::of(&host).tokens(Some("a")).unwrap()[0].last_used,
            None,
            "it is not written in the request"
        );
        callers.flush().unwrap();
        assert_eq!(caller.tenant.as_str(), "a");
        let used = Tenants::of(&host).tokens(Some("a")).unwrap()[0].last_used.unwrap();
        // Another use in the same minute is not written.
        callers.identify(token["token"].as_str()).unwrap();
        callers.flush().unwrap();
        assert_eq!(Tenants::of(&host).tokens(Some("a")).unwrap()[0].last_used, Some(used));
        assert_eq!(Tenants::of(&host).tokens(Some("b")).unwrap()[0].last_used, None);
        used
    };
    assert_eq!(row(folder)["lastUsed"], used, "it outlives the process");
    ask(folder, &["token", "revoke", token["id"].as_str().unwrap()]);
    assert_eq!((&row(folder)["warning"], &row(folder)["lastUsed"]), (&Value::Null, &json!(used)));
    ask(folder, &["token", "create", "a", "--name", "ci"]);
    let text = stdout(&output_of(folder, &["token", "list"]));
    assert!(!text.contains(token["token"].as_str().unwrap().rsplit('_').next().unwrap()), "{text}");
}

#[test]
fn a_tenant_is_exported_beside_the_owner_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = fill(folder);
    let _owner = Owner::start(folder, &["serve", "--listen", "127.0.0.1:0"], "listening on");
    let manifest = ask(folder, &["tenant", "export", "acme", "out"]);
    let counted = ["runs", "flowFiles", "files", "tokens", "secrets", "credentials", "accounts"];
    let numbers = counted.map(|name| manifest[name].as_u64().unwrap());
    assert_eq!(numbers, [1, 1, 1, 1, 1, 1, 0], "{manifest}");
    assert_eq!(manifest["postedVersions"], 0, "a store in a folder has no posted flows");
    let left_out = manifest["notExported"].to_string();
    assert!(["values of secrets and of credentials", "links to forms"].iter().all(|part| left_out.contains(part)));
    let out = folder.join("out");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&read("manifest.json")).unwrap(), manifest);
    let credential: Value = serde_json::from_str(&read("credentials.json")).unwrap();
    assert_eq!((&credential[0]["name"], &credential[0]["kind"]), (&json!("crm"), &json!("bearer")), "{credential}");
    let run: Value = serde_json::from_str(read("runs.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!((&run["runId"], &run["status"]), (&json!("r"), &json!("parked")));
    let document: Value = serde_json::from_str(&read(run["file"].as_str().unwrap())).unwrap();
    assert_eq!((&document["run"]["runId"], document["events"].as_array().is_some()), (&json!("r"), true));
    let file: Value = serde_json::from_str(read("files.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!(read(&format!("files/{}", file["fileId"].as_str().unwrap())), "a note of acme.");
    assert_eq!(read("flows/hello.yaml"), "flow: { name: hello }\n");
    assert_eq!(read("audit.jsonl").lines().count() as u64, manifest["auditEntries"].as_u64().unwrap());
    let mut open = vec![out.clone()];
    while let Some(path) = open.pop() {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        if path.is_dir() {
            assert_eq!(mode, 0o700, "{}", path.display());
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        assert_eq!(mode, 0o600, "{}", path.display());
        let text = fs::read_to_string(&path).unwrap();
        for word in [SECRET, token.rsplit('_').next().unwrap(), "acme-2"] {
            assert!(!text.contains(word), "{} has {word}", path.display());
        }
    }
    check_refused(folder, &["tenant", "export", "acme", "out"], "is not empty");
    check_refused(folder, &["tenant", "export", "acme", "flows/.tenants/acme/flows/out"], "is in the folder of flows");
    // The flows of other tenants are below those of `local`.
    ask(folder, &["tenant", "create", "local"]);
    fs::write(folder.join("flows/own.yaml"), "flow: { name: own }\n").unwrap();
    let manifest = ask(folder, &["tenant", "export", "local", "local-out"]);
    assert_eq!(manifest["flowFiles"], 1, "{manifest}");
    assert!(!folder.join("local-out/flows/.tenants").exists());
    for name in ["acm", "../acme", ""] {
        check_refused(folder, &["tenant", "export", name, "other"], "does not exist");
    }
    assert!(!folder.join("other").exists());
}
