//! A host for tests. It answers calls by a script instead of the real capabilities.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
};

use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};

/// A host for tests that follows a script. It simulates models, tools, services, agent runs and their inboxes, HTTP
/// requests, files, `state` and `log`. Other calls need a real host. An HTTP request gets the next
/// [`reply`](Script::reply), such as `{ "status": 200, "headers": [["content-type", "text/plain"]], "body": { "text":
/// "…" } }`. The reply to [`open`](crate::http::open) may have a list `chunks` of texts in place of the body.
///
/// [`reply`](Script::reply), [`fail`](Script::fail), [`message`](Script::message), [`close`](Script::close) and
/// [`silence`](Script::silence) each add one act. Each time the node waits for an answer of a model, of HTTP or of
/// `files`, or for the next event, one act happens: the first that has not happened yet. The ends of calls of tools and
/// services are not acts. `next_event` returns them before the next act, in the order in which these calls started.
///
/// ```
/// use flowcell_sdk::{
///     Given, model, prelude::*,
///     testing::{Outcome, Script},
/// };
///
/// fn hello(_task: &Task) -> Result<Step> {
///     let reply = model::generate(&model::Request::new([model::Message::user("Say hello")]))?;
///     Step::value(json!({ "text": reply.text() }))
/// }
///
/// let played = Script::new().says("Hello").play(|_, task| hello(task), "acme.hello", Given::default());
/// assert_eq!(played.outcome, Outcome::Output(json!({ "text": "Hello" })));
/// assert_eq!(played.of("model.generate")[0]["messages"][0]["content"], "Say hello");
/// ```
#[derive(Default)]
pub struct Script {
    pub(crate) acts: VecDeque<Act>,
    tools: Vec<(Value, Box<Tool>)>,
    services: BTreeMap<String, Box<Service>>,
    backwards: bool,
    denied: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
    state: BTreeMap<String, Value>,
    versions: BTreeMap<String, u64>,
    runs: u32,
    started: u32,
    turns: VecDeque<u32>,
    ended: VecDeque<(u32, Result<Value>)>,
    calls: Vec<RecordedCall>,
}

type Tool = dyn Fn(&Value) -> Result<Value>;
type Service = dyn Fn(&[Value]) -> Result<Value>;

/// A call that a node made.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// `model.start-generate`, `tools.find`, `agent.tell` …
    pub name: String,
    /// The arguments of the call, as JSON.
    pub args: Value,
}

/// An act of the script: the answer or the event for which the node waits.
#[derive(Debug)]
pub(crate) enum Act {
    Reply(Result<Value>),
    Message(String, Value),
    Close,
    Silence,
}

/// An event that `next_event` returns to the node.
pub(crate) enum Arrival {
    Ended(u32, Result<Value>),
    Message { agent_run: String, id: String, value: Value },
    Closing(String),
}

thread_local! {
    static PLAYED: RefCell<Option<Script>> = const { RefCell::new(None) };
}

/// Plays a script while `run` is called on this thread. Returns the result of `run`, the script with the acts that have
/// not happened, and the calls that the node made.
pub(crate) fn play<T>(script: Script, run: impl FnOnce() -> T) -> (T, Script, Vec<RecordedCall>) {
    PLAYED.with_borrow_mut(|played| *played = Some(script));
    let result = run();
    let mut script = PLAYED.with_borrow_mut(Option::take).unwrap_or_default();
    let calls = std::mem::take(&mut script.calls);
    (result, script, calls)
}

/// Records a call and returns the script's answer; none if no script is played on this thread.
pub(crate) fn call(name: &str, args: impl FnOnce() -> Value) -> Option<Result<Value>> {
    PLAYED.with_borrow_mut(|played| played.as_mut().map(|script| script.call(name, args())))
}

/// Returns a piece of a file value; none if no script is played on this thread.
pub(crate) fn file_piece(file: &str, offset: u64, length: u32) -> Option<Result<Vec<u8>>> {
    PLAYED.with_borrow(|played| played.as_ref().map(|script| script.file_piece(file, offset, length)))
}

/// Stores the bytes of a new file value, and returns it; none if no script is played on this thread.
pub(crate) fn keep_file(bytes: Vec<u8>, mime: &str) -> Option<Value> {
    PLAYED.with_borrow_mut(|played| {
        let files = &mut played.as_mut()?.files;
        let (id, size) = (format!("written-{}", files.len() + 1), bytes.len());
        let value = json!({ "kind": "file", "fileId": id, "size": size, "mime": mime });
        files.insert(id, bytes);
        Some(value)
    })
}

/// Returns the next event of the script. The outer option is none if no script is played on this thread. The inner
/// option is none if no event arrives.
pub(crate) fn next_arrival(timeout_ms: Option<u32>) -> Option<Option<Arrival>> {
    PLAYED.with_borrow_mut(|played| played.as_mut().map(|script| script.next_arrival(timeout_ms)))
}

