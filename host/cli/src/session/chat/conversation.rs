//! Tracks a conversation through the events of a run: the open agents, their messages, and the open questions.

use std::time::Instant;

use flowcell::{Json, QuestionRef, contract::Question};

use crate::session::{
    answers::read_question,
    lines::{caller_prefix, shown_choices},
    question_queue::MIN_REACTION_TIME,
};

/// Maximum number of characters shown of a tool's input or output.
const MAX_SHOWN_CHARS: usize = 160;

/// An event of the run or of a child run, recorded or live.
pub(crate) struct ChatEvent<'a> {
    pub(crate) kind: &'a str,
    pub(crate) run: &'a str,
    pub(crate) data: &'a Json,
}

/// A piece of the conversation to show.
#[derive(Debug, PartialEq)]
pub(crate) enum Shown {
    /// The next part of an agent's message.
    Speech { who: String, text: String },
    /// The end of a message.
    EndOfSpeech,
    /// A note about the run.
    Note(String),
    /// A question to the person.
    Question(String),
    /// An error or a refusal.
    Trouble(String),
}

/// An open agent run.
struct Agent {
    /// The address of the agent run, as commands use it.
    address: String,
    /// The address of the node, as commands use it.
    name: String,
    listens: bool,
    idle: bool,
    /// The part of the agent's current message that was shown while the agent wrote it.
    shown: String,
}

/// An open question.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) address: String,
    pub(crate) question: Question,
    /// The reference to the question, which the answer has to contain.
    pub(crate) asked: QuestionRef,
}

impl Asked {
    fn text(&self) -> String {
        format!("{} asks: {} ({})", self.address, self.question.prompt, shown_choices(&self.question))
    }
}

/// The state of the conversation with a run.
#[derive(Default)]
pub(crate) struct Conversation {
    root: String,
    agents: Vec<Agent>,
    pub(crate) questions: Vec<Asked>,
    /// The last time at which the first open question was closed without a line of this conversation, such as by the
    /// answer of another process. `None` if that has not happened.
    closed_by_others: Option<Instant>,
    /// The address of the node that receives lines.
    focus: Option<String>,
    pub(crate) ended: bool,
}

/// The address that receives a typed line, or the reason why none does.
pub(crate) type LineTarget = Result<String, String>;

impl Conversation {
    /// Creates the conversation with a run.
    pub(crate) fn new(root: &str) -> Conversation {
        Conversation { root: root.to_owned(), ..Conversation::default() }
    }

    /// Returns true if a question is open, or if an agent with an inbox is idle.
    pub(crate) fn waits(&self) -> bool {
        !self.questions.is_empty() || self.agents.iter().any(|agent| agent.listens && agent.idle)
    }

    /// Processes an event. Returns the pieces to show.
    pub(crate) fn process(&mut self, event: &ChatEvent<'_>) -> Vec<Shown> {
        let prefix = caller_prefix(event.run, &self.root);
        let text = |name: &str| event.data.get(name).and_then(Json::as_str).unwrap_or_default();
        match event.kind {
            "agent:start" => self.open_agent(&prefix, event.data),
            "agent:state" => self.with_agent(event.data, |agent| {
                agent.idle = text("state") == "idle";
                match agent.idle && agent.listens {
                    true => vec![Shown::Note(format!("{} listens", agent.name))],
                    false => Vec::new(),
                }
            }),
            "agent:text" => self.with_agent(event.data, |agent| agent.add_speech(text("delta"))),
            "agent:retry" => self.with_agent(event.data, |agent| {
                agent.shown.clear();
                vec![Shown::EndOfSpeech, Shown::Note(format!("{} begins again: {}", agent.name, text("reason")))]
            }),
            "agent:message" => self.with_agent(event.data, |agent| agent.complete_message(event.data)),
            "agent:complete" => self.close_agent(event.data, &format!("is done ({})", text("stopReason"))),
            "agent:error" => self.close_agent(event.data, &format!("failed: {}", failure(event.data))),
            "agent:tool:start" => {
                let input = event.data.get("input");
                let input = input.map(|input| input.as_str().map_or_else(|| input.to_text(), str::to_owned));
                let input = input.unwrap_or_default();
                self.about_tool(event.data, &format!("calls {} {}", text("tool"), shorten(&input)))
            }
            "agent:tool:result" => {
                self.about_tool(event.data, &format!("has {}: {}", text("tool"), shorten(text("summary"))))
            }
            "agent:tool:error" => {
                self.about_tool(event.data, &format!("has no {}: {}", text("tool"), failure(event.data)))
            }
            "agent:tool:permission" => {
                let choices = ["allow", "deny"].map(Json::from);
                let named = ["attempt", "digest", "prompt"].into_iter();
                let named = named.filter_map(|name| Some((name, event.data.get(name)?.clone())));
                let question = Json::object(named.chain([("choices", Json::array(choices))]));
                self.add_question(format!("{prefix}{}", text("address")), &question)
            }
            "agent:tool:decision" => {
                let call = event.data.get("call").and_then(Json::as_u64).unwrap_or_default();
                self.remove_question(&format!("{prefix}{}#{call}", task_address(event.data)))
            }
            "task:paused" => match event.data.get("question") {
                Some(question) => self.add_question(format!("{prefix}{}", task_address(event.data)), question),
                None => Vec::new(),
            },
            "task:woken" | "task:failed" | "task:cancelled" | "session:reply" => {
                self.remove_question(&format!("{prefix}{}", task_address(event.data)))
            }
            "harness:complete" if event.run == self.root => {
                self.ended = true;
                self.questions.clear();
                vec![Shown::EndOfSpeech]
            }
            _ => Vec::new(),
        }
    }

