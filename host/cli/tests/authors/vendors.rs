//! Tests the packs in `nodes/examples` for servers and documents of others, as their authors would use them: in a project
//! outside of this tree. First a published SDK of the vendor accepts the server of the test, or writes the document.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    authors::{
        javascript::tsc,
        language::{Language, copy, done, flowcell, npm_install, project},
    },
    kit,
    outside::server::{Seen, Server, answer},
};

const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
/// The part of the tokens of Slack that no output may have.
const CANARY: &str = "kanarienvogel-7-geheim";

/// Creates a project with the files of an example, and copies its flow beside them.
fn example(name: &str, language: Language, flow: &str) -> (TempDir, PathBuf) {
    let (folder, project) = project(name, language);
    copy(&kit::root().join("nodes/examples").join(name), &project);
    for file in [format!("{flow}.yaml"), format!("{flow}.test.yaml")] {
        fs::copy(kit::root().join("flows/packs").join(&file), project.join(&file)).unwrap();
    }
    (folder, project)
}

/// Builds the pack, and runs its cases and those of its flow.
fn check(project: &Path, flow: &str, more: &[&str]) {
    done(flowcell(project).args(["node", "test"]).args(more));
    done(flowcell(project).args(["test", flow, "--packs", "dist"]).args(more));
}

/// Replaces a part of a file.
fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{} has no `{from}`", file.display());
    fs::write(file, text.replace(from, to)).unwrap();
}

/// Runs the flow with access to a server. Returns its outputs.
fn run(project: &Path, flow: &str, server: &Server, more: &[&str]) -> Value {
    let mut command = flowcell(project);
    command.args(["run", flow, "--quiet", "--packs", "dist", "--allow-private", &server.address.to_string()]);
    serde_json::from_str(&done(command.args(more))).unwrap()
}

/// Returns what the SDK of a vendor, a package of npm, understands of a server. `None`: the SDK is not installed.
fn ask_sdk(package: &str, name: &str, address: &str) -> Option<Value> {
    if !kit::has_program("node") {
        return None;
    }
    // Packages lie beside the programs of their package manager.
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&paths).filter_map(|folder| folder.parent().map(Path::to_owned));
    let Some(modules) = folders.find(|folder| folder.join(package).is_dir()) else {
        kit::skip_without(package);
        return None;
    };
    let script = kit::root().join("host/cli/tests/authors/vendors/sdks.mjs");
    let told = done(Command::new("node").arg(script).arg(modules).args([name, address]));
    Some(serde_json::from_str(&told).unwrap())
}

/// Returns the path of a request, and the values of its query or its form.
fn asked(seen: &Seen) -> (String, Vec<(String, String)>) {
    let target = seen.head.split(' ').nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, &seen.body));
    (path.to_owned(), url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
}

fn value<'a>(values: &'a [(String, String)], name: &str) -> &'a str {
    values.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value.as_str())
}

/// Answers as the Web API of Slack. A refresh token counts once, and an access token until there is a newer one.
fn slack(seen: &Seen, tokens: &AtomicUsize) -> String {
    let (path, form) = asked(seen);
    let token = |number: usize| format!("xoxe.xoxb-1-{number}-{CANARY}");
    let current = tokens.load(Ordering::SeqCst);
    let is_known = seen.header("authorization") == Some(&*format!("Bearer {}", token(current)));
    let refused = |error: &str| json!({ "ok": false, "error": error });
    let told = match (&*path, value(&form, "channel")) {
        ("/api/oauth.v2.access", _) => {
            let proof = ["client_id", "client_secret", "grant_type", "refresh_token"].map(|name| value(&form, name));
            let newest = format!("xoxe-1-{current}");
            if proof == ["flowcell", "client-secret", "refresh_token", &newest] {
                let next = tokens.fetch_add(1, Ordering::SeqCst) + 1;
                json!({ "ok": true, "app_id": "A1", "access_token": token(next), "token_type": "bot",
                    "refresh_token": format!("xoxe-1-{next}"), "expires_in": 43_200, "team": { "id": "T1" } })
            } else {
                refused("invalid_refresh_token")
            }
        }
        _ if !is_known => refused("invalid_auth"),
        ("/api/conversations.list", _) => {
            let all = ["general", "random", "nowhere", "busy", "echo"];
            let at: usize = value(&form, "cursor").parse().unwrap_or(0);
            // Slack may return fewer channels than the limit.
            let end = (at + 2).min(all.len());
            let channel = |name: &&str| json!({ "id": name, "name": name, "is_private": name.starts_with('n') });
            let next = if end < all.len() { end.to_string() } else { String::new() };
            json!({ "ok": true, "channels": all[at..end].iter().map(channel).collect::<Vec<_>>(),
                "response_metadata": { "next_cursor": next } })
        }
        ("/api/chat.postMessage", "nowhere") => refused("channel_not_found"),
        ("/api/chat.postMessage", "busy") => {
            let headers = [JSON, ("retry-after", "7")];
            return answer("429 Too Many Requests", &headers, &refused("ratelimited").to_string());
        }
        ("/api/chat.postMessage", "echo") => refused(seen.header("authorization").unwrap()),
        ("/api/chat.postMessage", channel) => json!({ "ok": true, "channel": channel, "ts": "1700000000.000100" }),
        _ => refused("unknown_method"),
    };
    answer("200 OK", &[JSON], &told.to_string())
}

