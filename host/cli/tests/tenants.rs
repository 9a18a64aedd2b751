//! Tests tenants, tokens and the audit log, with the library and the real program.

#![cfg(unix)]

mod deletion;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use flowcell::{
    Filter, FlowRunner, Host, LoadError, Repeat, RunOptions, RunStatus, Source, StartError,
    contract::Tenant,
    identity::{AuthError, Identify, Scope},
    policy::Policy,
    tenants::{TenantError, Tenants, audit::Outcome, callers::Callers},
};
use rusqlite::Connection;
use serde_json::Value;

use crate::kit::{self, flowcell, output_of, stderr, stdout};

fn host() -> Host {
    Host::builder().cache_dir(kit::CACHE).instances(4).build().unwrap()
}

fn tenants() -> Tenants {
    Tenants::of(&host())
}

fn all() -> Vec<String> {
    Scope::of_tenants().map(|scope| scope.name().to_owned()).collect()
}

#[test]
fn a_token_identifies_its_tenant_and_scopes() {
    let tenants = tenants();
    tenants.create("a").unwrap();
    tenants.create("b").unwrap();
    let scopes = [Scope::RunRead.name().to_owned()];
    let token = tenants.create_token("a", &scopes, "ci", None).unwrap();
    let caller = tenants.identify(Some(&token.token)).unwrap();
    assert_eq!((caller.tenant.as_str(), caller.token.as_deref()), ("a", Some(&*token.id)));
    for scope in Scope::ALL {
        assert_eq!(caller.scopes.has(scope), scope == Scope::RunRead, "{scope}");
    }
    assert_eq!(tenants.identify(None).unwrap_err(), AuthError::Missing);
    let last = token.token.chars().last().unwrap();
    let other = token.token[..token.token.len() - 1].to_owned() + if last == '0' { "1" } else { "0" };
    let secret = token.token.rsplit('_').next().unwrap();
    let unknown = ["", "fct_", "fct__", &token.id, secret, &token.token[1..], &other, &format!("{} ", token.token)];
    for shown in unknown {
        assert_eq!(tenants.identify(Some(shown)).unwrap_err(), AuthError::Unknown, "{shown}");
    }
}

#[test]
fn a_token_of_the_operators_has_no_tenant_and_only_their_scopes() {
    let tenants = tenants();
    let scopes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    tenants.create("a").unwrap();
    let token = tenants.create_named_token("", "prometheus", &scopes(&["metrics:read"]), "", None).unwrap();
    let caller = tenants.identify(Some(&token.token)).unwrap();
    assert!(caller.is_operator() && caller.scopes.has(Scope::MetricsRead));
    assert_eq!(caller.scopes.names(), ["metrics:read"]);
    assert!(tenants.still_knows(&caller));
    for name in ["run:read", "admin", "secret:write"] {
        let refused = tenants.create_token("", &scopes(&[name]), "", None).unwrap_err();
        assert_eq!(refused.code(), "scope_not_allowed", "{name}: {refused}");
    }
    let taken = tenants.create_named_token("", "prometheus", &scopes(&["metrics:read"]), "", None).unwrap_err();
    assert_eq!(taken.code(), "token_exists");
    // It outlives every tenant, and ends when it is revoked.
    tenants.enable("a", false).unwrap();
    assert!(tenants.identify(Some(&token.token)).is_ok());
    tenants.revoke_token(&token.id).unwrap();
    assert_eq!(tenants.identify(Some(&token.token)).unwrap_err(), AuthError::Unknown);
    assert!(!tenants.still_knows(&caller));
    let log = tenants.audit("", 0, 100).unwrap();
    let actions: Vec<_> = log.iter().map(|entry| (&*entry.action, &*entry.subject)).collect();
    let created = format!("{} metrics:read", token.id);
    assert_eq!(actions[..2], [("token.create", &*created), ("token.revoke", &*token.id)]);
}

#[test]
fn without_tenants_every_caller_is_local() {
    let host = host();
    let (callers, tenants) = (Callers::of(&host).unwrap(), Tenants::of(&host));
    for shown in [None, Some("fct_a_b")] {
        assert_eq!(callers.identify(shown).unwrap().tenant, Tenant::local());
    }
    assert!(!callers.asks_for_tokens());
    assert_eq!(callers.tenants(), [Tenant::local()]);
    tenants.create("a").unwrap();
    assert_eq!(callers.identify(Some("fct_a_b")).unwrap_err(), AuthError::Unknown);
    assert!(callers.asks_for_tokens());
    assert_eq!(callers.identify(None).unwrap_err(), AuthError::Missing);
    assert_eq!(callers.tenants(), [Tenant::local(), "a".into()]);
    // No request counts as `local` again, even after all tenants are disabled.
    tenants.enable("a", false).unwrap();
    assert_eq!(callers.identify(None).unwrap_err(), AuthError::Missing);
    assert_eq!(callers.tenants(), [Tenant::local()]);
    assert!(Callers::of(&host).unwrap().asks_for_tokens());
}