    fn open_agent(&mut self, prefix: &str, data: &Json) -> Vec<Shown> {
        let id = data.get("agentRunId").and_then(Json::as_str).unwrap_or_default();
        let listens = data.get("inbox").is_some_and(|inbox| !inbox.is_null() && inbox.as_bool() != Some(false));
        let agent = Agent {
            address: format!("{prefix}{id}"),
            name: format!("{prefix}{}", task_address(data)),
            listens,
            idle: false,
            shown: String::new(),
        };
        let note = format!("{} begins{}", agent.name, if listens { " and takes messages" } else { "" });
        self.agents.push(agent);
        vec![Shown::Note(note)]
    }

    fn close_agent(&mut self, data: &Json, how: &str) -> Vec<Shown> {
        let Some(index) = self.index_of(data) else { return Vec::new() };
        let agent = self.agents.remove(index);
        if self.focus.as_ref() == Some(&agent.name) {
            self.focus = None;
        }
        vec![Shown::EndOfSpeech, Shown::Note(format!("{} {how}", agent.name))]
    }

    fn about_tool(&mut self, data: &Json, what: &str) -> Vec<Shown> {
        self.with_agent(data, |agent| vec![Shown::EndOfSpeech, Shown::Note(format!("{} {what}", agent.name))])
    }

    fn add_question(&mut self, address: String, question: &Json) -> Vec<Shown> {
        let (question, asked) = (read_question(question), QuestionRef::of_json(question));
        let asked = Asked { address, question, asked };
        let text = asked.text();
        self.questions.push(asked);
        vec![Shown::EndOfSpeech, Shown::Question(text)]
    }

    /// Removes the question at an address. If it was the first question, which the next typed line would have answered,
    /// returns a note and the question that is now the first one, to show them. Otherwise returns nothing to show.
    fn remove_question(&mut self, address: &str) -> Vec<Shown> {
        let was_first = self.questions.first().is_some_and(|asked| asked.address == address);
        self.questions.retain(|asked| asked.address != address);
        if !was_first {
            return Vec::new();
        }
        self.closed_by_others = Some(Instant::now());
        let Some(next) = self.questions.first() else { return Vec::new() };
        let note = Shown::Note(format!("the question at `{address}` is closed"));
        vec![Shown::EndOfSpeech, note, Shown::Question(next.text())]
    }

