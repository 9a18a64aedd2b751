//! Tests flows that are run by their names, and the log of their steps, even after a crash.

use std::{collections::BTreeSet, fs, path::Path};

use flowcell::{
    FlowError, FlowService, Host, Json, LibraryError, RunOptions, RunResult, RunStatus, StartError, StepLine,
};
use serde_json::{Value, json};

use crate::kit;

const RANGE: &str = r#"{ "start_date": "2025-10-01", "end_date": "2025-10-31" }"#;

fn service() -> (tempfile::TempDir, FlowService) {
    let folder = tempfile::tempdir().unwrap();
    let flows = folder.path().join("flows");
    fs::create_dir(&flows).unwrap();
    fs::copy(kit::root().join("flows/example_report.json"), flows.join("example_report.json")).unwrap();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let host = Host::builder().cache_dir(cache).instances(4).build().unwrap();
    (folder, FlowService::open(host, flows))
}

fn run(flows: &FlowService, name: &str, inputs: &str) -> Result<RunResult, FlowError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(flows.run_flow(name, Json::parse(inputs).unwrap(), RunOptions::default()))
}

fn create(flows: &FlowService, name: &str, steps: Value) {
    flows.create_flow(&json!({ "name": name, "steps": steps }).to_string()).unwrap();
}

#[test]
fn the_example_gives_a_report_and_a_line_for_each_step() {
    let (folder, flows) = service();
    let result = run(&flows, "example_report", RANGE).unwrap();
    assert_eq!((result.status, &result.error), (RunStatus::Succeeded, &None));
    let report = r#"{"summary":"2025-10-01: 85; 2025-10-01: 86; 2025-10-31: 90","words":6}"#;
    assert_eq!(result.outputs.to_text(), report);

    let log = fs::read_to_string(folder.path().join("tool_logs/flow_example_report.jsonl")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    let keys: Vec<_> = lines[0].as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "flow_run_id",
        "flow_name",
        "step_id",
        "tool_name",
        "status",
        "params",
        "result_summary",
        "error",
        "timestamp",
    ];
    assert_eq!(keys, expected);
    assert_eq!(lines[0]["params"], serde_json::from_str::<Value>(RANGE).unwrap());
    assert_eq!((&lines[1]["step_id"], &lines[1]["tool_name"]), (&json!("summarize"), &json!("summarize_text")));
    assert_eq!((&lines[1]["status"], &lines[1]["result_summary"]), (&json!("success"), &json!(report)));
    assert_eq!((&lines[1]["error"], &lines[1]["flow_run_id"]), (&json!(null), &json!(result.run_id.as_str())));

    let runs = flows.get_flow_runs("example_report", 20).unwrap();
    assert_eq!(serde_json::to_value(&runs).unwrap(), Value::from(lines.clone()));
    assert_eq!(serde_json::to_value(flows.get_flow_runs("example_report", 1).unwrap()).unwrap()[0], lines[1]);
}

