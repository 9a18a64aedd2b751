//! Makes the incidents of the pages `runbook` and `runbook-outside` on a real server. Each is announced by its notification or
//! its alert, and ended by the commands of its page.

mod operators;
mod outside;
mod runs;

use std::{
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};

use super::notify::Hook;
use crate::{
    client::ask,
    kit::{Running, flowcell, has_program, output_of, root, stderr, stdout},
    server::process::serve,
};

/// The number of checks after which the test stops waiting for a state.
const MAX_TRIES: usize = 100_000;
/// The minutes for which a series of an alert's test has one value.
const MINUTES: usize = 60;

/// Returns the commands of a section of the two pages.
fn commands(section: &str) -> Vec<&'static str> {
    let heading = format!("\n## {section}\n");
    let pages = ["runbook", "runbook-outside"].map(|topic| flowcell_server::manual::page(topic).unwrap().text);
    let found = pages.iter().find_map(|page| Some(page.split_once(&heading)?.1));
    let text = found.unwrap_or_else(|| panic!("no section {section}")).split("\n## ").next().unwrap();
    let commands: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(!commands.is_empty(), "{section}");
    commands
}

/// Runs the commands of a section beside the server, with its words in capital letters replaced. Returns their outputs.
#[track_caller]
fn follow(folder: &Path, section: &str, words: &[(&str, &str)], environment: &[(&str, &str)]) -> Vec<Output> {
    let run = |command: &str| {
        let words_of = command.split(' ').skip(1);
        let arguments = words_of.map(|word| words.iter().find(|(name, _)| *name == word).map_or(word, |(_, own)| own));
        let output = flowcell(folder).args(arguments).envs(environment.iter().copied()).output().unwrap();
        // 3: the run waits.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{command}: {}", stderr(&output));
        output
    };
    commands(section).into_iter().map(run).collect()
}

fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let answer = ask(address, "POST", path, &[], &body.to_string());
    (answer.status, answer.json())
}