    /// Returns true if a question has closed less than [`MIN_REACTION_TIME`] ago. A person cannot react to the next
    /// question in so short a time, so a line that arrives now was typed for the closed one.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.closed_by_others.is_some_and(|since| now < since + MIN_REACTION_TIME)
    }

    fn index_of(&self, data: &Json) -> Option<usize> {
        let id = data.get("agentRunId")?.as_str()?;
        self.agents.iter().position(|agent| agent.address.rsplit('/').next() == Some(id))
    }

    fn with_agent(&mut self, data: &Json, act: impl FnOnce(&mut Agent) -> Vec<Shown>) -> Vec<Shown> {
        let index = self.index_of(data);
        index.and_then(|index| self.agents.get_mut(index)).map_or_else(Vec::new, act)
    }

    /// Selects the agent that receives later lines. Returns its name.
    pub(crate) fn choose(&mut self, name: &str) -> Result<String, String> {
        let agent = self.find_agent(name)?.name.clone();
        self.focus = Some(agent.clone());
        Ok(agent)
    }

    /// Returns the address that receives a line: the named agent, or else the agent selected by `/to`, or else the
    /// only agent with an inbox.
    pub(crate) fn target(&mut self, name: Option<&str>) -> LineTarget {
        let name = name.map(str::to_owned).or_else(|| self.focus.clone());
        let address = match name {
            Some(name) => self.find_agent(&name)?.address.clone(),
            None => match self.agents_with_inbox().collect::<Vec<_>>().as_slice() {
                [agent] => agent.address.clone(),
                [] => return Err("no agent is listening".into()),
                several => {
                    let names: Vec<_> = several.iter().map(|agent| agent.name.as_str()).collect();
                    return Err(format!("several agents listen; choose one with `/to NAME`: {}", names.join(", ")));
                }
            },
        };
        // The agent counts as busy until an event says that it is idle again.
        self.agents.iter_mut().filter(|agent| agent.address == address).for_each(|agent| agent.idle = false);
        Ok(address)
    }

    fn find_agent(&self, name: &str) -> Result<&Agent, String> {
        let found = self.agents.iter().rev().find(|agent| agent.name == name || agent.address == name);
        found.ok_or_else(|| match self.agents.is_empty() {
            true => "no agent is open".to_owned(),
            false => format!("the agent `{name}` is not open; {}", self.list_agents()),
        })
    }

    fn agents_with_inbox(&self) -> impl Iterator<Item = &Agent> {
        self.agents.iter().filter(|agent| agent.listens)
    }

    /// Returns a text that lists the open agents and their states.
    pub(crate) fn list_agents(&self) -> String {
        let names = self.agents.iter().map(|agent| match (agent.listens, agent.idle) {
            (true, true) => format!("{} (listens)", agent.name),
            (true, false) => format!("{} (works)", agent.name),
            (false, _) => format!("{} (takes no messages)", agent.name),
        });
        let names: Vec<_> = names.collect();
        if names.is_empty() { "no agent is open".into() } else { format!("open: {}", names.join(", ")) }
    }
}

impl Agent {
    fn add_speech(&mut self, delta: &str) -> Vec<Shown> {
        self.shown.push_str(delta);
        vec![Shown::Speech { who: self.name.clone(), text: delta.to_owned() }]
    }

    /// Processes a complete message. Shows the part that was not shown while the agent wrote it.
    fn complete_message(&mut self, data: &Json) -> Vec<Shown> {
        let blocks = data.get("content").and_then(Json::as_array).unwrap_or_default();
        let texts = blocks.iter().filter(|block| block.get("type").and_then(Json::as_str) == Some("text"));
        let whole: String = texts.filter_map(|block| block.get("text")?.as_str()).collect();
        let shown = std::mem::take(&mut self.shown);
        let who = self.name.clone();
        match whole.strip_prefix(shown.as_str()) {
            Some("") => vec![Shown::EndOfSpeech],
            Some(rest) => vec![Shown::Speech { who, text: rest.to_owned() }, Shown::EndOfSpeech],
            None => vec![Shown::EndOfSpeech, Shown::Speech { who, text: whole }, Shown::EndOfSpeech],
        }
    }
}

/// Returns the address of a task within its run.
fn task_address(data: &Json) -> String {
    let text = |name: &str| data.get(name).and_then(Json::as_str);
    let task = text("taskId").or_else(|| text("nodeId")).unwrap_or_default();
    text("scope").map_or_else(|| task.to_owned(), |scope| format!("{scope}.{task}"))
}

fn failure(data: &Json) -> String {
    let text = |name: &str| data.get("error").and_then(|error| error.get(name)?.as_str()).unwrap_or_default();
    format!("{}: {}", text("code"), text("message"))
}