impl Script {
    /// Creates a script without acts.
    pub fn new() -> Script {
        Script::default()
    }

    /// Sets the bytes of the file value with this `fileId`.
    #[must_use]
    pub fn file(mut self, file_id: &str, bytes: impl Into<Vec<u8>>) -> Script {
        self.files.insert(file_id.to_owned(), bytes.into());
        self
    }

    fn file_piece(&self, file: &str, offset: u64, length: u32) -> Result<Vec<u8>> {
        let file: Value = serde_json::from_str(file)?;
        let id = file["fileId"].as_str().unwrap_or_default();
        let missing = || Failure::new("file_not_found", format!("the file `{id}` does not exist"));
        let bytes = self.files.get(id).ok_or_else(missing)?;
        let rest = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        Ok(rest[..rest.len().min(length as usize)].to_vec())
    }

    /// Adds an act: a reply to a call of a model, of HTTP or of `files`. If the node waits in `next_event` instead of a
    /// call, the reply ends the oldest model turn in progress.
    #[must_use]
    pub fn reply(self, reply: Value) -> Script {
        self.with_act(Act::Reply(Ok(reply)))
    }

    /// Adds a model's reply with a text. Its usage is 10 input tokens and 5 output tokens.
    #[must_use]
    pub fn says(self, text: &str) -> Script {
        self.reply(reply(&[json!({ "type": "text", "text": text })], "end"))
    }

    /// Adds a model's reply with tool uses: the id, the tool's name and the input of each.
    #[must_use]
    pub fn calls<const N: usize>(self, uses: [(&str, &str, Value); N]) -> Script {
        let block = |(id, name, input)| json!({ "type": "tool_use", "id": id, "name": name, "input": input });
        self.reply(reply(&uses.map(block), "tool_calls"))
    }

    /// Adds an act: a failure of a call to which [`reply`](Script::reply) would add a reply.
    #[must_use]
    pub fn fail(self, failure: Failure) -> Script {
        self.with_act(Act::Reply(Err(failure)))
    }

    /// Adds an act: a message to the agent run that was opened last.
    #[must_use]
    pub fn message(self, id: &str, value: impl Into<Value>) -> Script {
        self.with_act(Act::Message(id.to_owned(), value.into()))
    }

    /// Adds an act: the inbox of the agent run that was opened last closes.
    #[must_use]
    pub fn close(self) -> Script {
        self.with_act(Act::Close)
    }

    /// Adds an act: `next_event` returns none, as after its timeout.
    #[must_use]
    pub fn silence(self) -> Script {
        self.with_act(Act::Silence)
    }

    /// Adds a tool. `run` gets the input of each call and returns the output. In the tool's name for models, `_`
    /// replaces each character that is not an ASCII letter or digit.
    #[must_use]
    pub fn tool(mut self, tool: &str, run: impl Fn(&Value) -> Result<Value> + 'static) -> Script {
        let name: String = tool.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let about = json!({ "name": name, "tool": tool, "inputSchema": { "type": "object" } });
        self.tools.push((about, Box::new(run)));
        self
    }

    /// Adds a service. `run` gets the arguments of each call and returns the result.
    #[must_use]
    pub fn service(mut self, name: &str, run: impl Fn(&[Value]) -> Result<Value> + 'static) -> Script {
        self.services.insert(name.to_owned(), Box::new(run));
        self
    }

    /// Reverses the order in which `next_event` returns the ends of concurrent calls of tools and services.
    #[must_use]
    pub fn backwards(self) -> Script {
        Script { backwards: true, ..self }
    }

    /// Lets all calls with this name, such as `tools.find`, fail with `denied`, as if the flow granted nothing.
    #[must_use]
    pub fn deny(mut self, name: &str) -> Script {
        self.denied.push(name.to_owned());
        self
    }

    /// Sets a value of `state` before the node starts.
    #[must_use]
    pub fn state(mut self, key: &str, value: Value) -> Script {
        self.write_state(key, value);
        self
    }

    fn with_act(mut self, act: Act) -> Script {
        self.acts.push_back(act);
        self
    }

