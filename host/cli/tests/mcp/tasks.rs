//! Ten tasks of a coding agent, which a scripted client does with the tools of `flowcell mcp` alone.

use serde_json::{Value, json};

use crate::mcp::pipe::{Client, project_folder};

/// A flow of a shop. Its node type and one of its names are misspelt.
const BROKEN: &str = "flow: { name: shop, input: { prices: [1.255, 2] }, outputs: { total: '{{ totl.value }}' } }
nodes:
  - { id: total, type: control.nooop, input: { value: '{{ flow.input.prices | sum }}' } }
";

/// Returns the structured result of a tool call that succeeds.
fn done(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let result = client.call(tool, arguments);
    assert_ne!(result["isError"], true, "{tool}: {result}");
    result["structuredContent"].clone()
}

/// Makes the edits that the diagnostics of a flow offer.
fn fixed(text: &str, diagnostics: &Value) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for fix in diagnostics.as_array().unwrap().iter().map(|found| &found["fix"]).filter(|fix| !fix.is_null()) {
        let number = |name: &str| fix[name].as_u64().unwrap() as usize;
        let line = &mut lines[number("line") - 1];
        let chars: Vec<char> = line.chars().collect();
        let (before, after) = (&chars[..number("column") - 1], &chars[number("column") - 1 + number("len")..]);
        *line =
            before.iter().copied().chain(fix["text"].as_str().unwrap().chars()).chain(after.iter().copied()).collect();
    }
    lines.join("\n") + "\n"
}

#[test]
fn a_client_does_ten_tasks_of_an_author_with_the_tools_alone() {
    let folder = project_folder();
    let mut client = Client::start(folder.path(), None);
    find_a_node_type(&mut client);
    find_a_function(&mut client);
    try_an_expression(&mut client);
    let flow = mend_a_flow(&mut client);
    understand_a_node(&mut client, &flow);
    see_what_a_node_may_reach(&mut client);
    draw_a_flow(&mut client, &flow);
    test_a_flow(&mut client, &flow);
    store_and_run_a_flow(&mut client, &flow);
    find_out_why_a_run_failed_and_mend_it(&mut client);
    assert_eq!(client.leave(), Some(0));
}

fn find_a_node_type(client: &mut Client) {
    let types = done(client, "flowcell_list_node_types", json!({}));
    let names: Vec<_> = types["nodes"].as_array().unwrap().iter().map(|node| node["type"].as_str().unwrap()).collect();
    assert!(names.contains(&"control.noop"), "{names:?}");
    let noop = done(client, "flowcell_describe_node_type", json!({ "type": "control.noop" }));
    assert!(noop["input"]["properties"]["value"].is_object(), "{noop}");
}

fn find_a_function(client: &mut Client) {
    let all = done(client, "flowcell_functions", json!({}));
    let about = |all: &Value, word: &str| {
        let rows = all["functions"].as_array().unwrap().clone();
        rows.into_iter().filter(|row| row["summary"].as_str().unwrap().contains(word)).count()
    };
    assert!(about(&all, "ound") > 0, "{all}");
    let round = done(client, "flowcell_functions", json!({ "name": "round" }));
    assert!(round["functions"][0]["signature"].as_str().unwrap().contains("round"), "{round}");
    let wrong = client.call("flowcell_functions", json!({ "name": "rond" }));
    assert!(wrong["content"][0]["text"].as_str().unwrap().contains("did you mean `round`?"), "{wrong}");
}

fn try_an_expression(client: &mut Client) {
    let input = json!({ "prices": [1.25, 2] });
    let sum = done(client, "flowcell_eval", json!({ "expression": "{{ flow.input.prices | sum }}", "input": input }));
    assert_eq!(sum["value"], 3.25, "{sum}");
    let wrong = done(client, "flowcell_eval", json!({ "expression": "flow.input.prices | summ", "input": input }));
    assert!(wrong["value"].is_null() && wrong["diagnostics"][0]["help"].is_string(), "{wrong}");
}

fn mend_a_flow(client: &mut Client) -> String {
    let mut flow = BROKEN.to_owned();
    for _ in 0..3 {
        let checked = done(client, "flowcell_validate_flow", json!({ "flow": flow }));
        if checked["valid"] == true {
            break;
        }
        flow = fixed(&flow, &checked["diagnostics"]);
    }
    assert_eq!(flow, BROKEN.replace("totl", "total").replace("control.nooop,", "control.noop,"));
    flow
}