fn shorten(text: &str) -> String {
    let cut = text.char_indices().nth(MAX_SHOWN_CHARS).map(|(at, _)| &text[..at]);
    cut.map_or_else(|| text.to_owned(), |cut| format!("{cut}…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(events: &[(&str, &str)]) -> (Conversation, Vec<Shown>) {
        let mut conversation = Conversation::new("r");
        let shown = events.iter().flat_map(|(kind, data)| process(&mut conversation, "r", kind, data)).collect();
        (conversation, shown)
    }

    fn process(conversation: &mut Conversation, run: &str, kind: &str, data: &str) -> Vec<Shown> {
        conversation.process(&ChatEvent { kind, run, data: &Json::parse(data).unwrap() })
    }

    fn text(events: &[(&str, &str)]) -> String {
        let speech = |shown: Shown| match shown {
            Shown::Speech { text, .. } => text,
            Shown::EndOfSpeech => "|".into(),
            _ => String::new(),
        };
        conversation(events).1.into_iter().map(speech).collect()
    }

    const START: (&str, &str) = ("agent:start", r#"{"agentRunId":"a1","taskId":"bot","inbox":true}"#);
    const IDLE: (&str, &str) = ("agent:state", r#"{"agentRunId":"a1","state":"idle"}"#);

    #[test]
    fn a_partly_shown_message_is_completed_and_not_repeated() {
        let delta = |text: &str| format!(r#"{{"agentRunId":"a1","delta":"{text}"}}"#);
        let message =
            ("agent:message", r#"{"agentRunId":"a1","content":[{"type":"text","text":"one two"},{"type":"raw"}]}"#);
        let (one, two, odd) = (delta("one"), delta(" two"), delta("uno"));
        assert_eq!(text(&[START, message]), "one two|");
        assert_eq!(text(&[START, ("agent:text", &one), message]), "one two|");
        assert_eq!(text(&[START, ("agent:text", &one), ("agent:text", &two), message, message]), "one two|one two|");
        assert_eq!(text(&[START, ("agent:text", &odd), message]), "uno|one two|");
        let retry = ("agent:retry", r#"{"agentRunId":"a1","reason":"truncated"}"#);
        assert_eq!(text(&[START, ("agent:text", &odd), retry, ("agent:text", &one), message]), "uno|one two|");
    }

    #[test]
    fn a_line_is_awaited_while_an_agent_listens_or_a_question_is_open() {
        assert!(!conversation(&[START]).0.waits());
        let (mut talking, _) = conversation(&[START, IDLE]);
        assert!(talking.waits());
        assert_eq!(talking.target(None), Ok("a1".into()));
        assert!(!talking.waits(), "one line is enough until it says otherwise");
        let asked =
            ("agent:tool:permission", r#"{"agentRunId":"a1","taskId":"bot","address":"bot#3","prompt":"May I?"}"#);
        let (mut talking, shown) = conversation(&[START, asked]);
        assert!(talking.waits());
        assert_eq!(shown.last(), Some(&Shown::Question("bot#3 asks: May I? (allow|deny)".into())));
        process(&mut talking, "r", "agent:tool:decision", r#"{"taskId":"bot","call":3}"#);
        assert!(!talking.waits());
        process(&mut talking, "r.review.1", "task:paused", r#"{"taskId":"g","question":{"prompt":"?"}}"#);
        assert_eq!(talking.questions[0].address, "review/g");
        process(
            &mut talking,
            "r",
            "task:paused",
            r#"{"taskId":"h","question":{"prompt":"And?","attempt":2,"digest":"d"}}"#,
        );
        let shown = process(&mut talking, "r.review.1", "task:woken", r#"{"taskId":"g"}"#);
        assert_eq!(shown.last(), Some(&Shown::Question("h asks: And? (text)".into())), "the next one is shown again");
        assert!(talking.is_late(Instant::now()), "a line was typed for the one that has closed");
        assert_eq!(talking.questions[0].asked, QuestionRef { attempt: Some(2), digest: Some("d".into()) });
        process(&mut talking, "r", "task:woken", r#"{"taskId":"h"}"#);
        assert!(!talking.waits());
        process(&mut talking, "r.review.1", "task:paused", r#"{"taskId":"g","question":{"prompt":"?"}}"#);
        process(&mut talking, "r.review.1", "task:woken", r#"{"taskId":"g"}"#);
        assert!(!talking.waits());
    }

    #[test]
    fn one_of_several_agents_is_chosen_by_name() {
        let second = ("agent:start", r#"{"agentRunId":"a2","taskId":"other","inbox":true}"#);
        let silent = ("agent:start", r#"{"agentRunId":"a3","taskId":"mute"}"#);
        let (mut talking, _) = conversation(&[silent]);
        assert_eq!(talking.target(None), Err("no agent is listening".into()));
        let (mut talking, _) = conversation(&[START, second, silent]);
        assert!(talking.target(None).unwrap_err().contains("/to NAME"));
        assert!(talking.choose("nobody").unwrap_err().contains("open: bot (works), other (works), mute (takes no"));
        assert_eq!(talking.choose("other"), Ok("other".into()));
        assert_eq!((talking.target(None), talking.target(Some("bot"))), (Ok("a2".into()), Ok("a1".into())));
        process(&mut talking, "r", "agent:complete", r#"{"agentRunId":"a2","stopReason":"end"}"#);
        assert_eq!(talking.target(None), Ok("a1".into()), "the one who was chosen has gone");
    }
}
