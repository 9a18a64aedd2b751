//! The agent loop: ask the model, call the tools that it wants, listen for messages, and ask again.

use flowcell_sdk::{
    Failure, Result, Step, Task, agent,
    model::{self, Block, Message, Reply, Request, Stop, ToolChoice},
};
use serde_json::{Value, json};

use crate::{
    conversation::Conversation,
    inbox::{Inbox, ListenEnd},
    limits::Limits,
    outcome::Outcome,
    preset::Preset,
    session,
    settings::{self, Mode, Settings},
    shape::{self, Shape},
    toolbox::Toolbox,
};

/// Runs one agent.
pub(crate) fn run(task: &Task, preset: &Preset) -> Result<Step> {
    let (settings, messages) = settings::read(task, preset)?;
    let shape = settings.output.as_ref().map(Shape::new).transpose()?;
    let toolbox = Toolbox::find(&settings)?;
    let mut said = session::load(&settings)?;
    said.extend(messages);
    let id = agent::open(&settings.about(&toolbox.names()))?;
    let mut run = AgentRun {
        model: settings.model.clone(),
        fallback: settings.fallback_model.clone(),
        limits: Limits::new(&settings),
        inbox: Inbox::new(&id),
        conversation: Conversation::new(said),
        settings,
        shape,
        toolbox,
        text: String::new(),
        structured: None,
        id,
    };
    match run.finish() {
        Ok(outcome) => Step::value(outcome.output(run.settings.args)),
        Err(failure) => {
            // The task fails with the first failure, so a failure of the close is ignored.
            let _ = agent::close(&run.id, Err(&failure));
            Err(failure)
        }
    }
}

struct AgentRun {
    id: String,
    settings: Settings,
    shape: Option<Shape>,
    toolbox: Toolbox,
    inbox: Inbox,
    limits: Limits,
    conversation: Conversation,
    model: Option<String>,
    /// The model to ask if the first one cannot answer.
    fallback: Option<String>,
    /// The model's last text.
    text: String,
    structured: Option<Value>,
}

/// The end of a turn or of the whole agent run, with the reason.
enum End {
    Turn(&'static str),
    Run(&'static str),
}

impl AgentRun {
    fn finish(&mut self) -> Result<Outcome> {
        self.tell_state("running")?;
        let stop = loop {
            let end = self.turn()?;
            if let Some(stop) = self.go_on(&end)? {
                break stop;
            }
        };
        self.inbox.discard(stop)?;
        session::store(&self.settings, self.conversation.messages())?;
        let outcome = Outcome {
            result: std::mem::take(&mut self.text),
            structured: self.structured.take(),
            usage: self.limits.usage.clone(),
            turns: self.limits.turns,
            stop,
        };
        agent::close(&self.id, Ok(&outcome.shown()))?;
        Ok(outcome)
    }

    /// Asks the model until its turn or the agent run ends.
    fn turn(&mut self) -> Result<End> {
        self.text.clear();
        self.structured = None;
        let mut repairs = 0;
        loop {
            if let Some(reason) = self.limits.used_up() {
                return Ok(End::Run(reason));
            }
            let reply = self.ask()?;
            let text = reply.text();
            if !text.is_empty() {
                self.text = text;
            }
            let reason = match reply.stop {
                Stop::Refusal => return Ok(End::Run("refusal")),
                Stop::ContentFilter => return Ok(End::Run("content_filter")),
                Stop::ContextExceeded => return Ok(End::Run("context_exceeded")),
                Stop::MaxTokens => {
                    self.say(without_tool_uses(reply.content));
                    return Ok(End::Turn("max_tokens"));
                }
                Stop::Paused => {
                    self.say(reply.content);
                    continue;
                }
                _ if reply.tool_uses().next().is_some() => {
                    self.call_tools(reply)?;
                    continue;
                }
                Stop::StopSequence => "stop_sequence",
                Stop::End | Stop::ToolCalls | Stop::Other => "end",
            };
            let text = reply.text();
            self.say(reply.content);
            if self.is_in_shape(&text, &mut repairs)? {
                return Ok(End::Turn(reason));
            }
        }
    }

    /// Decides whether the agent run continues after a turn. Returns `None` for another turn, otherwise the reason why
    /// the agent run ends.
    fn go_on(&mut self, end: &End) -> Result<Option<&'static str>> {
        let reason = match end {
            End::Run(reason) => return Ok(Some(reason)),
            End::Turn(reason) => reason,
        };
        if self.settings.inbox.is_none() && self.inbox.is_empty() {
            return Ok(Some(reason));
        }
        let used_up = self.limits.no_more_turns().then_some("max_turns").or_else(|| self.limits.used_up());
        if used_up.is_some() {
            return Ok(used_up);
        }
        if self.inbox.is_empty()
            && let Some(reason) = self.wait()?
        {
            return Ok(Some(reason));
        }
        let most = if self.settings.mode() == Mode::Queue { 1 } else { usize::MAX };
        self.apply(most);
        Ok(None)
    }

    /// Waits for a message. Returns `None` once a message has arrived, otherwise the reason why the agent run ends.
    fn wait(&mut self) -> Result<Option<&'static str>> {
        if self.inbox.is_closing() {
            return Ok(Some("closed"));
        }
        self.tell_state("idle")?;
        let idle_ms = self.settings.inbox.as_ref().and_then(|inbox| inbox.idle_close_ms);
        match self.inbox.listen(idle_ms)? {
            ListenEnd::Message => {
                self.tell_state("running")?;
                Ok(None)
            }
            ListenEnd::Nothing if idle_ms.is_some() => Ok(Some("idle")),
            ListenEnd::Nothing | ListenEnd::Closing => Ok(Some("closed")),
        }
    }