    fn call(&mut self, name: &str, args: Value) -> Result<Value> {
        self.calls.push(RecordedCall { name: name.to_owned(), args: args.clone() });
        if self.denied.iter().any(|denied| denied == name) {
            return Err(Failure::new("denied", format!("`{name}` is not granted")));
        }
        match name {
            "model.generate" => match self.acts.pop_front() {
                Some(Act::Reply(reply)) => reply,
                other => panic!("the node calls a model, but the script has {other:?}"),
            },
            "http.send" | "http.open-stream" | "files.read" | "files.write" | "files.list" | "files.stat"
            | "files.remove" => match self.acts.pop_front() {
                Some(Act::Reply(reply)) => reply,
                other => panic!("the node calls `{name}`, but the script has {other:?}"),
            },
            "model.start-generate" => {
                self.started += 1;
                self.turns.push_back(self.started);
                Ok(self.started.into())
            }
            "tools.find" => Ok(self.tools.iter().map(|(about, _)| about.clone()).collect()),
            "tools.call" => self.tool_answer(&args),
            "tools.start-call" => {
                self.started += 1;
                let answer = self.tool_answer(&args);
                self.ended.push_back((self.started, answer));
                Ok(self.started.into())
            }
            "services.start-call" => {
                self.started += 1;
                let answer = self.service_answer(&args);
                self.ended.push_back((self.started, Ok(answer)));
                Ok(self.started.into())
            }
            "agent.open" => {
                self.runs += 1;
                Ok(format!("agent-run-{}", self.runs).into())
            }
            "agent.tell" | "agent.close" | "log.log" => Ok(Value::Null),
            "state.get" => Ok(self.state_entry(&args)),
            "state.set" | "state.set-if" => Ok(self.set_state(name, args)),
            _ => panic!("a script cannot simulate `{name}`"),
        }
    }

    fn tool_answer(&self, args: &Value) -> Result<Value> {
        let known = self.tools.iter().find(|(about, _)| about["tool"] == args["tool"]);
        let (_, run) = known.ok_or_else(|| Failure::new("tool_not_found", format!("no tool {}", args["tool"])))?;
        Ok(json!({ "output": run(&args["input"])? }))
    }

    fn service_answer(&self, args: &Value) -> Value {
        let name = args["service"].as_str().unwrap_or_default();
        let given = args["args"].as_array().map(Vec::as_slice).unwrap_or_default();
        let outcome = match self.services.get(name) {
            Some(run) => run(given),
            None => Err(Failure::new("service_not_found", format!("unknown service `{name}`"))),
        };
        let mut answer = json!({ "kind": "flow-service-response", "callId": args["callId"], "ok": outcome.is_ok() });
        match outcome {
            Ok(result) => answer["result"] = result,
            Err(failure) => answer["error"] = json!({ "code": failure.code, "message": failure.message }),
        }
        answer
    }

    fn next_arrival(&mut self, timeout_ms: Option<u32>) -> Option<Arrival> {
        let args = timeout_ms.map_or_else(Map::new, |ms| Map::from_iter([("timeoutMs".to_owned(), ms.into())]));
        self.calls.push(RecordedCall { name: "queue.next-event".to_owned(), args: args.into() });
        let ended = if self.backwards { self.ended.pop_back() } else { self.ended.pop_front() };
        if let Some((call, outcome)) = ended {
            return Some(Arrival::Ended(call, outcome));
        }
        let agent_run = format!("agent-run-{}", self.runs);
        match self.acts.pop_front() {
            Some(Act::Reply(reply)) => match self.turns.pop_front() {
                Some(call) => Some(Arrival::Ended(call, reply)),
                None => panic!("the script has {reply:?}, but no turn is in progress"),
            },
            Some(Act::Message(id, value)) => Some(Arrival::Message { agent_run, id, value }),
            Some(Act::Close) => Some(Arrival::Closing(agent_run)),
            Some(Act::Silence) => None,
            None if self.turns.is_empty() => None,
            None => panic!("the script ends, but a turn is in progress"),
        }
    }

    fn state_entry(&self, args: &Value) -> Value {
        let key = args["key"].as_str().unwrap_or_default();
        let entry = |value| json!({ "value": value, "version": self.versions.get(key) });
        self.state.get(key).map_or(Value::Null, entry)
    }

    fn set_state(&mut self, name: &str, args: Value) -> Value {
        let key = args["key"].as_str().unwrap_or_default();
        let version = self.versions.get(key).copied();
        if name == "state.set-if" && args["expected"].as_u64() != version {
            return Value::Null;
        }
        self.write_state(key, args["value"].clone()).into()
    }

    fn write_state(&mut self, key: &str, value: Value) -> u64 {
        self.state.insert(key.to_owned(), value);
        let version = self.versions.entry(key.to_owned()).or_default();
        *version += 1;
        *version
    }
}

/// Creates a model's reply with these blocks and the stop reason `stop`. Its usage is 10 input tokens and 5 output
/// tokens.
pub fn reply(content: &[Value], stop: &str) -> Value {
    json!({
        "id": "reply", "provider": "scripted", "model": "scripted", "content": content, "stop": stop,
        "usage": { "input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "reasoning": 0, "estimated": false },
    })
}

impl std::fmt::Debug for Script {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Script").field("acts", &self.acts).finish_non_exhaustive()
    }
}
