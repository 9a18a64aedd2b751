//! A node that asks a model and calls a tool, played by scripts.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use flowcell_sdk::{
    agent,
    model::{self, Block, Message, Offer, Reply, Request, Stop, ToolChoice, Usage},
    prelude::*,
    queue::{self, Event},
    state,
    testing::{Outcome, Played, Script, reply},
    tools,
};

/// Asks the model once, with all tools. Returns the first message, the reply's text and a tool's output.
fn node(_task: &Task) -> Result<Step> {
    let run = agent::open(&json!({ "inbox": { "capacity": 1 } }))?;
    let found = tools::find(&["math.*".to_owned()])?;
    let offer = |tool: &tools::Tool| Offer {
        name: tool.name.clone(),
        description: None,
        input_schema: tool.input_schema.clone(),
    };
    let request = Request {
        tools: found.iter().map(offer).collect(),
        tool_choice: Some(ToolChoice::Tool { tool: found[0].name.clone() }),
        agent_run_id: Some(run.clone()),
        ..Request::new([Message::user("Double 4")])
    };
    let call = model::start_generate(&request)?;
    let mut heard = Value::Null;
    let text = loop {
        match queue::next_event(None)? {
            Some(Event::Ended(ended, outcome)) if ended == call => break Reply::read(outcome?)?.text(),
            Some(Event::Message { value, .. }) => heard = value,
            other => return Err(Failure::new("odd", format!("{other:?}"))),
        }
    };
    let doubled = tools::call(&tools::Call::new("math.double", json!({ "n": 4 })))?;
    let visits = state::get::<u64>("visits")?.map_or(0, |entry| entry.value) + 1;
    state::set("visits", &visits)?;
    agent::close(&run, Ok(&json!({ "result": text })))?;
    Step::value(json!({ "text": text, "heard": heard, "doubled": doubled, "visits": visits }))
}

fn play(script: Script) -> Played {
    script.play(|_, task| node(task), "test.agent", Given::default())
}

fn double() -> Script {
    Script::new().tool("math.double", |input| Ok(json!(input["n"].as_i64().map(|n| n * 2))))
}

#[test]
fn a_script_answers_the_calls_of_a_node() {
    let played = play(double().state("visits", json!(2)).message("m1", "Hurry").says("8").silence());
    let expected = json!({ "text": "8", "heard": "Hurry", "doubled": 8, "visits": 3 });
    assert_eq!((played.outcome.clone(), played.remaining_acts), (Outcome::Output(expected), 1));
    let request = played.of("model.start-generate")[0];
    let tool = json!({ "name": "math_double", "inputSchema": { "type": "object" } });
    let expected = json!({
        "messages": [{ "role": "user", "content": "Double 4" }],
        "tools": [tool], "toolChoice": { "tool": "math_double" }, "agentRunId": "agent-run-1",
    });
    assert_eq!(request, &expected);
    let names: Vec<_> = played.calls.iter().map(|call| call.name.as_str()).collect();
    let expected = [
        "agent.open",
        "tools.find",
        "model.start-generate",
        "queue.next-event",
        "queue.next-event",
        "tools.call",
        "state.get",
        "state.set",
        "agent.close",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_failed_call_fails_the_node() {
    let busy = Failure::new("model_overloaded", "busy").retry_after_ms(7);
    assert_eq!(play(double().fail(busy.clone())).outcome, Outcome::Failure(busy));
    let denied = play(double().deny("tools.find")).outcome;
    assert!(matches!(denied, Outcome::Failure(failure) if failure.code == "denied"));
    let broken = Script::new().tool("math.double", |_| Err(Failure::new("no_paper", "none"))).says("8");
    assert!(matches!(play(broken).outcome, Outcome::Failure(failure) if failure.code == "no_paper"));
}

#[test]
#[should_panic(expected = "the script ends, but a turn is in progress")]
fn a_script_that_ends_too_early_panics() {
    play(double());
}

#[test]
fn tool_choices_are_serialized_for_the_host() {
    let rows = [
        (ToolChoice::Auto, json!("auto")),
        (ToolChoice::Any, json!("any")),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Tool { tool: "a".into() }, json!({ "tool": "a" })),
    ];
    for (choice, expected) in rows {
        assert_eq!(serde_json::to_value(&choice).unwrap(), expected);
    }
}

#[test]
fn replies_may_have_unknown_values() {
    let wish = json!({ "type": "tool_use", "id": "t", "name": "a", "input": {}, "raw": 1 });
    let mut value = reply(&[json!({ "type": "text", "text": "A" }), wish.clone(), json!({ "type": "new" })], "tired");
    value["more"] = 1.into();
    let reply = Reply::read(value).unwrap();
    assert_eq!((reply.text().as_str(), reply.stop), ("A", Stop::Other));
    assert_eq!(reply.tool_uses().map(|wanted| wanted.id).collect::<Vec<_>>(), ["t"]);
    assert_eq!(reply.content[1], Block(wish));
}

#[test]
fn usage_of_two_turns_is_added() {
    let some = |cost: Option<f64>, basis: &str| Usage {
        input: 1,
        output: 2,
        cost_usd: cost,
        cost_basis: Some(basis.into()),
        ..Usage::default()
    };
    let mut sum = Usage::default();
    for usage in [some(Some(0.5), "list"), some(None, "unknown"), some(Some(0.25), "list")] {
        sum.add(&usage);
    }
    assert_eq!((sum.tokens(), sum.cost_usd, sum.cost_basis.as_deref()), (9, Some(0.75), Some("unknown")));
}