#[test]
fn slack_with_a_token_that_the_host_renews() {
    if !Language::Ts.is_there("slack") {
        return;
    }
    let tokens = AtomicUsize::new(0);
    let server = Server::start(move |seen, _| slack(seen, &tokens));
    let origin = server.origin();
    let Some(told) = ask_sdk("@slack/web-api", "slack", &origin) else { return };
    let platform = |error: &str| json!({ "code": "slack_webapi_platform_error", "error": error });
    assert_eq!((&told["unknown"], &told["stranger"]), (&platform("channel_not_found"), &platform("invalid_auth")));
    assert_eq!(told["busy"], json!({ "code": "slack_webapi_rate_limited_error", "retryAfter": 7 }));

    // The server of this test takes the place of Slack.
    let (_folder, project) = example("slack", Language::Ts, "announce");
    for file in ["nodes.ts", "cases/slack.yaml", "announce.yaml", "announce.test.yaml"] {
        replace(&project.join(file), "https://slack.com", &origin);
    }
    replace(&project.join("node.yaml"), "hosts: [slack.com]", &format!("hosts: ['{origin}']"));
    let mut set = flowcell(&project);
    set.args(["credential", "set", "slack", "--kind", "oauth2", "--for", &origin, "--set", "grant=refresh_token"]);
    set.args(["--set", &format!("tokenUrl={origin}/api/oauth.v2.access"), "--set", "clientId=flowcell"]);
    set.args(["--set", "clientAuth=post", "--from-env", "SECRET", "--secret", "refreshToken=env:REFRESH"]);
    done(set.env("SECRET", "client-secret").env("REFRESH", told["refresh"].as_str().unwrap()));
    if let Some(tsc) = tsc("slack") {
        done(Command::new(tsc).current_dir(&project));
    }
    let address = server.address.to_string();
    check(&project, "announce.yaml", &["--allow-private", &address]);
    let before = server.seen().len();
    let posted = run(&project, "announce.yaml", &server, &["-i", "channel=random", "-i", "text=Grüße & more"]);
    assert_eq!(posted, json!({ "channel": "random", "message": told["posted"]["message"] }));
    let sent: Vec<_> = server.seen().split_off(before);
    let paths: Vec<_> = sent.iter().map(|seen| asked(seen).0).collect();
    let list = "/api/conversations.list";
    assert_eq!(paths, ["/api/oauth.v2.access", list, list, list, "/api/chat.postMessage"]);
    let bearer = format!("Bearer xoxe.xoxb-1-2-{CANARY}");
    assert!(sent[1..].iter().all(|seen| seen.header("authorization") == Some(bearer.as_str())), "{sent:?}");
    assert_eq!(value(&asked(&sent[4]).1, "text"), "Grüße & more");

    // A refusal with the token in it reveals nothing: neither the failure of the node nor the record of the call.
    let mut command = flowcell(&project);
    command.args(["run", "announce.yaml", "--packs", "dist", "--run-id", "echo", "-i", "channel=echo"]);
    let output = command.args(["--allow-private", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", kit::stderr(&output));
    let events = kit::events(&project, "echo").into_iter().map(|event| event.to_string()).collect::<String>();
    let all = [kit::stdout(&output), kit::stderr(&output), events].concat();
    assert!(all.contains("Slack refuses chat.postMessage: Bearer [key]") && !all.contains(CANARY), "{all}");
}

const FEED: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0"><channel><title>Flows &amp; more</title>
<item><title>Grüße</title><link>https://example.com/1</link><guid isPermaLink="false">item-1</guid>
<pubDate>Sun, 29 Nov 2026 08:00:00 +0100</pubDate><description><![CDATA[<p>Hello <b>you</b></p>]]></description></item>
<item><title>Second</title><link>https://example.com/2</link></item></channel></rss>"#;

#[test]
fn a_feed_is_read_as_by_its_package_in_node() {
    if !Language::Js.is_there("feeds") {
        return;
    }
    let server = Server::start(|_, _| answer("200 OK", &[("content-type", "application/rss+xml")], FEED));
    let Some(told) = ask_sdk("rss-parser", "feeds", &format!("{}/feed.xml", server.origin())) else { return };
    let (folder, project) = example("feeds", Language::Js, "news");
    fs::remove_dir_all(project.join("node_modules")).unwrap();
    npm_install(&project);
    check(&project, "news.yaml", &[]);
    // Others get the pack, so it names no folder of its author.
    let pack = fs::read(project.join("dist/feeds.wasm")).unwrap();
    let name = folder.path().file_name().unwrap().to_string_lossy();
    assert!(!String::from_utf8_lossy(&pack).contains(&*name), "the pack names its folder");
    replace(&project.join("news.yaml"), "https://example.com", &server.origin());
    let link = |item: &Value| format!("- [{}]({})\n", item["title"].as_str().unwrap(), item["link"].as_str().unwrap());
    let links: String = told["items"].as_array().unwrap().iter().map(link).collect();
    assert!(links.starts_with("- [Grüße](https://example.com/1)\n- [Second]"), "{links}");
    let expected = format!("# {}\n\n{links}", told["title"].as_str().unwrap());
    assert_eq!(run(&project, "news.yaml", &server, &[]), json!({ "text": expected }));
}

/// Answers as the REST API of GitHub: the first page is at the name of the repository, the others at its number.
fn issues(seen: &Seen) -> String {
    let (path, query) = asked(seen);
    if !["/repos/acme/shop/issues", "/repositories/7/issues"].contains(&&*path) {
        return answer("404 Not Found", &[JSON], r#"{"message":"Not Found"}"#);
    }
    let page: usize = value(&query, "page").parse().unwrap_or(1);
    let origin = format!("http://{}", seen.header("host").unwrap());
    let link = |page: usize, rel: &str| format!("<{origin}/repositories/7/issues?page={page}>; rel=\"{rel}\"");
    let links = match page {
        1 => [link(2, "next"), link(3, "last")].join(", "),
        2 => [link(1, "prev"), link(3, "next"), link(3, "last"), link(1, "first")].join(", "),
        _ => [link(2, "prev"), link(1, "first")].join(", "),
    };
    let issue = |number: usize| json!({ "number": number, "title": format!("Issue {number}, \"next\"") });
    let listed = json!([issue(8 - 2 * page), issue(7 - 2 * page)]);
    answer("200 OK", &[JSON, ("link", &links)], &listed.to_string())
}

#[test]
fn pages_of_an_api_are_read_as_by_the_sdk_of_github() {
    if !Language::Js.is_there("pages") {
        return;
    }
    let server = Server::start(|seen, _| issues(seen));
    let Some(told) = ask_sdk("@octokit/core", "pages", &server.origin()) else { return };
    let (_folder, project) = example("pages", Language::Js, "issues");
    check(&project, "issues.yaml", &[]);
    replace(&project.join("issues.yaml"), "https://api.github.com", &server.origin());
    let title = |item: &Value| format!("#{} {}", item["number"], item["title"].as_str().unwrap());
    let titles: Vec<_> = told["items"].as_array().unwrap().iter().map(title).collect();
    assert_eq!(titles.len(), 6);
    let listed = run(&project, "issues.yaml", &server, &["-i", "repository=acme/shop"]);
    assert_eq!(listed, json!({ "titles": titles, "complete": true }));
}

#[test]
fn a_document_larger_than_the_memory_of_the_node_is_read_as_by_its_package_in_cpython() {
    if !Language::Python.is_there("pdf") || !kit::has_program("python3") {
        return;
    }
    let (_folder, project) = example("pdf", Language::Python, "letter");
    let script = kit::root().join("host/cli/tests/authors/vendors/document.py");
    let written = Command::new("python3").arg(script).arg(&project).output().unwrap();
    if kit::stderr(&written).contains("No module named 'pypdf'") {
        return kit::skip_without("pypdf");
    }
    let pages: Vec<String> = serde_json::from_slice(&written.stdout).unwrap_or_else(|_| panic!("{written:?}"));
    assert!(fs::metadata(project.join("letter.pdf")).unwrap().len() > 64 << 20);
    check(&project, "letter.yaml", &[]);
    let mut command = flowcell(&project);
    command.args(["run", "letter.yaml", "--quiet", "--packs", "dist", "-i", "file=@letter.pdf", "-i", "word=in"]);
    let found: Value = serde_json::from_str(&done(&mut command)).unwrap();
    let lines: Vec<_> = pages.iter().flat_map(|page| page.lines()).filter(|line| line.contains("in")).collect();
    assert_eq!(lines, ["it rains in Köln (again).", "Greetings to Ada,"]);
    assert_eq!(found, json!({ "pages": pages.len(), "lines": lines }));

    // A small document whose page fills the memory ends its node alone.
    let bomb = project.join("bomb.pdf");
    assert!(fs::metadata(&bomb).unwrap().len() < 1 << 20);
    let arguments = ["node", "run", "pdf.text", "--json", "--quiet", "--packs", "dist", "-i", "file=@bomb.pdf"];
    let bombed = flowcell(&project).args(arguments).output().unwrap();
    let told: Value = serde_json::from_slice(&bombed.stdout).unwrap_or_else(|_| panic!("{}", kit::stderr(&bombed)));
    assert_eq!(told["error"]["code"], "out_of_memory", "{told}");
}
