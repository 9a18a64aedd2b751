//! The text of a flow as the editor has it.

use serde_json::{Value, json};

use crate::{flows::readable, parts::is_deceptive, sent::Form, visit::Visit};

/// Maximum size in bytes of a stored text that the editor opens.
pub(super) const MAX_EDITED_BYTES: usize = 1 << 20;

/// The text of a flow; of a script, its JavaScript.
pub(super) struct Written {
    pub(super) text: String,
    pub(super) is_script: bool,
    /// The name of a script, which its text does not have; or the name of the file for messages.
    name: String,
}

impl Written {
    /// Returns the text of a new flow.
    pub(super) fn new(text: String) -> Written {
        Written { text, is_script: false, name: "flow".to_owned() }
    }

    /// Returns the text of a stored flow, with the line breaks of text fields.
    pub(super) async fn stored(visit: &Visit, name: &str, text: &str) -> Written {
        let of = |text: &str, is_script| Written { text: text.replace("\r\n", "\n"), is_script, name: name.to_owned() };
        if let Ok(flow) = serde_json::from_str::<Value>(text) {
            return match script_in(&flow, name) {
                Some(script) => of(script, true),
                None => of(&readable(text), false),
            };
        }
        // A script in a file of its own, which the text alone does not tell.
        let may_be_script = text.contains("export ") && !text.lines().any(|line| line.starts_with("script:"));
        let is_script = may_be_script
            && visit
                .post("/v1/inspect", &json!({ "flow": name }))
                .await
                .is_ok_and(|about| !about.body["script"].is_null());
        of(text, is_script)
    }

    /// Returns the text of a form. `name` is the flow that its page is about.
    pub(super) fn sent(form: &Form, name: Option<&str>) -> Written {
        let text = form.text("text").unwrap_or_default().to_owned();
        Written {
            text,
            is_script: name.is_some() && form.text("script").is_some(),
            name: name.unwrap_or("flow").to_owned(),
        }
    }

    /// Returns the flow as the API stores it.
    pub(super) fn flow(&self) -> Value {
        match self.is_script {
            true => json!({ "name": self.name, "script": self.text }),
            false => json!(self.text),
        }
    }

    /// Returns the flow for a route that also takes the name of a stored flow. A text with a line break is not a name.
    pub(super) fn named_text(&self) -> Value {
        match self.is_script {
            true => self.flow(),
            false => json!(format!("{}\n", self.text)),
        }
    }

    /// Returns the file name for the assistance of the API.
    pub(super) fn file(&self) -> String {
        format!("{}.{}", self.name, if self.is_script { "flow.js" } else { "yaml" })
    }

    /// Returns the deceptive characters, with their lines from 1.
    pub(super) fn deceptive(&self) -> Vec<(usize, char)> {
        let lines = self.text.split('\n').zip(1..);
        lines.flat_map(|(line, at)| line.chars().filter(|c| is_deceptive(*c)).map(move |c| (at, c))).collect()
    }
}

/// Returns the script of a flow that was posted as `{ name, script }`.
fn script_in<'a>(flow: &'a Value, name: &str) -> Option<&'a str> {
    let members = flow.as_object().filter(|members| members.len() == 2)?;
    members.get("script")?.as_str().filter(|_| flow["name"] == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sent::form_of;

    #[test]
    fn a_script_keeps_its_form_when_it_is_sent_back() {
        let posted = json!({ "name": "greet", "script": "export const run = () => 1" });
        assert_eq!(script_in(&posted, "greet"), Some("export const run = () => 1"));
        assert_eq!(script_in(&posted, "other"), None);
        assert_eq!(script_in(&json!({ "name": "greet", "script": 7 }), "greet"), None);
        let sent = Written::sent(&form_of(&[("text", "x"), ("script", "yes")]), Some("greet"));
        assert_eq!((sent.flow(), sent.file()), (json!({ "name": "greet", "script": "x" }), "greet.flow.js".to_owned()));
        let new = Written::sent(&form_of(&[("text", "x"), ("script", "yes")]), None);
        assert_eq!((new.flow(), new.named_text(), new.file()), (json!("x"), json!("x\n"), "flow.yaml".to_owned()));
    }

    #[test]
    fn deceptive_characters_are_named_with_their_lines() {
        let written = Written::new("a\n\u{202e}b\t\nc\u{200b}".to_owned());
        assert_eq!(written.deceptive(), [(2, '\u{202e}'), (3, '\u{200b}')]);
    }
}