#[test]
fn missing_inputs_and_flows_are_refused_before_anything_runs() {
    let (folder, flows) = service();
    let refused = run(&flows, "example_report", r#"{ "start_date": "2025-10-01" }"#).unwrap_err();
    assert!(matches!(refused, FlowError::Start(StartError::Input(_))), "{refused}");
    assert!(refused.to_string().contains("end_date"), "{refused}");
    assert!(!folder.path().join("tool_logs").exists());
    let unknown = run(&flows, "nothing", "{}").unwrap_err();
    assert!(matches!(unknown, FlowError::Library(LibraryError::Unknown(_))), "{unknown}");
    assert!(matches!(flows.get_flow_runs("nothing", 20), Err(FlowError::Library(LibraryError::Unknown(_)))));
    assert!(matches!(flows.get_flow_runs("../x", 20), Err(FlowError::Library(LibraryError::BadName(_)))));
    assert_eq!(flows.get_flow_runs("example_report", 20).unwrap(), [], "nothing has run");
}

#[test]
fn a_flow_stops_at_the_first_step_that_fails() {
    let (_folder, flows) = service();
    let noop = |id: &str, value: Value| json!({ "id": id, "tool": "control.noop", "params": { "value": value } });
    create(
        &flows,
        "fails",
        json!([
            noop("first", json!("x")),
            { "id": "second", "tool": "control.fail", "params": { "message": "no more" }, "save_as": "never" },
            noop("third", json!("$ctx.never")),
        ]),
    );
    let result = run(&flows, "fails", "{}").unwrap();
    assert_eq!(result.status, RunStatus::Failed);
    let lines = flows.get_flow_runs("fails", 20).unwrap();
    let told: Vec<_> = lines.iter().map(|line| (line.step_id.as_str(), line.status.as_str())).collect();
    assert_eq!(told, [("first", "success"), ("second", "error")]);
    assert_eq!(lines[1].params, json!({ "message": "no more" }));
    assert!(lines[1].error.as_ref().unwrap().contains("no more"), "{lines:?}");
    assert_eq!(lines[1].result_summary, None);
}

#[test]
fn a_reference_to_nothing_fails_its_step_with_its_name() {
    let (_folder, flows) = service();
    create(
        &flows,
        "missing",
        json!([
            { "id": "one", "tool": "control.noop", "params": { "value": { "a": 1 } } },
            { "id": "two", "tool": "data.set", "params": { "object": { "kept": "yes" }, "path": "x", "value": "$ctx.one.value.b" } },
        ]),
    );
    let result = run(&flows, "missing", "{}").unwrap();
    let error = result.error.unwrap().failure;
    assert_eq!((&*error.code, error.message.contains("`$ctx.one.value.b`")), ("binding_error", true), "{error}");
    let line = flows.get_flow_runs("missing", 1).unwrap().remove(0);
    assert_eq!((line.step_id.as_str(), line.status.as_str()), ("two", "error"));
    assert_eq!(line.params, json!({ "object": { "kept": "yes" }, "path": "x" }), "what could be computed");
    assert!(line.error.unwrap().contains("$ctx.one.value.b"));
}

#[test]
fn literals_reach_the_tool_as_they_are_and_large_values_are_cut_in_the_log() {
    let (_folder, flows) = service();
    let literal = json!({ "a": "{{ flow.input.x }} {% raw %} $ctx.b c", "b": ["$ctx", null, 1.5, "{"], "{{": "}}" });
    let long = "ä".repeat(20_000);
    create(
        &flows,
        "literal",
        json!([
            { "id": "small", "tool": "control.noop", "params": { "value": literal } },
            { "id": "large", "tool": "control.noop", "params": { "value": long } },
            { "id": "last", "tool": "control.noop", "params": { "value": "$ctx.small.value" } },
        ]),
    );
    let result = run(&flows, "literal", "{}").unwrap();
    assert_eq!(result.outputs.to_serde(), json!({ "value": literal }));
    let lines = flows.get_flow_runs("literal", 3).unwrap();
    assert_eq!(lines[0].params, json!({ "value": literal }));
    assert_eq!(lines[1].params.as_str().unwrap().chars().count(), 1_001);
    assert_eq!(lines[1].result_summary.as_ref().unwrap().chars().count(), 1_001);
}

#[test]
fn a_log_is_read_from_its_end_and_survives_a_torn_line() {
    let (folder, flows) = service();
    for _ in 0..3 {
        run(&flows, "example_report", RANGE).unwrap();
    }
    let file = folder.path().join("tool_logs/flow_example_report.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    assert_eq!(flows.get_flow_runs("example_report", 100).unwrap().len(), 5);
    let result = run(&flows, "example_report", RANGE).unwrap();
    let lines = flows.get_flow_runs("example_report", 100).unwrap();
    assert_eq!(lines.len(), 7);
    assert!(lines[5..].iter().all(|line| line.flow_run_id == result.run_id.as_str()));
    // Far more than one read.
    let many: String = std::iter::repeat_n(whole.as_str(), 300).collect();
    fs::write(&file, many).unwrap();
    assert_eq!(flows.get_flow_runs("example_report", 1_000).unwrap().len(), 1_000);
    flows.library().delete("example_report").unwrap();
    assert_eq!(flows.get_flow_runs("example_report", 5).unwrap().len(), 5, "the log outlives its flow");
}

#[cfg(unix)]
#[test]
fn only_their_owner_can_read_logs_and_stored_flows() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, flows) = service();
    let steps = json!([{ "id": "a", "tool": "control.noop", "params": { "value": 1 } }]);
    create(&flows, "mine", steps);
    let changed = json!({ "name": "mine", "steps": [{ "id": "b", "tool": "control.noop", "params": {} }] });
    let host = Host::builder().cache_dir(kit::CACHE).instances(1).build().unwrap();
    flows.library().append(&host, &changed.to_string()).unwrap();
    run(&flows, "mine", "{}").unwrap();
    for (path, mode) in [
        ("tool_logs", 0o700),
        ("tool_logs/flow_mine.jsonl", 0o600),
        ("flows/mine.json", 0o600),
        ("flows/.versions/mine/1.json", 0o600),
        ("flows/.versions/.lock", 0o600),
    ] {
        let found = folder.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{path} has mode {found:o}");
    }
}

