//! Completions, explanations, definitions and renaming in flows of steps, and of files beside a flow.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use flowcell_flow::Source;

use super::Dialect;
use crate::{
    apply,
    complete::{Completion, complete},
    flow::{Flow, NameKind},
    hover::hover,
    kit::{CATALOG, Examples, Numbers, at_cursor, diagnose, document, flows_in},
    outline,
    reading::read,
    references::{Definition, definition, references, rename, rename_in_cases},
};

const AGENTIC: &str = "flow:
  args: { type: object, properties: { prompt: { type: string, description: The task }, team: { type: string } } }
  steps:
    - id: plan-it
      agent: plan
      prompt: \"Plan ${args.prompt} in ${ step.iteration }\"
      output: { schema: { type: object, properties: { size: { type: object, properties: { lines: { type: integer } } } } } }
      rules: [{ if: \"${args.size} == 3\", then: do-it }]
      fallback: { to: give-up }
    - { id: do-it, prompt: \"Do it ${args.size.lines}\", rules: [{ if: \"${step.iteration} < 3\", then: plan-it, cycle: true }] }
    - { id: give-up, prompt: \"Say that plan-it failed\" }
";

const TOOLS: &str = "name: a
inputs: [list, other]
steps:
  - { id: first, tool: control.if, params: { condition: $inputs.list }, save_as: picked }
  - { id: second, tool: control.noop, params: { value: { deep: [$ctx.picked.condition] } } }
  - { id: third, tool: control.noop, params: { value: $ctx.second } }
output: $ctx.picked
";

/// Returns the completions at `§`.
fn completed(text: &str) -> Vec<Completion> {
    let (text, at) = at_cursor(text);
    complete(&document(&text), at)
}

fn offered(text: &str) -> Vec<String> {
    completed(text).into_iter().map(|completion| completion.label).collect()
}

/// Returns a flow with a text in place of a part.
fn with(flow: &str, part: &str, text: &str) -> String {
    assert!(flow.contains(part), "{part}");
    flow.replacen(part, text, 1)
}

fn explained(text: &str) -> Option<String> {
    let (text, at) = at_cursor(text);
    hover(&document(&text), at).map(|found| found.text)
}

/// Returns the definition of what stands at `§`, with the beginning of the text behind it.
fn defined(text: &str) -> Option<String> {
    let (text, at) = at_cursor(text);
    Some(match definition(&document(&text), at)? {
        Definition::Name(range) => text[range.start..].chars().take(range.len() + 4).collect(),
        Definition::Agent(name) => format!("agent {name}"),
        other => format!("{other:?}"),
    })
}

fn renamed(text: &str, new: &str) -> Result<String, String> {
    let (text, at) = at_cursor(text);
    rename(&document(&text), "a-flow.yaml", at, new, &Examples).map(|renamed| apply(&text, &renamed.edits))
}

#[test]
fn names_of_agentic_flows_are_completed() {
    assert_eq!(offered(&with(AGENTIC, "agent: plan", "agent: §"))[..3], ["coder", "translator", "plan"]);
    // A rule may not lead back without `cycle`, and the nearest step comes first.
    assert_eq!(offered(&with(AGENTIC, "then: do-it", "then: §")), ["do-it", "give-up"]);
    assert_eq!(offered(&with(AGENTIC, "then: plan-it,", "then: §,")), ["give-up", "do-it", "plan-it"]);
    assert_eq!(offered(&with(AGENTIC, "to: give-up", "to: g§")), ["give-up"]);
    let prompts = ["args.prompt", "args.team", "args.size", "step.iteration", "args"];
    assert_eq!(offered(&with(AGENTIC, "${args.prompt}", "${§}")), prompts);
    assert_eq!(offered(&with(AGENTIC, "${args.prompt}", "${args.p§}")), ["args.prompt"]);
    assert_eq!(offered(&with(AGENTIC, "${args.size.lines}", "${args.size.§}")), ["args.size.lines"]);
    assert_eq!(offered(&with(AGENTIC, "${args.size} == 3", "${args.s§} == 3")), ["args.size"]);
    // An open brace is closed.
    let open = with(AGENTIC, "${args.prompt}", "${args.t§");
    let (text, _) = at_cursor(&open);
    let written = apply(&text, &[completed(&open)[0].edit.clone()]);
    assert!(written.contains("Plan ${args.team} in ${ step.iteration }"), "{written}");
    assert!(offered(&with(AGENTIC, "Plan ${", "Pl§an ${")).is_empty());
    assert!(offered(&with(AGENTIC, "      rules", "      §\n      rules")).contains(&"maxTurns".to_owned()));
}

#[test]
fn names_of_flows_of_tools_are_completed() {
    let tools = offered(&with(TOOLS, "tool: control.if", "tool: control.i§"));
    assert_eq!(tools[0], "control.if");
    // The parameters of the step fit few tools.
    let all = offered(&with(TOOLS, "tool: control.if, params: { condition: $inputs.list }", "tool: §"));
    let some = offered(&with(TOOLS, "tool: control.if", "tool: §"));
    assert!(some.contains(&"control.if".to_owned()) && some.len() < all.len(), "{some:?}");
    assert_eq!(offered(&with(TOOLS, "control.if,", "control.if@§,")), ["control.if@0.1.0"]);
    assert_eq!(offered(&with(TOOLS, "{ condition: $inputs.list }", "{ § }")), ["condition"]);
    assert_eq!(offered(&with(TOOLS, "$inputs.list }", "$inputs.§ }")), ["$inputs.list", "$inputs.other"]);
    // Only results of earlier steps have a value.
    assert_eq!(offered(&with(TOOLS, "$ctx.second", "$ctx.§")), ["$ctx.picked", "$ctx.second"]);
    assert_eq!(offered(&with(TOOLS, "$ctx.picked.condition", "$ctx.picked.§")), ["$ctx.picked.condition"]);
    assert_eq!(offered(&with(TOOLS, "output: $ctx.picked", "output: $ctx.t§")), ["$ctx.third"]);
    assert_eq!(offered(&with(TOOLS, "$inputs.list }", "$facts.run.§ }"))[0], "$facts.run.id");
    assert_eq!(offered(&with(TOOLS, "value: $ctx.second", "value: §"))[..2], ["$inputs.list", "$inputs.other"]);
    // A text with more than a reference is plain.
    assert!(offered(&with(TOOLS, "value: $ctx.second", "value: 'see $ctx.§'")).is_empty());
    let granted = "name: a\nsteps: [{ id: x, tool: http.request, grants: { § } }]";
    assert_eq!(offered(granted)[0], "http");
}

#[test]
fn names_of_flows_of_steps_are_explained_and_defined() {
    let explains = |text: &str, part: &str| {
        let found = explained(text).unwrap_or_else(|| panic!("nothing: {text}"));
        assert!(found.contains(part), "`{part}` is not in {found}");
    };
    explains(&with(AGENTIC, "${args.prompt}", "${args.pro§mpt}"), "`args.prompt`: text\n\nThe task");
    explains(&with(AGENTIC, "${args.size.lines}", "${args.size.li§nes}"), "`args.size.lines`: integer");
    explains(&with(AGENTIC, "then: do-it", "then: do§-it"), "`do-it`: a step of the agent `coder`");
    explains(&with(AGENTIC, "agent: plan", "agent: pl§an"), "`plan`: the built-in agent");
    explains(&with(AGENTIC, "fallback:", "fall§back:"), "object");
    explains(&with(TOOLS, "tool: control.if", "tool: control.i§f"), "Input:");
    explains(&with(TOOLS, "{ condition:", "{ cond§ition:"), "`condition`");
    explains(&with(TOOLS, "$ctx.picked.condition", "$ctx.picked.cond§ition"), "`$ctx.picked.condition`: boolean");
    // Of an unknown argument only the field is explained.
    explains(&with(AGENTIC, "${args.prompt}", "${args.unkn§own}"), "are replaced");
    assert_eq!(explained(&with(TOOLS, "tool: control.if", "tool: control.unkn§own")), None);

    let is_defined = |text: &str, expected: &str| assert_eq!(defined(text).as_deref(), Some(expected), "{text}");
    is_defined(&with(AGENTIC, "then: do-it", "then: do§-it"), "do-it, pr");
    is_defined(&with(AGENTIC, "to: give-up", "to: giv§e-up"), "give-up, pr");
    is_defined(&with(AGENTIC, "${args.prompt}", "${args.pro§mpt}"), "prompt: { ");
    is_defined(&with(AGENTIC, "${args.size} ==", "${args.si§ze} =="), "size: { ");
    is_defined(&with(AGENTIC, "agent: plan", "agent: pl§an"), "agent plan");
    is_defined(&with(TOOLS, "$ctx.picked.condition", "$ctx.pic§ked.condition"), "picked }\n ");
    is_defined(&with(TOOLS, "$ctx.second", "$ctx.sec§ond"), "second, to");
    is_defined(&with(TOOLS, "$inputs.list", "$inputs.li§st"), "list, ot");
    assert_eq!(defined(&with(AGENTIC, "then: do-it", "then: do-i§")), None);
    assert_eq!(defined(&with(TOOLS, "$ctx.second", "$ctx.unkn§own")), None);
}

#[test]
fn steps_and_results_are_renamed_and_names_of_callers_are_not() {
    let expected = AGENTIC.replace("- id: plan-it", "- id: sketch").replace("then: plan-it", "then: sketch");
    assert_eq!(renamed(&with(AGENTIC, "- id: plan-it", "- id: plan§-it"), "sketch"), Ok(expected));
    let refused = |text: &str, new: &str, why: &str| {
        let error = renamed(text, new).unwrap_err();
        assert!(error.contains(why), "{error}");
    };
    let step = with(AGENTIC, "then: do-it", "then: do§-it");
    refused(&step, "Do_It", "lowercase letters");
    refused(&step, "give-up", "has `give-up` already");
    refused(&with(AGENTIC, "${args.prompt}", "${args.pro§mpt}"), "x", "callers name `prompt`, too");
    refused(&with(AGENTIC, "Plan ${", "Pl§an ${"), "x", "move the cursor");

    let expected = TOOLS.replace("save_as: picked", "save_as: best").replace("$ctx.picked", "$ctx.best");
    assert_eq!(renamed(&with(TOOLS, "$ctx.picked\n", "$ctx.pic§ked\n"), "best"), Ok(expected));
    // Without `save_as`, the id is the name of the result.
    let expected = TOOLS.replace("id: second", "id: 2nd").replace("$ctx.second", "$ctx.2nd");
    refused(&with(TOOLS, "$ctx.second", "$ctx.sec§ond"), "2nd", "not a valid name");
    let expected = expected.replace("2nd", "other_one");
    assert_eq!(renamed(&with(TOOLS, "$ctx.second", "$ctx.sec§ond"), "other_one"), Ok(expected));
    assert_eq!(renamed(&with(TOOLS, "id: first", "id: fir§st"), "one"), Ok(TOOLS.replace("id: first", "id: one")));
    refused(&with(TOOLS, "$ctx.second", "$ctx.sec§ond"), "first", "has `first` already");
    refused(&with(TOOLS, "$ctx.second", "$ctx.sec§ond"), "picked", "has `picked` already");
    refused(&with(TOOLS, "$inputs.list", "$inputs.li§st"), "x", "callers name `list`, too");
}

#[test]
fn a_renamed_step_is_renamed_in_test_cases_and_listed_in_prompts() {
    let (text, at) = at_cursor(&with(AGENTIC, "- id: plan-it", "- id: plan§-it"));
    let found = rename(&document(&text), "a-flow.yaml", at, "sketch", &Examples).unwrap();
    assert_eq!(found.left.iter().map(|range| &text[range.clone()]).collect::<Vec<_>>(), ["plan-it"]);
    let cases = "cases: [{ given: { plan-it: 1, do-it: 2 }, expect: { route: [plan-it], outputs: { plan-it: 1 } } }]";
    let expected = cases.replacen("plan-it", "sketch", 1).replace("[plan-it]", "[sketch]");
    assert_eq!(apply(cases, &rename_in_cases(cases, &found.plan)), expected);
    // The name of a result is no id.
    let (text, at) = at_cursor(&with(TOOLS, "save_as: picked", "save_as: pic§ked"));
    let found = rename(&document(&text), "a.yaml", at, "first", &Examples).unwrap();
    assert!(rename_in_cases("cases: [{ given: { picked: 1 } }]", &found.plan).is_empty());
}

/// Each step of the examples gets another id: the flow keeps its graph, and the old id comes back.
#[test]
fn renamed_steps_of_all_examples_keep_their_flows() {
    let mut count = 0;
    for source in flows_in("flows/agentic") {
        let graph = |text: &str| {
            let source = Source { name: source.name.clone(), text: text.to_owned() };
            flowcell_flow::load(&source, &CATALOG, &Examples).graph.unwrap_or_else(|| panic!("errors in {text}"))
        };
        let before = graph(&source.text);
        let root = read(&source.text);
        let flow = Flow::new(&source.text, &root, &CATALOG);
        assert_eq!(flow.dialect, Dialect::Agentic, "{}", source.name);
        for node in &flow.nodes {
            let at = node.id_range.start;
            assert!(references(&document(&source.text), at).contains(&node.id_range));
            let new = format!("z{}", node.id);
            let renamed = rename(&document(&source.text), &source.name, at, &new, &Examples).unwrap();
            let text = apply(&source.text, &renamed.edits);
            let ids =
                |graph: &flowcell_flow::Graph| graph.nodes.iter().map(|node| node.id.to_string()).collect::<Vec<_>>();
            let expected: Vec<_> =
                ids(&before).into_iter().map(|id| if id == node.id { new.clone() } else { id }).collect();
            assert_eq!(ids(&graph(&text)), expected, "{text}");
            let at = text.find(&format!("id: {new}\n")).unwrap() + 4;
            let back = rename(&document(&text), &source.name, at, &node.id, &Examples).unwrap();
            assert_eq!(apply(&text, &back.edits), source.text);
            count += 1;
        }
    }
    assert!(count > 15, "only {count} steps");
}

/// Each name in the examples is offered where it is deleted, and no other offered name adds an error.
#[test]
fn deleted_names_of_all_examples_are_offered() {
    let (mut count, mut missed) = (0, Vec::new());
    for source in flows_in("flows/agentic") {
        let root = read(&source.text);
        let flow = Flow::new(&source.text, &root, &CATALOG);
        let is_meant = |kind: NameKind| matches!(kind, NameKind::Node | NameKind::Argument);
        for found in flow.uses.iter().filter(|found| !found.is_definition && is_meant(found.kind)) {
            let deleted = format!("{}{}", &source.text[..found.range.start], &source.text[found.range.end..]);
            let offered = complete(&document(&deleted), found.range.start);
            let written = |completion: &Completion| apply(&deleted, std::slice::from_ref(&completion.edit));
            if !offered.iter().take(5).any(|completion| written(completion) == source.text) {
                let labels: Vec<_> = offered.iter().take(6).map(|completion| &*completion.label).collect();
                missed.push(format!("{}: {} in {labels:?}", source.name, found.id));
            }
            for completion in &offered {
                let text = written(completion);
                let errors: Vec<_> = diagnose(&source.name, &text)
                    .into_iter()
                    .filter(|found| found.severity == flowcell_flow::Severity::Error)
                    .collect();
                assert!(errors.is_empty(), "{}: {}: {errors:?}", source.name, completion.label);
            }
            count += 1;
        }
    }
    assert!(count > 30 && missed.len() * 20 <= count, "{} of {count} missed: {missed:?}", missed.len());
}

#[test]
fn files_beside_the_flow_are_offered_for_their_fields() {
    let prompt = |path: &str| format!("flow: {{ name: a }}\nnodes: [{{ id: a, type: agent.run, promptFile: {path} }}]");
    assert_eq!(offered(&prompt("§")), ["ask.md", "a b.md", "prompts/say.txt"]);
    assert_eq!(offered(&prompt("prompts/§")), ["prompts/say.txt"]);
    assert_eq!(offered(&prompt("./prompts/s§")), ["./prompts/say.txt"]);
    assert!(offered(&prompt("other/§")).is_empty());
    let script = "flow: { name: a }\nnodes: [{ id: a, type: script.run, input: { file: § } }]";
    assert_eq!(offered(script), ["scripts/sum.js"]);
    let completions = completed(&prompt("§"));
    // A name with a space has quotes, and a list that is cut says so.
    assert_eq!(completions[1].edit.text, "\"a b.md\"");
    assert!(completions[0].detail.contains("type a folder"));
    assert_eq!(completed(&prompt("prompts/§"))[0].detail, "a file");
}

#[test]
fn hostile_flows_of_steps_are_answered() {
    let many = |part: &dyn Fn(usize) -> String| (0..1_000).map(part).collect::<Vec<_>>().join(", ");
    let steps =
        many(&|number| format!("{{ id: s{number}, prompt: '${{args.a}}', rules: [{{ then: s{} }}] }}", number + 1));
    let texts = [
        "flow: { steps: [{ prompt: '${' }, { prompt: '${${${args' }, 3, [], { id: {}, rules: [{ then: [] }, 1] }] }"
            .to_owned(),
        "flow: { args: [], steps: { id: x } }".to_owned(),
        "steps: [{ id: $ctx.a, tool: [], save_as: null, params: $ctx... }]\ninputs: { a: 1 }\noutput: '$'".to_owned(),
        "steps: [{ tool: '\u{202e}@', params: { a: '$ctx.\u{202e}' } }, { id: é, params: $ctx.é }]".to_owned(),
        format!("flow: {{ steps: [{steps}] }}"),
        format!("steps: [{{ id: a, params: {}", "{ a: ".repeat(3_000)),
    ];
    let mut numbers = Numbers(9);
    for text in texts {
        for at in (0..20).map(|_| text.floor_char_boundary(numbers.below(text.len() + 1))) {
            let document = document(&text);
            complete(&document, at);
            hover(&document, at);
            definition(&document, at);
            references(&document, at);
            drop(rename(&document, "a-flow.yaml", at, "new", &Examples));
        }
        outline::symbols(&text);
    }
}

#[test]
fn steps_are_symbols() {
    let found = outline::symbols(AGENTIC);
    let names: Vec<_> = found[0].children.iter().map(|child| (child.name.as_str(), child.detail.as_str())).collect();
    assert_eq!(names, [("plan-it", "plan"), ("do-it", ""), ("give-up", "")]);
    let found = outline::symbols(TOOLS);
    assert_eq!(found[2].children[0].detail, "control.if");
}