fn understand_a_node(client: &mut Client, flow: &str) {
    let explained = done(client, "flowcell_explain", json!({ "flow": flow, "node": "total" }));
    let node = &explained["nodes"][0];
    assert_eq!(node["input"][0]["reads"][0]["path"], "flow.input.prices", "{explained}");
    assert_eq!(node["runs"][0], "It starts at once when the run begins.", "{explained}");
}

fn see_what_a_node_may_reach(client: &mut Client) {
    let flow = "flow: { name: calls }\nnodes: [{ id: get, type: http.request, input: { url: 'https://a.example/x' }, \
         grants: { http: ['https://a.example'] } }]\n";
    let explained = done(client, "flowcell_explain", json!({ "flow": flow }));
    let reached = explained["nodes"][0]["reaches"].as_array().unwrap();
    let http = reached.iter().find(|reached| reached["capability"] == "http").unwrap();
    assert_eq!((&http["needsGrant"], &http["grant"]), (&json!(true), &json!(["https://a.example"])), "{explained}");
    assert!(explained["text"].as_str().unwrap().contains("https://a.example"), "{explained}");
}

fn draw_a_flow(client: &mut Client, flow: &str) {
    let text = client.call("flowcell_graph", json!({ "flow": flow }));
    assert_eq!(text["content"][0]["text"], "total (control.noop)\n", "{text}");
    let places = client.call("flowcell_graph", json!({ "flow": flow, "format": "json" }));
    let places: Value = serde_json::from_str(places["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(places["width"].is_number() && places.to_string().contains("total"), "{places}");
    let picture = client.call("flowcell_graph", json!({ "flow": flow, "format": "svg" }));
    assert_eq!(
        (&picture["content"][0]["type"], &picture["content"][0]["mimeType"]),
        (&json!("image"), &json!("image/svg+xml"))
    );
}

fn test_a_flow(client: &mut Client, flow: &str) {
    let tested = done(client, "flowcell_test_flow", json!({ "flow": flow, "input": { "prices": [1, 2] } }));
    assert_eq!(tested, json!({ "status": "succeeded", "outputs": { "total": 3 } }));
}

fn store_and_run_a_flow(client: &mut Client, flow: &str) {
    let stored = done(client, "flowcell_create_flow", json!({ "flow": flow }));
    assert_eq!(stored["version"], 1, "{stored}");
    let ran = done(client, "flowcell_run_flow", json!({ "flow": "shop", "input": { "prices": [4] } }));
    assert_eq!(ran["total"], 4, "{ran}");
}

fn find_out_why_a_run_failed_and_mend_it(client: &mut Client) {
    let flow = |expression: &str| {
        json!({
            "flow": { "name": "late", "input": { "order": { "sum": "7" } } },
            "nodes": [
                { "id": "read", "type": "control.noop", "input": { "value": "{{ flow.input.order }}" } },
                { "id": "tax", "type": "control.noop", "input": { "value": format!("{{{{ {expression} - 2 }}}}") } },
            ],
            "edges": [{ "from": "read", "to": "tax" }],
        })
    };
    let failed = client.call("flowcell_run_flow", json!({ "flow": flow("read.value.sum") }));
    assert_eq!(failed["isError"], true, "{failed}");
    let runs = done(client, "flowcell_list_runs", json!({ "status": "failed", "flow": "late" }));
    let run = runs["runs"][0]["runId"].clone();
    let shown = done(client, "flowcell_get_run", json!({ "runId": run }));
    let task = shown["error"]["task"].clone();
    assert_eq!(task, "tax", "{shown}");
    let eval = |expression: &str| json!({ "expression": expression, "runId": run, "task": task });
    assert_eq!(done(client, "flowcell_eval", eval("read.value.sum"))["value"], "7", "it is a text");
    let number = done(client, "flowcell_eval", eval("(read.value.sum | int) - 2"));
    assert_eq!(number["value"], 5, "{number}");
    let mended = done(client, "flowcell_run_flow", json!({ "flow": flow("(read.value.sum | int)") }));
    assert_eq!(mended["tax"]["value"], 5, "{mended}");
}
