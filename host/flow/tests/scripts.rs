//! Tests scripts as flows and scripts in nodes. A stub replaces the script engine.

use std::path::Path;

use flowcell_contract::{Catalog, Json};
use flowcell_flow::{
    CheckContext, Checked, Graph, NoContext, Source, about,
    explain::explain,
    graph::{FACTS, Reference},
    outline::{Outline, Port, PortKind, ScriptError},
    packs,
    script::script_label,
};
use serde_json::json;

use crate::golden::{self, printed};

fn catalog() -> Catalog {
    golden::catalog(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../nodes/script/node.yaml")])
}

/// A context that reports an error at the word `wrong` in a script.
struct ScriptContext;

impl ScriptContext {
    fn find_error(script: &Source) -> Result<(), ScriptError> {
        let place = script.text.lines().zip(1..).find_map(|(line, number)| Some((number, line.find("wrong")? + 1)));
        let message =
            if script.text.contains("return wrong") { "unexpected `return`: statement" } else { "this is wrong" };
        place.map_or(Ok(()), |place| Err(ScriptError { message: message.into(), location: Some(place) }))
    }
}

impl CheckContext for ScriptContext {
    fn read(&self, path: &str) -> Result<String, String> {
        match path {
            "./lib/good.js" => Ok("export const run = () => ({{ a: 1 }});".into()),
            "./lib/bad.js" => Ok("\n  wrong".into()),
            _ => Err("file not found".into()),
        }
    }

    fn flow(&self, _: &str) -> Option<Source> {
        None
    }

    fn outline(&self, script: &Source) -> Result<Outline, ScriptError> {
        ScriptContext::find_error(script)?;
        let port = |id: &str, kind, optional| Port { id: id.into(), kind, label: Some(id.to_uppercase()), optional };
        Ok(Outline {
            title: Some("Title".into()),
            description: None,
            inputs: vec![
                port("photo", PortKind::Img, false),
                port("note", PortKind::Text, true),
                port("data", PortKind::Json, false),
            ],
            outputs: vec![port("result", PortKind::Imgs, false)],
        })
    }

    fn check_script(&self, script: &Source) -> Result<(), ScriptError> {
        ScriptContext::find_error(script)
    }
}

fn load(name: &str, text: &str) -> Checked {
    flowcell_flow::load(&Source { name: name.into(), text: text.into() }, &catalog(), &ScriptContext)
}

#[test]
fn a_script_flow_has_one_node_that_runs_the_script() {
    let text = "function run() { return `{{ flow.input.photo }}` }";
    let checked = load("flows/logo.flow.js", text);
    assert_eq!(printed(&checked.diagnostics), "");
    let graph = checked.graph.unwrap();
    assert_eq!((&*graph.name, graph.description.as_deref()), ("logo", Some("Title")));
    let [node] = graph.nodes.as_slice() else { panic!("{graph:?}") };
    assert_eq!((node.id.as_str(), &*node.node_type.name), ("script", "script.run"));
    assert_eq!(node.grants.0["services"].to_text(), r#"["*"]"#);
    let expected = json!({
        "type": "object",
        "required": ["photo", "data"],
        "properties": {
            "photo": {
                "title": "PHOTO", "type": ["object"], "properties": { "kind": { "const": "file" } },
                "required": ["kind", "fileId"],
            },
            "note": { "title": "NOTE", "type": ["string", "null"] },
            "data": { "title": "DATA" },
        },
    });
    assert_eq!(graph.input_schema, Some(expected));
    assert_eq!(script_label(&graph).unwrap().outputs[0].kind, PortKind::Imgs);
}

#[test]
fn an_invalid_script_is_reported_with_its_position() {
    for (name, text, code, place) in [
        ("logo.flow.js", "let a;\n  wrong", "bad_script", (2, 3)),
        ("lo go.flow.js", "let a", "bad_name", (1, 1)),
        (".flow.js", "let a", "bad_name", (1, 1)),
    ] {
        let checked = load(name, text);
        assert!(checked.graph.is_none());
        let [diagnostic] = checked.diagnostics.as_slice() else { panic!("{}", printed(&checked.diagnostics)) };
        assert_eq!(
            (diagnostic.code, (diagnostic.location.line, diagnostic.location.column)),
            (code, place),
            "{diagnostic}"
        );
    }
    let unread = Source { name: "a.flow.js".into(), text: "let a".into() };
    let checked = flowcell_flow::load(&unread, &catalog(), &NoContext);
    assert!(printed(&checked.diagnostics).contains("this program cannot run scripts"));
    let unknown = flowcell_flow::load(&unread, &Catalog::default(), &ScriptContext);
    assert!(printed(&unknown.diagnostics).contains("unknown node type `script.run`"));
}

#[test]
fn a_script_can_be_given_in_json_or_yaml() {
    let script = "function run() {\n  return `{{ flow.input }}`;\n}\n";
    let json = json!({ "name": "logo", "script": script }).to_string();
    let yaml = "name: logo\nscript: |\n  function run() {\n    return `{{ flow.input }}`;\n  }\n";
    let file = load("logo.flow.js", script).graph.unwrap();
    for (name, text) in [("any.json", json.as_str()), ("any.yaml", yaml)] {
        let checked = load(name, text);
        assert_eq!(printed(&checked.diagnostics), "");
        let graph = checked.graph.unwrap();
        let given = |graph: &Graph| graph.nodes[0].input.expr.render_members(&Json::Null).get("file").cloned().unwrap();
        assert_eq!((&graph.name, &graph.input_schema), (&file.name, &file.input_schema), "{name}");
        assert_eq!((script_label(&graph), given(&graph)), (script_label(&file), given(&file)), "{name}");
        assert_eq!(about(&Source { name: name.into(), text: text.into() }).name.as_deref(), Some("logo"));
    }
    for (text, code, file, place) in [
        ("{ name: logo, script: \"let a;\\n  wrong\" }", "bad_script", "logo.flow.js", (2, 3)),
        ("{ name: lo go, script: let a }", "bad_name", "any.yaml", (1, 9)),
        ("script: let a", "missing_key", "any.yaml", (1, 1)),
        ("{ name: logo, script: '' }", "empty_value", "any.yaml", (1, 23)),
        ("{ name: logo, script: [] }", "wrong_type", "any.yaml", (1, 23)),
        ("{ name: logo, script: let a, title: x }", "unknown_key", "any.yaml", (1, 30)),
    ] {
        let checked = load("any.yaml", text);
        assert!(checked.graph.is_none());
        let [diagnostic] = checked.diagnostics.as_slice() else { panic!("{}", printed(&checked.diagnostics)) };
        let found = (
            diagnostic.code,
            diagnostic.location.file.as_str(),
            (diagnostic.location.line, diagnostic.location.column),
        );
        assert_eq!(found, (code, file, place), "{diagnostic}");
    }
}

#[test]
fn a_script_gets_all_services_that_a_flow_can_be_granted() {
    /// A context in which a flow can be granted only these services.
    struct LimitedServices(&'static [&'static str]);

    impl CheckContext for LimitedServices {
        fn read(&self, path: &str) -> Result<String, String> {
            ScriptContext.read(path)
        }

        fn flow(&self, name: &str) -> Option<Source> {
            ScriptContext.flow(name)
        }

        fn most_granted(&self, capability: &str) -> Option<Vec<String>> {
            (capability == "services").then(|| self.0.iter().map(|&name| name.to_owned()).collect())
        }

        fn outline(&self, script: &Source) -> Result<Outline, ScriptError> {
            ScriptContext.outline(script)
        }
    }

    let source = Source { name: "a.flow.js".into(), text: "function run() {}".into() };
    for (most, granted) in [(&["img", "b*"][..], r#"["img","b*"]"#), (&[], "[]")] {
        let checked = flowcell_flow::load(&source, &catalog(), &LimitedServices(most));
        assert_eq!(printed(&checked.diagnostics), "");
        assert_eq!(checked.graph.unwrap().nodes[0].grants.0["services"].to_text(), granted);
    }
}

#[test]
fn scripts_are_not_parsed_as_yaml() {
    let source = Source { name: "a.flow.js".into(), text: "flow: { name: b, packs: [x.wasm] }".into() };
    assert!(about(&source).name.is_none() && packs(&source).is_empty());
}

#[test]
fn packs_are_found_however_their_key_is_written() {
    let packs_in = |text: &str| {
        let found = packs(&Source { name: "a.yaml".into(), text: text.into() });
        found.into_iter().map(|pack| (pack.path, pack.location.line, pack.location.column)).collect::<Vec<_>>()
    };
    let one = |line, column| vec![("x.wasm".to_owned(), line, column)];
    assert_eq!(packs_in("flow: { packs: [x.wasm] }"), one(1, 17));
    assert_eq!(packs_in("flow:\n  'packs':\n    - x.wasm\n"), one(3, 7));
    assert_eq!(packs_in(r#"{ "flow": { "p\u0061cks": ["x.wasm"] } }"#), one(1, 28));
    assert_eq!(packs_in(r#"flow: { "\x70acks": [x.wasm] }"#), one(1, 22));
    assert_eq!(packs_in(r#"flow: { "p\U00000061cks": [x.wasm] }"#), one(1, 28));
    for end in ["\n", "\r\n"] {
        assert_eq!(packs_in(&format!("flow:\n  ? \"pa\\{end}    cks\"\n  : [x.wasm]\n")), one(4, 6));
    }
    for other in ["flow: { name: a }", "nodes: [{ id: packs }]", "packs: [x.wasm]", "flow: { packs: x.wasm }", "\\"] {
        assert_eq!(packs_in(other), [], "{other}");
    }
}

fn node(input: &str) -> Checked {
    load("flow.yaml", &format!("flow: {{ name: f }}\nnodes:\n  - id: a\n    type: script.run\n    input: {input}\n"))
}

/// Renders the input of the flow's only node. This input reads only the facts about the run, which are 7.
fn rendered(checked: Checked) -> Json {
    assert_eq!(printed(&checked.diagnostics), "");
    let input = &checked.graph.unwrap().nodes[0].input;
    assert_eq!(input.references, [Reference::Facts]);
    input.expr.render(&Json::object([(FACTS, Json::from(7_u64))])).unwrap()
}

#[test]
fn a_script_in_a_node_is_literal() {
    let script = "run = () => `{{ flow.input }} {% if %} {# no #}`";
    let input = rendered(node(&format!("{{ source: '{script}' }}")));
    assert_eq!(input, Json::from(json!({ "source": script, "facts": 7 })));
    let input = rendered(node("{ file: ./lib/good.js }"));
    let file = json!({ "path": "./lib/good.js", "text": "export const run = () => ({{ a: 1 }});" });
    assert_eq!(input, Json::from(json!({ "file": file, "facts": 7 })));
}

/// The host adds the facts to the input of a script. Their name in expressions is no name that a person can write.
#[test]
fn an_explanation_says_which_facts_the_host_adds_to_a_script() {
    let graph = node("{ source: 'run = () => 1' }").graph.unwrap();
    let shown = explain(&graph, None).unwrap().to_string();
    let added = "    facts = the facts about the run, the flow, the task and the tenant, which the host adds\n";
    assert!(shown.contains(added) && !shown.contains(&format!("`{FACTS}`")), "{shown}");
}

#[test]
fn a_script_that_is_one_binding_is_evaluated() {
    let checked = node("{ source: '{{ flow.input.code }}' }");
    assert_eq!(printed(&checked.diagnostics), "");
    assert_eq!(checked.graph.unwrap().nodes[0].input.references, [Reference::Flow, Reference::Facts]);
}

#[test]
fn a_script_gets_the_facts_unless_the_flow_writes_them_or_computes_the_whole_input() {
    let source = "source: 'run = () => 1'";
    for (input, references) in [
        (format!("{{ {source}, facts: {{ run: {{ id: mine }} }} }}"), vec![]),
        (format!("{{ {source}, facts: '{{{{ run }}}}' }}"), vec![Reference::Run]),
        ("'{{ flow.input }}'".to_owned(), vec![Reference::Flow]),
    ] {
        let checked = node(&input);
        assert_eq!(printed(&checked.diagnostics), "", "{input}");
        assert_eq!(checked.graph.unwrap().nodes[0].input.references, references, "{input}");
    }
    // A node with the name of a fact does not hide it from the script.
    let text = format!("flow: {{ name: f }}\nnodes:\n  - {{ id: run, type: script.run, input: {{ {source} }} }}\n");
    let checked = load("flow.yaml", &text);
    assert_eq!(printed(&checked.diagnostics), "");
    assert_eq!(checked.graph.unwrap().nodes[0].input.references, [Reference::Facts]);
}

#[test]
fn scripts_in_nodes_are_checked() {
    for (input, code, help) in [
        ("{ source: 'all wrong' }", "bad_script", "see line 1, column 5 of the script"),
        ("{ source: 'return wrong' }", "bad_script", "write the statements into `export async function run("),
        ("{ file: ./lib/bad.js }", "bad_script", "see line 2, column 3 of the script"),
        ("{ file: ./lib/none.js }", "unreadable_file", "the path is relative to the flow's file"),
        ("{ file: '{{ flow.input.path }}' }", "literal_needed", "write a literal path"),
    ] {
        let checked = node(input);
        let [diagnostic] = checked.diagnostics.as_slice() else { panic!("{}", printed(&checked.diagnostics)) };
        assert_eq!((diagnostic.code, diagnostic.location.line), (code, 5), "{diagnostic}");
        assert!(diagnostic.help.as_deref().unwrap_or_default().starts_with(help), "{diagnostic}");
    }
    assert!(printed(&node("{ inputs: {} }").diagnostics).contains("wrong_input"));
}