#[test]
fn a_refused_token_is_audited_once_a_minute() {
    let tenants = tenants();
    tenants.create("a").unwrap();
    let token = tenants.create_token("a", &all(), "", Some(0)).unwrap();
    for _ in 0..10 {
        tenants.identify(Some(&token.token)).unwrap_err();
        tenants.identify(Some("fct_nobody_0123456789")).unwrap_err();
    }
    for (tenant, subject) in [("a", &*token.id), ("", "unknown")] {
        let log = tenants.audit(tenant, 0, 100).unwrap();
        let refused: Vec<_> = log.iter().filter(|entry| entry.action == "token.refused").collect();
        assert_eq!(refused.len(), 1, "{log:?}");
        assert_eq!((&*refused[0].subject, refused[0].outcome), (subject, Outcome::Refused));
        assert!(tenants.verify_audit(tenant, None).unwrap().damage.is_empty());
    }
}

#[test]
fn expired_and_revoked_tokens_and_those_of_disabled_tenants_are_refused() {
    let tenants = tenants();
    tenants.create("a").unwrap();
    let short = tenants.create_token("a", &all(), "", Some(0)).unwrap();
    assert_eq!(tenants.identify(Some(&short.token)).unwrap_err(), AuthError::Unknown);
    let long = tenants.create_token("a", &all(), "", Some(3_600_000)).unwrap();
    let other = tenants.create_token("a", &all(), "", None).unwrap();
    assert!(tenants.identify(Some(&long.token)).is_ok());
    tenants.revoke_token(&long.id).unwrap();
    tenants.revoke_token(&long.id).unwrap();
    assert_eq!(tenants.identify(Some(&long.token)).unwrap_err(), AuthError::Unknown);
    tenants.enable("a", false).unwrap();
    assert_eq!(tenants.identify(Some(&other.token)).unwrap_err(), AuthError::Unknown);
    assert_eq!(tenants.tenants(), [Tenant::local()]);
    tenants.enable("a", true).unwrap();
    assert!(tenants.identify(Some(&other.token)).is_ok());
    assert_eq!(tenants.tenants(), [Tenant::local(), "a".into()]);
}

#[tokio::test]
async fn no_run_of_a_disabled_tenant_begins_or_continues() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::builder().state_dir(folder.path()).cache_dir(kit::CACHE).instances(4).build().unwrap();
    let gate =
        "flow: { name: gate }\nnodes: [{ id: ask, type: control.gate, input: { prompt: Well, allowText: true } }]\n";
    let flow = host.load_source(Source { name: "gate.yaml".into(), text: gate.into() }).unwrap();
    let options = || RunOptions { run_id: Some("r".into()), ..RunOptions::default() };
    assert_eq!(host.runner(&flow, options()).unwrap().run().await.status, RunStatus::Parked);
    let tenants = Tenants::of(&host);
    tenants.create("local").unwrap();
    for enabled in [false, true] {
        tenants.enable("local", enabled).unwrap();
        let by_hand = RunOptions { by_hand: true, ..options() };
        let again = RunOptions { run_id: Some("again".into()), ..options() };
        let begun = [
            host.runner(&flow, RunOptions::default()).map(drop),
            host.runner(&flow, options()).map(drop),
            host.resume(&"r".into(), by_hand).map(drop),
            host.retry(&"r".into(), Repeat::default(), again).map(drop),
        ];
        for (how, begun) in begun.into_iter().enumerate() {
            match begun {
                Ok(()) => assert!(enabled, "{how}"),
                Err(StartError::TenantDisabled(tenant)) => assert!(!enabled && tenant == Tenant::local(), "{how}"),
                Err(error) => panic!("{how}: {error}"),
            }
        }
    }
}