fn status(address: SocketAddr, run: &str) -> String {
    let run = ask(address, "GET", &format!("/v1/runs/{run}"), &[], "").json();
    run["status"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn wait_until(what: &str, mut is_there: impl FnMut() -> bool) {
    assert!((0..MAX_TRIES).any(|_| is_there()), "never: {what}");
}

fn kill(mut child: Running) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Runs a command that must succeed. Returns its output.
#[track_caller]
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Creates a tenant. Returns the header with its token.
fn tenant(folder: &Path, name: &str) -> String {
    done(folder, &["tenant", "create", name]);
    token(folder, &[name])
}

/// Creates a token. Returns the header with it.
fn token(folder: &Path, arguments: &[&str]) -> String {
    let created: Value = serde_json::from_str(&done(folder, &[&["token", "create"], arguments].concat())).unwrap();
    format!("Bearer {}", created["token"].as_str().unwrap())
}

/// A receiver of all notifications of a server.
struct Person(Hook);

impl Person {
    /// Lets the servers of a folder that are started with [`Person::serve`] tell this person.
    fn beside(folder: &Path) -> Person {
        let hook = Hook::good();
        fs::write(folder.join("notify.yaml"), format!("targets:\n{}", hook.target("ops", ""))).unwrap();
        Person(hook)
    }

    /// Starts a server that tells a person.
    fn serve(folder: &Path, arguments: &[&str]) -> (Running, SocketAddr) {
        serve(folder, &[&["--notify", "notify.yaml"], arguments].concat())
    }

    /// Waits for a notification of this kind, with these members. Others may come before it.
    #[track_caller]
    fn hears(&self, kind: &str, members: &[(&str, &str)]) {
        let told = loop {
            let (_, message) = self.0.next();
            if message["kind"] == kind {
                break message;
            }
        };
        members.iter().for_each(|(name, value)| assert_eq!(told[name], *value, "{told}"));
    }
}

/// Returns the metrics of a server as Prometheus reads them. `header` has the token of the operators, if the server needs
/// one.
fn scrape(address: SocketAddr, header: Option<&str>) -> String {
    let headers: Vec<_> = header.iter().map(|header| ("Authorization", *header)).collect();
    let mut metrics = None;
    // While the store is away, the server may answer that it cannot check who asks.
    wait_until("the metrics", || {
        let answer = ask(address, "GET", "/metrics", &headers, "");
        assert!(matches!(answer.status, 200 | 503), "{answer:?}");
        metrics = (answer.status == 200).then_some(answer.body);
        metrics.is_some()
    });
    metrics.unwrap()
}

/// Creates a token that reads all metrics. Returns its header.
fn metrics_token(folder: &Path) -> String {
    token(folder, &["--operator", "--scopes", "metrics:read"])
}

/// Waits until a server has a series with this text. Returns its metrics.
#[track_caller]
fn scrape_with(address: SocketAddr, header: Option<&str>, series: &str) -> String {
    let mut text = String::new();
    wait_until(series, || {
        text = scrape(address, header);
        text.lines().any(|line| line.contains(series))
    });
    text
}

/// Waits until a series of a server has at least this value. Returns the metrics.
#[track_caller]
fn scrape_above(address: SocketAddr, series: &str, least: f64) -> String {
    let mut text = String::new();
    wait_until(series, || {
        text = scrape(address, None);
        value_of(&text, series).is_some_and(|value| value >= least)
    });
    text
}

/// Returns the value of a series in metrics.
fn value_of(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

/// Waits until a server has no series with this text. Returns its metrics.
#[track_caller]
fn scrape_without(address: SocketAddr, header: Option<&str>, series: &str) -> String {
    let mut text = String::new();
    wait_until(&format!("nothing of {series}"), || {
        text = scrape(address, header);
        text.lines().all(|line| !line.contains(series))
    });
    text
}

/// Asserts that an alert fires while a server has the last of these metrics, and not before. Each of them lasts for an hour.
/// `None` stands for a server that does not answer.
#[track_caller]
fn assert_fires(alert: &str, scrapes: &[Option<&str>]) {
    assert_alert(alert, scrapes, &[(scrapes.len(), true), (scrapes.len() - 1, false)]);
}

/// Asserts that an alert does not fire any more while a server has the last of these metrics.
#[track_caller]
fn assert_ended(alert: &str, scrapes: &[Option<&str>]) {
    assert_alert(alert, scrapes, &[(scrapes.len(), false)]);
}

/// Lets `promtool` apply the rules to metrics, and asserts for the hours of some of them whether an alert fires.
#[track_caller]
fn assert_alert(alert: &str, scrapes: &[Option<&str>], expected: &[(usize, bool)]) {
    if !has_program("promtool") {
        return;
    }
    let rules: PathBuf = root().join("host/server/alerts/flowcell.rules.yml");
    assert!(fs::read_to_string(&rules).unwrap().contains(&format!("alert: {alert}\n")), "the rules lack {alert}");
    let mut text = format!("rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n", rules.display());
    text += "  - interval: 1m\n    input_series:\n";
    for (series, values) in series(scrapes) {
        writeln!(text, "      - {{ series: '{}', values: '{values}' }}", series.replace('\'', "''")).unwrap();
    }
    text += "    promql_expr_test:\n";
    for (hour, fires) in expected.iter().filter(|(hour, _)| *hour > 0) {
        // The first minutes of the hour are left out: there, series of the hour before still count.
        let minutes = MINUTES - 10;
        let expression =
            format!("max(max_over_time(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}[{minutes}m]))");
        writeln!(text, "      - expr: '{expression}'\n        eval_time: {}m", hour * MINUTES - 1).unwrap();
        writeln!(text, "        exp_samples: {}", if *fires { "[{ labels: '{}', value: 1 }]" } else { "[]" }).unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &text).unwrap();
    let output = Command::new("promtool").args(["test", "rules"]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{alert}: {expected:?}\n{}{}\n{text}", stdout(&output), stderr(&output));
}

/// Returns the series of metrics with their values over time, in the notation of `promtool`.
fn series(scrapes: &[Option<&str>]) -> Vec<(String, String)> {
    let samples: Vec<Vec<(&str, &str)>> = scrapes
        .iter()
        .map(|scrape| {
            let lines = scrape.unwrap_or_default().lines().filter(|line| line.starts_with("flowcell_"));
            let pairs = lines.filter(|line| !line.contains("_bucket")).filter_map(|line| line.rsplit_once(' '));
            pairs.collect()
        })
        .collect();
    let mut names: Vec<&str> = samples.iter().flatten().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    let up = scrapes.iter().map(|scrape| format!("{}+0x{}", u8::from(scrape.is_some()), MINUTES - 1));
    let up = up.collect::<Vec<_>>().join(" ");
    let mut all = vec![("up{job=\"flowcell\",instance=\"here\"}".to_owned(), up)];
    for name in names {
        let values = samples.iter().map(|samples| match samples.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => format!("{value}+0x{}", MINUTES - 1),
            None => format!("_x{MINUTES}"),
        });
        let labelled = match name.strip_suffix('}') {
            // A series without labels may have empty braces.
            Some(rest) if rest.ends_with('{') => format!("{rest}job=\"flowcell\",instance=\"here\"}}"),
            Some(rest) => format!("{rest},job=\"flowcell\",instance=\"here\"}}"),
            None => format!("{name}{{job=\"flowcell\",instance=\"here\"}}"),
        };
        all.push((labelled, values.collect::<Vec<_>>().join(" ")));
    }
    all
}

/// A flow that fails by itself.
fn fails(name: &str, code: &str) -> Value {
    json!({
        "flow": { "name": name },
        "nodes": [{ "id": "no", "type": "control.fail", "input": { "message": "no", "code": code } }],
    })
}