fn flowcell(folder: &Path, arguments: &[&str]) -> String {
    let output = kit::output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", kit::stderr(&output));
    kit::stdout(&output)
}

#[test]
fn the_command_line_stores_and_runs_flows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let example = kit::root().join("flows/example_report.json");
    let example = example.to_str().unwrap();
    assert_eq!(flowcell(folder, &["--list-flows"]), "");
    assert_eq!(flowcell(folder, &["flows", "create", example]), "flows/example_report.json\n");
    let again = kit::output_of(folder, &["flows", "create", example]);
    assert_eq!(again.status.code(), Some(2), "{}", kit::stderr(&again));
    let listed = "example_report  v1  Makes data up for a range of days and sums it up\n";
    assert_eq!(flowcell(folder, &["--list-flows"]), listed);
    assert_eq!(flowcell(folder, &["flows", "list"]), listed);
    assert_eq!(flowcell(folder, &["flows", "show", "example_report"]), fs::read_to_string(example).unwrap());

    let dates = ["-i", "start_date=2025-10-01", "-i", "end_date=2025-10-31"];
    let output = flowcell(folder, &[&["flows", "run", "example_report", "-q"], &dates[..]].concat());
    assert_eq!(serde_json::from_str::<Value>(&output).unwrap()["words"], 6);
    let named = kit::flowcell(folder).env("RUN_FLOW", "example_report").env("RUN_FLOW_INPUTS", RANGE).output().unwrap();
    assert_eq!(kit::stdout(&named), output, "{}", kit::stderr(&named));
    let without = kit::flowcell(folder).env("RUN_FLOW", "example_report").output().unwrap();
    assert_eq!(without.status.code(), Some(2), "{}", kit::stderr(&without));
    assert_eq!(flowcell(folder, &["flows", "runs", "example_report"]).lines().count(), 4);
    assert_eq!(flowcell(folder, &["flows", "delete", "example_report"]), "example_report\n");
    assert_eq!(flowcell(folder, &["flows", "list", "--json"]), "[]\n");
}

/// Every step has one line in the end, however early a process is killed.
#[test]
fn a_step_is_logged_once_though_its_process_is_killed() {
    let command = |folder: &Path| {
        let mut command = kit::flowcell(folder);
        command.args(["flows", "run", "example_report", "--run-id", "r", "-q", "--inputs", RANGE]);
        command
    };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("flows")).unwrap();
    let example = kit::root().join("flows/example_report.json");
    fs::copy(&example, folder.path().join("flows/example_report.json")).unwrap();
    let events = kit::stdout(&command(folder.path()).args(["--channel", "jsonl:-"]).output().unwrap()).lines().count();
    assert!(events > 8, "only {events} events");
    for count in 1..events {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("flows")).unwrap();
        fs::copy(&example, folder.path().join("flows/example_report.json")).unwrap();
        kit::killed_after(command(folder.path()).args(["--channel", "jsonl:-"]), count);
        // Twice, because the first command may only find that the run has ended.
        for _ in 0..2 {
            let output = command(folder.path()).output().unwrap();
            assert!(output.status.success(), "after {count} events: {}", kit::stderr(&output));
        }
        let log = fs::read_to_string(folder.path().join("tool_logs/flow_example_report.jsonl")).unwrap();
        let lines: Vec<StepLine> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let steps: BTreeSet<_> = lines.iter().map(|line| line.step_id.as_str()).collect();
        assert_eq!((lines.len(), steps), (2, ["fetch", "summarize"].into()), "after {count} events: {log}");
    }
}

#[test]
fn valid_flows_fit_the_schema_for_editors() {
    let folder = tempfile::tempdir().unwrap();
    let schema: Value = serde_json::from_str(&flowcell(folder.path(), &["schema", "--dialect", "steps"])).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let cases = |name: &str| {
        let paths = fs::read_dir(kit::root().join("host/flow/tests/steps").join(name)).unwrap();
        let paths = paths.map(|entry| entry.unwrap().path());
        let flows = paths.filter(|path| path.extension().is_some_and(|ending| ending == "yaml" || ending == "json"));
        flows
            .map(|path| (path.clone(), serde_yaml::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap()))
            .collect()
    };
    let sound: Vec<_> = cases("valid");
    assert!(sound.len() >= 5);
    for (path, flow) in sound {
        let errors: Vec<_> = schema.iter_errors(&flow).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
    }
    let unfit: Vec<_> = cases("invalid").into_iter().filter(|(_, flow)| !schema.is_valid(flow)).collect();
    assert_eq!(unfit.len(), 7, "keys, types, name, no-name, no-steps, one-step, steps-by-name");
}
