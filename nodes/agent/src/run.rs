//! The agent loop: asks the model, calls the tools that the model wants, waits for messages, and asks again.

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
    shape::{self, AnswerSchema},
    toolbox::Toolbox,
};

/// Performs an agent run from its first message to its end.
pub(crate) fn run(task: &Task, preset: &Preset) -> Result<Step> {
    let (settings, messages) = settings::read(task, preset)?;
    let shape = settings.output.as_ref().map(AnswerSchema::new).transpose()?;
    let toolbox = Toolbox::find(&settings)?;
    let mut said = session::load(&settings)?;
    said.extend(messages);
    let id = agent::open(&settings.description_for_start_event(&toolbox.names()))?;
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
    match run.run_to_end() {
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
    shape: Option<AnswerSchema>,
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

/// The end of a turn or of the whole agent run, each with its reason.
enum End {
    Turn(&'static str),
    Run(&'static str),
}

impl AgentRun {
    fn run_to_end(&mut self) -> Result<Outcome> {
        self.report_state("running")?;
        let stop = loop {
            let end = self.run_turn()?;
            if let Some(stop) = self.find_reason_to_end(&end)? {
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
        agent::close(&self.id, Ok(&outcome.for_final_event()))?;
        Ok(outcome)
    }

    /// Asks the model until the turn or the whole agent run ends.
    fn run_turn(&mut self) -> Result<End> {
        self.text.clear();
        self.structured = None;
        let mut repairs = 0;
        loop {
            if let Some(reason) = self.limits.exhausted_limit() {
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
                    self.add_reply(without_tool_uses(reply.content));
                    return Ok(End::Turn("max_tokens"));
                }
                Stop::Paused => {
                    self.add_reply(reply.content);
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
            self.add_reply(reply.content);
            if self.accept_answer(&text, &mut repairs)? {
                return Ok(End::Turn(reason));
            }
        }
    }

    /// Returns the reason why the agent run ends after a turn. Otherwise waits for the messages of the next turn, adds
    /// them to the conversation, and returns `None`.
    fn find_reason_to_end(&mut self, end: &End) -> Result<Option<&'static str>> {
        let reason = match end {
            End::Run(reason) => return Ok(Some(reason)),
            End::Turn(reason) => reason,
        };
        if self.settings.inbox.is_none() && self.inbox.is_empty() {
            return Ok(Some(reason));
        }
        let used_up = self.limits.has_no_turns_left().then_some("max_turns").or_else(|| self.limits.exhausted_limit());
        if used_up.is_some() {
            return Ok(used_up);
        }
        if self.inbox.is_empty()
            && let Some(reason) = self.wait_for_message()?
        {
            return Ok(Some(reason));
        }
        let most = if self.settings.mode() == Mode::Queue { 1 } else { usize::MAX };
        self.add_waiting_messages(most);
        Ok(None)
    }

    /// Waits for a message. Returns `None` once a message has arrived, or the reason why the agent run ends without
    /// one.
    fn wait_for_message(&mut self) -> Result<Option<&'static str>> {
        if self.inbox.is_closing() {
            return Ok(Some("closed"));
        }
        self.report_state("idle")?;
        let idle_ms = self.settings.inbox.as_ref().and_then(|inbox| inbox.idle_close_ms);
        match self.inbox.listen(idle_ms)? {
            ListenEnd::Message => {
                self.report_state("running")?;
                Ok(None)
            }
            ListenEnd::Nothing if idle_ms.is_some() => Ok(Some("idle")),
            ListenEnd::Nothing | ListenEnd::Closing => Ok(Some("closed")),
        }
    }

    /// Asks the model. If the model fails with a retryable failure, there is a fallback model, and no limit is
    /// exhausted, asks that model instead, now and in all later calls.
    fn ask(&mut self) -> Result<Reply> {
        loop {
            self.limits.count_call();
            let started = model::start_generate(&self.request());
            let failure = match started.and_then(|call| self.inbox.wait_for_end(call)) {
                Ok(reply) => {
                    let reply = Reply::read(reply)?;
                    self.limits.usage.add(&reply.usage);
                    return Ok(reply);
                }
                Err(failure) => failure,
            };
            let may_ask = failure.retryable && self.limits.exhausted_limit().is_none();
            let Some(other) = self.fallback.take_if(|_| may_ask) else { return Err(failure) };
            self.report_fallback(&other, &failure)?;
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
        let results = self.toolbox.make_calls(reply.tool_uses(), &self.id, &mut self.inbox)?;
        self.add_reply(reply.content);
        self.conversation.push(Message::user(results));
        if self.settings.mode() == Mode::Steer {
            self.add_waiting_messages(usize::MAX);
        }
        Ok(())
    }

    /// Checks the answer against the output schema. If it fits, stores it and returns true. If it does not, adds a
    /// message that asks the model for a repair, and returns false. Fails after `max_repairs` repairs.
    fn accept_answer(&mut self, text: &str, repairs: &mut u32) -> Result<bool> {
        let Some(shape) = &self.shape else { return Ok(true) };
        match shape.read(text) {
            Ok(value) => {
                self.structured = Some(value);
                Ok(true)
            }
            Err(errors) if *repairs >= shape.max_repairs => Err(shape.repairs_failed(&errors)),
            Err(errors) => {
                *repairs += 1;
                self.conversation.push(Message::user(shape::repair_request(&errors)));
                Ok(false)
            }
        }
    }

    /// Adds at most `most` waiting messages to the conversation. Each message counts as a turn. Stops early if no turns
    /// are left.
    fn add_waiting_messages(&mut self, most: usize) {
        for _ in 0..most {
            if self.limits.has_no_turns_left() {
                return;
            }
            let Some(content) = self.inbox.take() else { return };
            self.limits.turns += 1;
            self.conversation.push(Message::user(content));
        }
    }

    fn add_reply(&mut self, content: Vec<Block>) {
        self.conversation.push(Message::assistant(content));
    }

    fn report_state(&self, state: &str) -> Result<()> {
        agent::tell(&self.id, "state", &json!({ "state": state }))
    }

    fn report_fallback(&self, other: &str, failure: &Failure) -> Result<()> {
        let data = json!({ "from": self.model, "to": other, "code": failure.code });
        agent::tell(&self.id, "model.fallback", &data)
    }
}

/// Removes tool uses from a reply that was cut off: they may be incomplete, and they get no results.
fn without_tool_uses(mut content: Vec<Block>) -> Vec<Block> {
    content.retain(|block| block.as_tool_use().is_none());
    content
}
