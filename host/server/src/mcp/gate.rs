//! Questions of gates to the client's user, and the user's answers.

use flowcell_contract::Json;
use flowcell_runtime::QuestionRef;
use rmcp::{
    Peer, RoleServer,
    model::{ElicitRequestParams, ElicitationAction},
    service::RequestContext,
};
use serde_json::{Value, json};

/// The first version of the protocol that does not let servers ask the user.
const FIRST_VERSION_WITHOUT_QUESTIONS: &str = "2026-07-28";

/// An open gate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gate {
    pub(super) address: String,
    /// The reference to the question. The answer contains this reference, so that the run does not take it for an
    /// answer to a later question at the same address.
    pub(super) question: QuestionRef,
    prompt: String,
    choices: Vec<String>,
    allows_text: bool,
}

impl Gate {
    /// Parses an entry of the open waits. Returns `None` if it is not a gate.
    pub(super) fn from_wait(waits: &Value) -> Option<Gate> {
        if waits["kind"] != "gate" {
            return None;
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let choices = waits["choices"].as_array().into_iter().flatten();
        let choices: Vec<_> = choices.filter_map(|choice| text(choice).or_else(|| text(&choice["value"]))).collect();
        let allows_text = choices.is_empty() || waits["allowText"] == true;
        Some(Gate {
            address: text(&waits["address"])?,
            question: QuestionRef::of_json(&Json::from(waits.clone())),
            prompt: text(&waits["prompt"]).unwrap_or_default(),
            choices,
            allows_text,
        })
    }

    /// Returns the JSON Schema of the form for the user: it has a field for a choice, a field for a text, or both, of
    /// which the user fills in one.
    fn form(&self) -> Value {
        let choice = json!({ "type": "string", "title": "Answer", "enum": self.choices });
        let text = json!({ "type": "string", "title": "Answer" });
        let (properties, required) = match (self.choices.is_empty(), self.allows_text) {
            (true, _) => (json!({ "text": text }), json!(["text"])),
            (false, false) => (json!({ "choice": choice }), json!(["choice"])),
            (false, true) => (json!({ "choice": choice, "text": text }), json!([])),
        };
        json!({ "type": "object", "properties": properties, "required": required })
    }

    /// Asks the client's user. The answer is `None` if the user declines or the client fails; then the gate stays
    /// open.
    pub(super) async fn ask(self, peer: Peer<RoleServer>) -> (Gate, Option<Json>) {
        let Ok(requested_schema) = serde_json::from_value(self.form()) else { return (self, None) };
        let message = if self.prompt.is_empty() { self.address.clone() } else { self.prompt.clone() };
        let form = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
        let answer = match peer.create_elicitation(form).await {
            Ok(given) if given.action == ElicitationAction::Accept => given.content.and_then(answer),
            _ => None,
        };
        (self, answer)
    }
}

/// Returns the answer in a completed form, or `None` if it is empty. A text takes precedence over a choice.
fn answer(content: Value) -> Option<Json> {
    let filled = |key: &str| content[key].as_str().filter(|text| !text.is_empty()).map(Json::from);
    filled("text").or_else(|| filled("choice"))
}

/// Returns true if the client can ask its user during a tool call.
pub(super) fn can_ask_user(context: &RequestContext<RoleServer>) -> bool {
    let asks = context.protocol_version().is_some_and(|version| version.as_str() < FIRST_VERSION_WITHOUT_QUESTIONS);
    let elicitation = context.client_capabilities().and_then(|client| client.elicitation);
    asks && elicitation.is_some_and(|known| known.form.is_some() || known.url.is_none())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_gate_becomes_a_form() {
        let gate = |choices: Value, text: bool| {
            let waits = json!({ "kind": "gate", "address": "ok", "choices": choices, "allowText": text });
            Gate::from_wait(&waits).unwrap().form()
        };
        let names = |form: Value| form["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let both = [json!(["yes", "no"]), json!([{ "value": "yes" }, { "value": "no" }])];
        for choices in both {
            let form = gate(choices.clone(), false);
            assert_eq!(form["properties"]["choice"]["enum"], json!(["yes", "no"]));
            assert_eq!(names(form), ["choice"]);
            assert_eq!(names(gate(choices, true)), ["choice", "text"]);
        }
        assert_eq!(names(gate(json!([]), false)), ["text"], "a question without choices is answered by a text");
        assert_eq!(Gate::from_wait(&json!({ "kind": "event", "address": "ok" })), None);
    }

    #[test]
    fn a_text_takes_precedence_over_a_choice() {
        assert_eq!(answer(json!({ "choice": "yes", "text": "" })), Some("yes".into()));
        assert_eq!(answer(json!({ "choice": "yes", "text": "later" })), Some("later".into()));
        assert_eq!(answer(json!({})), None);
    }
}
