//! Tests the commands of script authors: `inspect`, `validate`, `run`, `test` and resuming.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{flowcell, killed_after, output_of, stderr, stdout};

const SUM: &str = "\
console.log('it is read');

export function setup(flow) {
  flow.title('Sum');
  flow.description('Adds numbers up');
  flow.inJson('numbers', 'Numbers');
  flow.inText('note', { optional: true });
  flow.outText('text', 'Text');
}

export async function run(services) {
  const sum = services.inputs.numbers.reduce((a, b) => a + b, 0);
  console.log('sum', sum);
  if (sum < 0) throw new RangeError('negative');
  services.outputs('text', `${services.input('note') ?? 'sum'}: ${sum}`);
  return sum;
}
";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn json_of(folder: &Path, arguments: &[&str], code: i32) -> Value {
    let output = output_of(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn inspect_prints_the_declarations_of_a_script() {
    let folder = folder(&[
        ("sum.flow.js", SUM),
        ("other.yaml", "flow: { name: other }\nnodes: [{ id: a, type: control.noop }]"),
    ]);
    let output = output_of(folder.path(), &["inspect", "sum.flow.js"]);
    let expected = "sum  Sum\n\nAdds numbers up\n\ninputs\n  numbers  json  Numbers\n  note     text (optional)\n\noutputs\n  text  text  Text\n";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    let outline = json_of(folder.path(), &["inspect", "--json", "sum.flow.js"], 0);
    assert_eq!((&outline["name"], &outline["title"]), (&json!("sum"), &json!("Sum")));
    assert_eq!(outline["inputs"][1], json!({ "id": "note", "kind": "text", "optional": true }));
    let other = output_of(folder.path(), &["inspect", "other.yaml"]);
    assert!(other.status.code() == Some(2) && stderr(&other).contains("is not a script"), "{}", stderr(&other));
}

#[test]
fn a_syntax_error_is_reported_with_line_and_column() {
    let folder = folder(&[("broken.flow.js", "function run() {\n  return 1 +;\n}\n")]);
    let output = output_of(folder.path(), &["validate", "broken.flow.js"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--> broken.flow.js:2:13\n"), "{}", stderr(&output));
    let report = json_of(folder.path(), &["validate", "--json", "broken.flow.js"], 2);
    let found = &report[0]["diagnostics"][0];
    assert_eq!((&found["line"], &found["column"], &found["code"]), (&json!(2), &json!(13), &json!("bad_script")));
}

#[test]
fn a_run_gives_the_returned_value_beside_the_outputs() {
    let folder = folder(&[("sum.flow.js", SUM)]);
    let run = ["run", "--store", "memory:", "--quiet", "sum.flow.js", "-i", "numbers=[1,2.5]", "-i", "note=all"];
    let outputs = json_of(folder.path(), &run, 0);
    assert_eq!(outputs, json!({ "result": 3.5, "outputs": { "text": "all: 3.5" } }));
    let object = json_of(folder.path(), &[&run[..], &["--json"]].concat(), 0);
    assert_eq!(
        (&object["result"], &object["outputs"], &object["status"]),
        (&json!(3.5), &json!({ "text": "all: 3.5" }), &json!("succeeded"))
    );
}

#[test]
fn errors_of_a_script_have_their_line() {
    let folder = folder(&[("sum.flow.js", SUM)]);
    let run = ["run", "--store", "memory:", "--quiet", "--json", "sum.flow.js", "-i", "numbers=[-1]"];
    let error = json_of(folder.path(), &run, 1)["error"].clone();
    assert_eq!((&error["code"], &error["task"]), (&json!("script_failed"), &json!("script")));
    assert_eq!(error["message"], "RangeError: negative (sum.flow.js:14:22)");
    assert_eq!((&error["details"]["line"], &error["details"]["column"]), (&json!(14), &json!(22)));
    let missing = output_of(folder.path(), &["run", "--store", "memory:", "sum.flow.js", "-i", "note=x"]);
    assert_eq!(missing.status.code(), Some(2), "it does not begin");
    assert!(stderr(&missing).contains("\"numbers\" is a required property"), "{}", stderr(&missing));
}

#[test]
fn a_script_is_tested_without_cases_and_with_them() {
    let cases = "cases:\n  - { name: adds, input: { numbers: [1, 2] }, expect: { outputs: { result: 3, outputs: { text: 'sum: 3' } } } }\n";
    let folder = folder(&[("sum.flow.js", SUM)]);
    let once = ["test", "sum.flow.js", "-i", "numbers=[1,2]"];
    let output = output_of(folder.path(), &once);
    assert!(output.status.success() && stderr(&output).contains("sum 3"), "{}", stderr(&output));
    assert_eq!(
        serde_json::from_str::<Value>(&stdout(&output)).unwrap(),
        json!({ "result": 3, "outputs": { "text": "sum: 3" } })
    );
    let object = json_of(folder.path(), &[&once[..], &["--json"]].concat(), 0);
    assert_eq!(object, json!({ "status": "succeeded", "result": 3, "outputs": { "text": "sum: 3" } }));
    let failed = json_of(folder.path(), &["test", "sum.flow.js", "--json", "-i", "numbers=[-3]"], 1);
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("script_failed")));
    fs::write(folder.path().join("sum.test.yaml"), cases).unwrap();
    let output = output_of(folder.path(), &["test", "sum.flow.js"]);
    assert!(output.status.success() && stderr(&output).contains("1 case, 0 failed"), "{}", stderr(&output));
}

#[test]
fn a_run_goes_on_with_the_script_that_it_began_with() {
    let folder = folder(&[("sum.flow.js", SUM)]);
    let arguments = ["run", "--quiet", "--run-id", "r", "sum.flow.js", "-i", "numbers=[4]", "--events", "-"];
    killed_after(flowcell(folder.path()).args(arguments), 2);
    fs::write(folder.path().join("sum.flow.js"), "no script any more").unwrap();
    let again = json_of(folder.path(), &["runs", "resume", "r", "--json"], 0);
    assert_eq!((&again["result"], &again["outputs"]), (&json!(4), &json!({ "text": "sum: 4" })));
}

#[test]
fn the_clock_of_a_script_is_that_of_its_run() {
    let clock = "export const run = () => [Date.now(), new Date().getTimezoneOffset(), Date.now() - Date.now()];";
    let folder = folder(&[("clock.flow.js", clock)]);
    let result = json_of(folder.path(), &["test", "clock.flow.js", "--json"], 0)["result"].clone();
    assert_eq!(result, json!([1_893_456_000_000u64, 0, 0]), "the time of the test, in UTC, and it stands still");
}

#[test]
fn a_script_is_called_by_other_flows() {
    let parent = "flow: { name: parent, outputs: { sum: \"{{ call.outputs.result }}\" } }\n\
                  nodes: [{ id: call, type: control.subflow, input: { name: sum, input: { numbers: [2, 3] } } }]\n";
    let folder = folder(&[("sum.flow.js", SUM), ("parent.yaml", parent)]);
    let outputs = json_of(folder.path(), &["run", "--store", "memory:", "--quiet", "parent.yaml"], 0);
    assert_eq!(outputs, json!({ "sum": 5 }));
}

#[test]
fn a_folder_of_flows_may_have_scripts() {
    let folder = folder(&[("sum.flow.js", SUM)]);
    let created = output_of(folder.path(), &["flows", "create", "sum.flow.js"]);
    assert!(created.status.success(), "{}", stderr(&created));
    assert_eq!(fs::read_to_string(folder.path().join("flows/sum.flow.js")).unwrap(), SUM);
    let listed = output_of(folder.path(), &["flows", "list"]);
    assert!(stdout(&listed).contains("sum"), "{}{}", stdout(&listed), stderr(&listed));
    let output =
        output_of(folder.path(), &["flows", "run", "sum", "--store", "memory:", "--quiet", "-i", "numbers=[5]"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap()["result"], 5);
}
