//! Tests `flowcell serve --config`: the precedence of settings, and errors in the file.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{
    client::ask,
    kit::{flowcell, output_of, stderr, stdout},
    server::process::{serve, stop},
};

/// Runs `--check` with this file. Returns the exit code and both outputs.
fn check(text: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("flowcell.yaml"), text).unwrap();
    let all = [&["serve", "--config", "flowcell.yaml", "--check"], arguments].concat();
    let output = output_of(folder.path(), &all);
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn the_command_line_wins_over_the_environment_and_that_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("etc")).unwrap();
    let text = "listen: 127.0.0.1:1\nname: [one, two]\nflows: kept\nproviders: other.yaml\nmaxConnections: 7\n\
                secretKey: file:key\n";
    fs::write(folder.path().join("etc/flowcell.yaml"), text).unwrap();
    let key = folder.path().join("etc/key");
    fs::write(&key, "1".repeat(64)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = flowcell(folder.path());
    command.env("FLOWCELL_FLOWS", "from-here");
    let output =
        command.args(["serve", "--check", "--config", "etc/flowcell.yaml", "--listen", "127.0.0.1:0"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    for line in [
        r#"listen: "127.0.0.1:0"  # the command line"#,
        r#"name: ["one", "two"]  # etc/flowcell.yaml:2:7"#,
        r#"flows: "from-here"  # the environment, FLOWCELL_FLOWS"#,
        r#"maxConnections: "7"  # etc/flowcell.yaml:5:17"#,
        r#"headTimeMs: "30000"  # by default"#,
        r#"state: ".flowcell"  # by default"#,
        r#"secretKey: ["file:etc/key"]  # etc/flowcell.yaml:6:12"#,
    ] {
        assert!(said.lines().any(|found| found == line), "{line}\n{said}");
    }
    assert!(said.contains("  # the environment, FLOWCELL_PROVIDERS"), "{said}");
}

#[test]
fn errors_in_the_file_are_reported_with_their_place() {
    let deep = format!("listen: {}{}", "[".repeat(70), "]".repeat(70));
    let table = [
        ("lisen: 127.0.0.1:0", "flowcell.yaml:1:1: unknown setting `lisen`", "did you mean `listen`?"),
        ("\nnothingLikeIt: 1", "flowcell.yaml:2:1: unknown setting `nothingLikeIt`", "the settings are listen"),
        ("check: true", "flowcell.yaml:1:1: unknown setting `check`", "help"),
        ("listen: here", "flowcell.yaml:1:9: `listen`: ", "invalid socket address"),
        ("maxConnections: 0", "flowcell.yaml:1:17: `maxConnections`: ", "0 is not in 1..="),
        ("listen: [a]", "flowcell.yaml:1:9: `listen`: ", "must be a text or a number"),
        ("packs: { a: b }", "flowcell.yaml:1:8: `packs`: ", "or a list of texts"),
        ("listen: a\nlisten: b", "flowcell.yaml:2:", "listen"),
        ("just text", "flowcell.yaml:1:1: ", "write a setting on a line"),
        (&*deep, "flowcell.yaml:1:", "lists and objects are nested deeper than 64; nest them less deep"),
    ];
    for (text, place, why) in table {
        let (code, said, told) = check(text, &[]);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{text}: {told}");
        assert!(told.contains(place) && told.contains(why), "{text}: {told}");
    }
    let (code, _, told) = check("packs: nowhere", &[]);
    assert!(code != Some(0) && told.contains("nowhere"), "{told}");
    assert_eq!(check("# nothing\n", &[]).0, Some(0));
    let (_, said, _) = check("store: mysql://someone:canary@127.0.0.1:1/db", &[]);
    assert!(said.contains(r#"store: "mysql://someone:***@127.0.0.1:1/db""#) && !said.contains("canary"), "{said}");
}

#[test]
fn the_check_says_that_the_server_would_refuse_other_machines_without_tokens() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("flows")).unwrap();
    fs::write(folder.path().join("flows/broken.yaml"), "nodes: 1\n").unwrap();
    let run = |arguments: &[&str]| {
        let output = output_of(folder.path(), &[&["serve"], arguments].concat());
        (output.status.code(), stderr(&output))
    };
    // Port 1 of all addresses: a server that does not refuse to start fails there for an ordinary user.
    let cases: [(&[&str], &str); 2] = [
        (&["--listen", "0.0.0.0:1"], "other machines can reach `0.0.0.0:1`"),
        (&["--listen", "127.0.0.1:1", "--trusted-proxy", "10.0.0.0/8"], "the proxy `10.0.0.0/8` forwards requests"),
    ];
    for (settings, why) in cases {
        for check in [&[][..], &["--check"]] {
            let (code, told) = run(&[settings, check].concat());
            assert_eq!(code, Some(2), "{told}");
            assert!(told.contains(why) && told.contains("flowcell token create NAME"), "{told}");
            // The check goes on to the flows.
            assert_eq!(told.contains("checked 1 flow"), !check.is_empty(), "{told}");
        }
    }
    fs::remove_file(folder.path().join("flows/broken.yaml")).unwrap();
    assert_eq!(output_of(folder.path(), &["tenant", "create", "acme"]).status.code(), Some(0));
    for (settings, _) in cases {
        let (code, told) = run(&[settings, &["--check"]].concat());
        assert_eq!(code, Some(0), "{told}");
        assert!(!told.contains("other machines"), "{told}");
    }
}

#[test]
fn a_server_does_not_start_with_a_key_of_secrets_that_it_cannot_use() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("kept/secret.key");
    fs::create_dir(folder.path().join("kept")).unwrap();
    fs::create_dir(folder.path().join("flows")).unwrap();
    let write = |path: &Path, text: &str, mode: u32| {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    write(&folder.path().join("short.key"), "0123", 0o600);
    write(&folder.path().join("open.key"), &"1".repeat(64), 0o644);
    write(&folder.path().join("good.key"), &"1".repeat(64), 0o600);
    write(&own, &"2".repeat(64), 0o640);
    let cases: [(&[&str], &str); 5] = [
        (&["--secret-key", "file:none.key"], "No such file"),
        (&["--secret-key", "file:good.key,env:FLOWCELL_TEST_UNSET"], "FLOWCELL_TEST_UNSET is not set"),
        (&["--secret-key", "file:short.key"], "write 64 hexadecimal digits"),
        (&["--secret-key", "file:open.key"], "other users may read it (mode 644)"),
        (&[], "other users may read it (mode 640)"),
    ];
    let commands = [&["serve", "--listen", "127.0.0.1:0"][..], &["serve", "--check"], &["drive", "--once"]];
    for (given, why) in cases {
        for command in commands {
            let output = output_of(folder.path(), &[command, &["--state", "kept"], given].concat());
            let (code, told) = (output.status.code(), stderr(&output));
            assert!(
                code == Some(2) && told.contains(why) && told.contains("--secret-key"),
                "{command:?} {given:?}: {told}"
            );
            assert!(!told.contains("0123"), "{told}");
        }
    }
    // A given key takes the place of the one beside the store.
    let checked = output_of(folder.path(), &["serve", "--check", "--state", "kept", "--secret-key", "file:good.key"]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
}

#[test]
fn a_check_warns_of_rules_whose_tenants_do_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(output_of(folder.path(), &["tenant", "create", "acme"]).status.code(), Some(0));
    let rules = "\
issuers:
- name: ci
  issuer: https://login.test
  audience: https://flows.test
  rules:
  - { when: { team: a }, tenant: acme, scopes: ['run:read'] }
  - { when: { team: b }, tenant: acne, scopes: ['run:read'] }
  - { when: { team: c }, tenant: acne, scopes: ['run:read'] }
";
    fs::write(folder.path().join("sign-in.yaml"), rules).unwrap();
    let checked = output_of(folder.path(), &["serve", "--check", "--sign-in", "sign-in.yaml"]);
    let told = stderr(&checked);
    assert_eq!(checked.status.code(), Some(0), "{told}");
    assert_eq!(told.matches("`acne`, which does not exist").count(), 1, "{told}");
    assert!(told.contains("the issuer `ci`") && !told.contains("`acme`, which"), "{told}");
}

#[test]
fn a_server_uses_the_settings_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("flowcell.yaml"), "name: flows.test\nstate: kept\n").unwrap();
    let (child, address) = serve(folder.path(), &["--config", "flowcell.yaml"]);
    let port = address.port();
    let host = format!("flows.test:{port}");
    assert_eq!(ask(address, "GET", "/v1/me", &[("Host", &host)], "").status, 200);
    let refused = ask(address, "GET", "/v1/me", &[("Host", &format!("other.test:{port}"))], "");
    assert_eq!(refused.fault(), (403, "foreign_host".into()));
    // A health check may ask under any name.
    assert_eq!(ask(address, "GET", "/healthz", &[("Host", "pod.test")], "").status, 200);
    assert!(folder.path().join("kept").is_dir());
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_flow_beside_the_folder_of_its_tenant_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("flows/.tenants/acme");
    fs::create_dir_all(own.join("flows")).unwrap();
    fs::write(own.join("lost.yaml"), "flow: { name: lost }\n").unwrap();
    fs::write(own.join("flows/good.yaml"), "flow: { name: good }\n").unwrap();
    let output = output_of(folder.path(), &["serve", "--check", "--flows", "flows"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = stderr(&output);
    let wanted =
        "does not read the flow `flows/.tenants/acme/lost.yaml`; move it to the folder `flows/.tenants/acme/flows`";
    assert!(told.contains(wanted) && !told.contains("good.yaml"), "{told}");
}