    /// Asks the model. After a retryable failure, uses the fallback model from then on, if there is one.
    fn ask(&mut self) -> Result<Reply> {
        loop {
            self.limits.count_call();
            let started = model::start_generate(&self.request());
            let failure = match started.and_then(|call| self.inbox.end_of(call)) {
                Ok(reply) => {
                    let reply = Reply::read(reply)?;
                    self.limits.usage.add(&reply.usage);
                    return Ok(reply);
                }
                Err(failure) => failure,
            };
            let may_ask = failure.retryable && self.limits.used_up().is_none();
            let Some(other) = self.fallback.take_if(|_| may_ask) else { return Err(failure) };
            self.tell_fallback(&other, &failure)?;
            self.model = Some(other);
        }
    }

    fn request(&self) -> Request {
        let Settings { provider, system, sampling, params, .. } = &self.settings;
        let no_tools = self.toolbox.is_used_up() && !self.toolbox.names().is_empty();
        Request {
            provider: provider.clone(),
            model: self.model.clone(),
            system: system.clone(),
            messages: self.conversation.messages().to_vec(),
            tools: self.toolbox.offers(),
            tool_choice: no_tools.then_some(ToolChoice::None),
            output_schema: self.shape.as_ref().map(|shape| shape.schema.clone()),
            sampling: sampling.clone(),
            params: params.clone(),
            agent_run_id: Some(self.id.clone()),
        }
    }

    fn call_tools(&mut self, reply: Reply) -> Result<()> {
        let results = self.toolbox.answer(reply.tool_uses(), &self.id, &mut self.inbox)?;
        self.say(reply.content);
        self.conversation.push(Message::user(results));
        if self.settings.mode() == Mode::Steer {
            self.apply(usize::MAX);
        }
        Ok(())
    }

    /// Checks the answer against the output schema. If it does not fit, sends the errors to the model and returns
    /// false; fails after `max_repairs` repairs.
    fn is_in_shape(&mut self, text: &str, repairs: &mut u32) -> Result<bool> {
        let Some(shape) = &self.shape else { return Ok(true) };
        match shape.read(text) {
            Ok(value) => {
                self.structured = Some(value);
                Ok(true)
            }
            Err(errors) if *repairs >= shape.max_repairs => Err(shape.given_up(&errors)),
            Err(errors) => {
                *repairs += 1;
                self.conversation.push(Message::user(shape::repair_request(&errors)));
                Ok(false)
            }
        }
    }

    /// Adds up to `most` waiting messages to the conversation. Each counts as a turn; stops at the maximum of turns.
    fn apply(&mut self, most: usize) {
        for _ in 0..most {
            if self.limits.no_more_turns() {
                return;
            }
            let Some(content) = self.inbox.take() else { return };
            self.limits.turns += 1;
            self.conversation.push(Message::user(content));
        }
    }

    fn say(&mut self, content: Vec<Block>) {
        self.conversation.push(Message::assistant(content));
    }

    fn tell_state(&self, state: &str) -> Result<()> {
        agent::tell(&self.id, "state", &json!({ "state": state }))
    }

    fn tell_fallback(&self, other: &str, failure: &Failure) -> Result<()> {
        let data = json!({ "from": self.model, "to": other, "code": failure.code });
        agent::tell(&self.id, "model.fallback", &data)
    }
}

/// Removes tool uses from a reply that was cut off: they may be incomplete, and they get no results.
fn without_tool_uses(mut content: Vec<Block>) -> Vec<Block> {
    content.retain(|block| block.as_tool_use().is_none());
    content
}