#[test]
fn invalid_tenants_and_tokens_are_refused() {
    let tenants = tenants();
    for name in ["", "a b", "../a", "a.b", "ä", &"a".repeat(65)] {
        assert!(matches!(tenants.create(name), Err(TenantError::Name(_))), "{name}");
    }
    tenants.create(&"a".repeat(64)).unwrap();
    assert!(matches!(tenants.create(&"a".repeat(64)), Err(TenantError::Taken(_))));
    assert!(matches!(tenants.create_token("b", &all(), "", None), Err(TenantError::Unknown(_))));
    tenants.create("b").unwrap();
    let refused = tenants.create_token("b", &["run:destroy".to_owned()], "", None).unwrap_err();
    assert!(refused.to_string().contains("`run:destroy`") && refused.to_string().contains("run:control"), "{refused}");
    assert!(matches!(tenants.revoke_token("nobody"), Err(TenantError::UnknownToken(_))));
}

const REACHES: &str = "flow: { name: reaches }
nodes:
  - { id: a, type: agent.run, input: { prompt: x }, grants: { model: ['anthropic/*'], tools: ['data.*', 'flow:x'] } }
";

#[test]
fn the_policy_of_a_tenant_limits_the_grants_of_its_flows() {
    let host = Host::builder().cache_dir(kit::CACHE).instances(4).build().unwrap();
    let tenants = Tenants::of(&host);
    tenants.create("a").unwrap();
    tenants.create("b").unwrap();
    let grants =
        [("model".to_owned(), vec!["anthropic/*".to_owned()]), ("tools".to_owned(), vec!["data.*".to_owned()])];
    let policy = Policy { grants: Some(grants.into()), ..Policy::default() };
    tenants.set_policy("a", &policy).unwrap();
    assert_eq!((tenants.policy("a").unwrap(), tenants.policy("b").unwrap()), (policy, Policy::default()));
    let found = |tenant: &str| {
        let source = Source { name: "reaches.yaml".into(), text: REACHES.into() };
        match tenants.host(&Tenant::from(tenant)).unwrap().load_source(source) {
            Ok(_) => Vec::new(),
            Err(LoadError::Invalid(found)) => found,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(found("b"), []);
    let found = found("a");
    let place = REACHES.lines().nth(2).unwrap().find("'flow:x'").unwrap() + 1;
    let told: Vec<_> = found.iter().map(|found| (found.code, found.location.line, found.location.column)).collect();
    assert_eq!(told, [("wrong_grant", 3, place)]);
    assert!(
        found[0].message.contains("exceeds the operator's limits for this tenant: `data.*`"),
        "{}",
        found[0].message
    );
}

#[test]
fn the_policy_of_a_tenant_limits_its_live_runs() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::builder().cache_dir(kit::CACHE).instances(4).state_dir(folder.path()).build().unwrap();
    let tenants = Tenants::of(&host);
    ["a", "b"].iter().for_each(|name| tenants.create(name).unwrap());
    tenants.set_policy("a", &Policy { max_live_runs: Some(2), ..Policy::default() }).unwrap();
    let text = "flow: { name: waits }\nnodes: [{ id: w, type: control.wait, input: { until: now } }]\n";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let start = |tenant: &str| {
        let host = tenants.host(&Tenant::from(tenant)).unwrap();
        let flow = host.load_source(Source { name: "waits.yaml".into(), text: text.into() }).unwrap();
        let runner = match host.runner(&flow, RunOptions::default()) {
            Ok(runner) => runner,
            Err(StartError::Quota(_)) => return false,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(runtime.block_on(runner.run()).status, RunStatus::Parked);
        true
    };
    assert!(start("a") && start("a") && !start("a") && start("b"));
    let refused = tenants.host(&Tenant::from("a")).unwrap().check_quota().unwrap_err().to_string();
    assert!(refused.starts_with("the tenant has 2 unfinished runs"), "{refused}");
    let theirs = |tenant: &str| {
        host.for_tenant(Tenant::from(tenant)).runs().unwrap().runs(&Tenant::from(tenant), &all_runs()).unwrap()
    };
    assert_eq!((theirs("a").len(), theirs("b").len()), (2, 1));
    let foreign = host.for_tenant(Tenant::from("b")).resume(&theirs("a")[0].run_id, RunOptions::default());
    assert!(foreign.err().unwrap().to_string().contains("the store has no run"), "another tenant's run does not exist");
}

fn all_runs() -> Filter {
    Filter { limit: 9, ..Filter::default() }
}

/// Runs a command that has to succeed. Returns the printed JSON.
fn ask(folder: &Path, arguments: &[&str]) -> Value {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn tokens_are_created_and_revoked_through_the_owner_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let first = output_of(folder.path(), &["tenant", "create", "a"]);
    assert!(stderr(&first).contains("this is the first tenant"), "{}", stderr(&first));
    assert!(stderr(&first).contains("create it with `flowcell tenant create local`"), "{}", stderr(&first));
    let mut owner = flowcell(folder.path()).arg("drive").stderr(Stdio::piped()).spawn().unwrap();
    // The first line says that the process listens.
    BufReader::new(owner.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    ask(folder.path(), &["tenant", "create", "b"]);
    let token = ask(folder.path(), &["token", "create", "b", "--scopes", "run:read,run:create", "--note", "ci"]);
    let (id, secret) = (token["id"].as_str().unwrap(), token["token"].as_str().unwrap());
    let empty = output_of(folder.path(), &["token", "create", "", "--scopes", "admin:write"]);
    assert_eq!(empty.status.code(), Some(2));
    assert!(stderr(&empty).contains("the name of the tenant is empty"), "{}", stderr(&empty));
    let refused = output_of(folder.path(), &["tenant", "create", "b"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("the tenant `b` already exists"), "{}", stderr(&refused));
    owner.kill().unwrap();
    owner.wait().unwrap();
    let tokens = ask(folder.path(), &["token", "list", "--tenant", "b"]);
    assert_eq!(tokens[0]["id"], id);
    assert_eq!(tokens[0]["expires"].as_u64().unwrap() - tokens[0]["created"].as_u64().unwrap(), 90 * 86_400_000);
    ask(folder.path(), &["token", "revoke", id]);
    std::fs::write(folder.path().join("policy.yaml"), "maxLiveRuns: 5\n").unwrap();
    assert_eq!(ask(folder.path(), &["tenant", "policy", "b", "--set", "policy.yaml"])["maxLiveRuns"], 5);
    assert_eq!(ask(folder.path(), &["tenant", "policy", "b"])["maxLiveRuns"], 5);
    std::fs::write(folder.path().join("policy.yaml"), "maxRuns: 5\n").unwrap();
    let wrong = output_of(folder.path(), &["tenant", "policy", "b", "--set", "policy.yaml"]);
    assert!(stderr(&wrong).contains("policy.yaml") && stderr(&wrong).contains("maxRuns"), "{}", stderr(&wrong));
    std::fs::write(folder.path().join("policy.yaml"), "grants: { htpp: ['https://*'] }\n").unwrap();
    let wrong = output_of(folder.path(), &["tenant", "policy", "b", "--set", "policy.yaml"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("unknown capability `htpp`; did you mean `http`?"), "{}", stderr(&wrong));
    assert_eq!(ask(folder.path(), &["tenant", "policy", "b"])["maxLiveRuns"], 5, "nothing was set");
    let actions: Vec<_> = ask(folder.path(), &["audit", "list", "b"]).as_array().unwrap().clone();
    let actions: Vec<_> = actions.iter().map(|entry| entry["action"].as_str().unwrap().to_owned()).collect();
    assert_eq!(actions, ["tenant.create", "token.create", "token.revoke", "tenant.policy"]);
    // The token's secret is in no file of the store.
    let secret = secret.rsplit('_').next().unwrap().as_bytes();
    for file in std::fs::read_dir(folder.path().join(".flowcell")).unwrap() {
        let Ok(bytes) = std::fs::read(file.unwrap().path()) else { continue };
        assert!(!bytes.windows(secret.len()).any(|window| window == secret));
    }
}

#[test]
fn t10_a_changed_or_shortened_log_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    ask(folder.path(), &["tenant", "create", "a"]);
    for note in ["1", "2", "3"] {
        ask(folder.path(), &["token", "create", "a", "--note", note, "--expires", "never"]);
    }
    let whole = ask(folder.path(), &["audit", "verify", "a"]);
    assert_eq!((whole["entries"].as_u64(), whole["damage"].as_array().unwrap().len()), (Some(4), 0));
    let head = whole["head"].as_str().unwrap();
    let of = "WHERE tenant = 'a' AND kind = 'audit'";
    let cases = [
        (
            format!("UPDATE registry SET value = replace(value, 'operator', 'nobody') {of} AND key LIKE '%2'"),
            "it was changed",
        ),
        (format!("DELETE FROM registry {of} AND key LIKE '%2'"), "the entries from 2 before it are missing"),
        (format!("DELETE FROM registry {of} AND key LIKE '%1'"), "it does not follow the entry before it"),
        (format!("DELETE FROM registry {of} AND key LIKE '%4'"), "the end of the log is missing"),
    ];
    for (sql, found) in cases {
        let copy = tempfile::tempdir().unwrap();
        std::fs::create_dir(copy.path().join(".flowcell")).unwrap();
        for file in std::fs::read_dir(folder.path().join(".flowcell")).unwrap() {
            let file = file.unwrap();
            if file.file_name().to_string_lossy().starts_with("flowcell.db") {
                std::fs::copy(file.path(), copy.path().join(".flowcell").join(file.file_name())).unwrap();
            }
        }
        let connection = Connection::open(copy.path().join(".flowcell/flowcell.db")).unwrap();
        assert_eq!(connection.execute(&sql, []).unwrap(), 1, "{sql}");
        drop(connection);
        let verified = output_of(copy.path(), &["audit", "verify", "a", "--head", head]);
        assert_eq!(verified.status.code(), Some(1), "{sql}: {}", stderr(&verified));
        assert!(stdout(&verified).contains(found), "{sql}: {}", stdout(&verified));
    }
}

#[test]
fn an_operator_sees_and_controls_the_runs_of_a_tenant() {
    let folder = tempfile::tempdir().unwrap();
    for tenant in ["a", "b"] {
        let created = output_of(folder.path(), &["tenant", "create", tenant]);
        assert!(created.status.success(), "{}", stderr(&created));
    }
    park(folder.path(), "a", "r");
    park(folder.path(), "local", "r");
    let list = |tenant: &str| ask(folder.path(), &["runs", "list", "--json", "--tenant", tenant]);
    assert_eq!((list("a")[0]["runId"].as_str(), list("b").as_array().unwrap().len()), (Some("r"), 0));
    let shown = ask(folder.path(), &["runs", "show", "r", "--json", "--tenant", "a"]);
    assert_eq!((&shown["status"], &shown["waiting"][0]["prompt"]), (&"parked".into(), &"Go, a?".into()), "{shown}");
    let question = ask(folder.path(), &["answer", "r", "ok", "--show", "--tenant", "a"]);
    assert_eq!(question["prompt"], "Go, a?");
    for command in [&["runs", "events", "r"][..], &["runs", "export", "r"]] {
        let output = output_of(folder.path(), &[command, &["--tenant", "a"]].concat());
        assert!(stdout(&output).contains("Go, a?"), "{command:?}: {}", stderr(&output));
    }
    for command in [&["runs", "show", "r"][..], &["runs", "cancel", "r"], &["runs", "events", "r"]] {
        let output = output_of(folder.path(), &[command, &["--tenant", "b"]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}: {}", stderr(&output));
    }
    for command in [&["runs", "list"][..], &["runs", "cancel", "r"], &["runs", "gc", "--keep", "0"]] {
        let output = output_of(folder.path(), &[command, &["--tenant", "nobody"]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("the tenant `nobody` does not exist"), "{}", stderr(&output));
    }
    let done = |arguments: &[&str]| {
        let output = output_of(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    done(&["answer", "r", "ok", "yes", "--tenant", "a"]);
    {
        // The same commands beside the owner of the store.
        let _owner = kit::Owner::start(folder.path(), &["drive"], "driving the runs");
        done(&["runs", "cancel", "r", "--tenant", "a"]);
        let unknown = output_of(folder.path(), &["runs", "cancel", "r", "--tenant", "b"]);
        assert_eq!(unknown.status.code(), Some(2), "{}", stderr(&unknown));
    }
    end(folder.path(), "a", "r");
    let _owner = kit::Owner::start(folder.path(), &["drive"], "driving the runs");
    assert_eq!(done(&["runs", "gc", "--keep", "0", "--tenant", "b"]), "");
    assert_eq!(done(&["runs", "gc", "--keep", "0", "--tenant", "a"]), "r\n");
    assert_eq!(list("a").as_array().unwrap().len(), 0);
    assert_eq!(list("local")[0]["status"], "parked", "the run of the same name is another one");
    let entries = ask(folder.path(), &["audit", "list", "a"]);
    let entries: Vec<_> = entries.as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(entries, ["tenant.create", "run.reply", "run.cancel", "runs.collect"]);
}

#[test]
fn an_operator_drives_repeats_and_starts_runs_of_a_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let done = |arguments: &[&str]| {
        let output = output_of(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    ["a", "b"].iter().for_each(|tenant| _ = done(&["tenant", "create", tenant]));
    park(folder.path(), "a", "r");
    park(folder.path(), "local", "r");
    for (tenant, why) in [("b", "r"), ("nobody", "the tenant `nobody` does not exist")] {
        for command in [&["runs", "resume", "r"][..], &["runs", "retry", "r"], &["flows", "run", "hello"]] {
            let refused = output_of(folder.path(), &[command, &["--tenant", tenant]].concat());
            assert_eq!(refused.status.code(), Some(2), "{command:?}: {}", stderr(&refused));
            assert!(stderr(&refused).contains(why), "{command:?}: {}", stderr(&refused));
        }
    }
    done(&["runs", "resume", "r", "--answer", "ok=yes", "--tenant", "a"]);
    let status = |tenant: &str, run: &str| {
        ask(folder.path(), &["runs", "show", run, "--json", "--tenant", tenant])["status"].as_str().unwrap().to_owned()
    };
    assert_eq!((status("a", "r"), status("local", "r")), ("succeeded".to_owned(), "parked".to_owned()));
    let again = output_of(folder.path(), &["runs", "retry", "r", "--run-id", "r2", "--tenant", "a"]);
    assert!(stderr(&again).contains("flowcell runs resume r2 --tenant a"), "{}", stderr(&again));
    assert_eq!(status("a", "r2"), "parked");
    // A flow of the tenant, and not one of the operator.
    let text = "flow: { name: hello }\nnodes: [{ id: say, type: control.noop, input: { value: Hello } }]\n";
    std::fs::write(folder.path().join("hello.yaml"), text).unwrap();
    done(&["flows", "create", "hello.yaml", "--tenant", "a"]);
    assert!(done(&["flows", "run", "hello", "--run-id", "h", "--tenant", "a"]).contains("Hello"));
    assert!(done(&["flows", "runs", "hello", "--tenant", "a"]).contains("say"));
    assert_eq!(output_of(folder.path(), &["flows", "runs", "hello", "--tenant", "b"]).status.code(), Some(2));
    assert_eq!(output_of(folder.path(), &["flows", "run", "hello"]).status.code(), Some(2));
    {
        // Another process that owns the store drives the runs of other tenants for nobody.
        let _owner = kit::Owner::start(folder.path(), &["drive"], "driving the runs");
        for command in [&["runs", "resume", "r2"][..], &["runs", "retry", "r"], &["flows", "run", "hello"]] {
            let refused = output_of(folder.path(), &[command, &["--tenant", "a"]].concat());
            assert_eq!(refused.status.code(), Some(2), "{command:?}: {}", stderr(&refused));
            assert!(stderr(&refused).contains("hands over no runs of the tenant `a`"), "{}", stderr(&refused));
        }
    }
    assert_eq!(status("a", "r2"), "parked");
    let entries = ask(folder.path(), &["audit", "list", "a"]);
    let entries = entries.as_array().unwrap().iter();
    let of_runs: Vec<_> = entries
        .filter(|entry| entry["action"].as_str().unwrap().starts_with("run."))
        .map(|entry| format!("{} {}", entry["action"].as_str().unwrap(), entry["subject"].as_str().unwrap()))
        .collect();
    assert_eq!(of_runs, ["run.reply r", "run.resume r", "run.retry r", "run.start h"]);
}

fn host_of(folder: &Path, tenant: &str) -> Host {
    let host = Host::builder().cache_dir(kit::CACHE).instances(4).state_dir(folder.join(".flowcell")).build().unwrap();
    host.for_tenant(Tenant::from(tenant))
}

/// Starts a run that waits at a gate.
fn park(folder: &Path, tenant: &str, run: &str) {
    let host = host_of(folder, tenant);
    let text = format!(
        "flow: {{ name: asks }}\n\
         nodes: [{{ id: ok, type: control.gate, input: {{ prompt: 'Go, {tenant}?', choices: ['yes'] }} }}]\n"
    );
    let flow = host.load_source(Source { name: "asks.yaml".into(), text }).unwrap();
    let runner = host.runner(&flow, RunOptions { run_id: Some(run.into()), ..RunOptions::default() }).unwrap();
    assert_eq!(driven(runner), RunStatus::Parked);
}

/// Continues a run to its end.
fn end(folder: &Path, tenant: &str, run: &str) {
    let runner = host_of(folder, tenant).resume(&run.into(), RunOptions { by_hand: true, ..RunOptions::default() });
    let status = driven(runner.unwrap());
    assert!(!matches!(status, RunStatus::Parked), "{status:?}");
}

fn driven(runner: FlowRunner) -> RunStatus {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(runner.run()).status
}
