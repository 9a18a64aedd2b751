//! The types of n8n nodes that change items and choose ways.

use serde_json::{Map, Value, json};

use super::{
    N8n, Port, calls, conditions, dates, fields, lists, merge, old, pointer, respond, schedule, switch,
    values::{self, Place},
    workflows,
};
use crate::{
    draft::{Node, On},
    expr::{REFUSED, Term, binding, bounded},
    report::{At, Verdict},
};

impl N8n<'_> {
    /// Writes a node.
    pub(super) fn node(&mut self, node: usize) {
        if self.is_trigger(node) {
            return self.trigger(node);
        }
        let (list, sources) = self.input(node, 0);
        let is_disabled = self.nodes[node].get("disabled") == Some(&true.into());
        let empty = Map::new();
        let parameters = self.parameters(node).unwrap_or(&empty);
        match self.kind(node) {
            _ if is_disabled => {
                self.report.note(Verdict::Exact, &pointer(node).join("disabled"), "disabled", "it hands its items on");
                self.hand_on(node, &list, &sources);
            }
            "noOp" => self.hand_on(node, &list, &sources),
            "set" => fields::set(self, node, parameters, &list, &sources),
            "if" => self.branch(node, parameters, &list, &sources, 2),
            "filter" => self.branch(node, parameters, &list, &sources, 1),
            "switch" => switch::switch(self, node, parameters, &list, &sources),
            "merge" => merge::merge(self, node, parameters),
            "limit" => lists::limit(self, node, parameters, &list, &sources),
            "aggregate" => lists::aggregate(self, node, parameters, &list, &sources),
            "sort" => lists::sort(self, node, parameters, &list, &sources),
            "splitOut" => lists::split_out(self, node, parameters, &list, &sources),
            "removeDuplicates" => lists::unique(self, node, parameters, &list, &sources),
            "dateTime" => dates::date(self, node, parameters, &list, &sources),
            "executeWorkflow" => workflows::call(self, node, parameters, &list, &sources),
            "respondToWebhook" => respond::respond(self, node, parameters, &list, &sources),
            "wait" => self.wait(node, parameters, &list, &sources),
            "stopAndError" => self.stop(node, parameters, &list, &sources),
            "httpRequest" => calls::request(self, node, parameters, &list, &sources),
            "code" | "function" => calls::code(self, node, parameters, &list, &sources),
            _ => calls::missing(self, node, &list, &sources),
        }
    }

    /// Sets the only output of a node: the list in a member of the flow node's output.
    pub(super) fn single(&mut self, node: usize, id: &str, member: &'static str, list: String, may_be_empty: bool) {
        self.ports.insert(node, vec![Port { list, from: Some(id.to_owned()), may_be_empty, fails: false }]);
        self.fields.insert(node, (id.to_owned(), member));
    }

    pub(super) fn hand_on(&mut self, node: usize, list: &str, sources: &[Port]) {
        let id = self.fresh(node);
        self.add(node, Node::value(&id, binding(list)), sources);
        self.single(node, &id, "value", format!("{id}.value"), false);
    }

    fn trigger(&mut self, node: usize) {
        let at = pointer(node);
        let empty = Map::new();
        let parameters = self.parameters(node).unwrap_or(&empty);
        let id = self.fresh(node);
        let list = match self.kind(node) {
            "manualTrigger" | "start" | "executeWorkflowTrigger" => {
                // The fields of the input and their types are a hint for the editor there.
                let known: &[&str] = match self.kind(node) {
                    "executeWorkflowTrigger" => &["inputSource", "workflowInputs", "jsonExample"],
                    _ => &[],
                };
                self.unknown(parameters, known, &at.join("parameters"));
                "[flow.input]".to_owned()
            }
            "webhook" => {
                let why = "posts are signed here; only `body` is known, and no headers and no query";
                self.report.note(Verdict::Approximated, &at, "webhook", why);
                // The address and the method are those of the trigger here.
                self.unknown(parameters, &["path", "httpMethod", "options", "responseMode"], &at.join("parameters"));
                self.options(parameters, &[], &at.join("parameters"));
                let mut webhook = json!({ "secret": format!("{id}-hook") });
                self.answer(parameters, &at.join("parameters").join("responseMode"), &mut webhook);
                self.declare(json!({ "id": id, "webhook": webhook }));
                "[{'body': flow.input.trigger.body}]".to_owned()
            }
            "scheduleTrigger" => {
                self.unknown(parameters, &["rule"], &at.join("parameters"));
                self.schedule(&id, parameters, &at);
                "[{'timestamp': run.started}]".to_owned()
            }
            kind => {
                self.report.note(
                    Verdict::Refused,
                    &at,
                    kind,
                    "nothing starts the flow in this way; see `flowcell help trigger`",
                );
                "[flow.input]".to_owned()
            }
        };
        if self.triggers > 1 {
            let why = "each trigger starts its own way there, and a run goes all ways here; add `when` with `flow.input.trigger.id`";
            self.report.note(Verdict::Approximated, &at, "several triggers", why);
        }
        self.add(node, Node::value(&id, binding(&list)), &[]);
        self.single(node, &id, "value", format!("{id}.value"), false);
    }

    /// Adds the answer to posts to a webhook.
    fn answer(&mut self, parameters: &Map<String, Value>, at: &At, webhook: &mut Value) {
        let mode = parameters.get("responseMode").map_or(Some("onReceived"), Value::as_str);
        let (respond, why) = match mode {
            Some("responseNode") => ("node", None),
            Some("lastNode") => ("outputs", Some((Verdict::Approximated, "the answer has the outputs of the flow"))),
            Some("onReceived") => ("run", Some((Verdict::Approximated, "the answer has the id of the run"))),
            _ => ("run", Some((Verdict::Refused, "the answer has the id of the run; see `flowcell help respond`"))),
        };
        if let Some((verdict, why)) = why {
            self.report.note(verdict, at, "responseMode", why);
        }
        if respond != "run" {
            webhook["respond"] = respond.into();
        }
    }

    /// Adds a trigger for each interval of a Schedule Trigger.
    fn schedule(&mut self, id: &str, parameters: &Map<String, Value>, at: &At) {
        let rules = parameters.get("rule").and_then(|rule| rule.get("interval")?.as_array());
        for (index, rule) in rules.into_iter().flatten().enumerate() {
            let at = at.join("parameters").join("rule").join("interval").join(index);
            match schedule::cron(rule) {
                Some(cron) => {
                    self.declare(json!({ "id": format!("{id}_{}", index + 1), "cron": cron }));
                    self.report.note(
                        Verdict::Approximated,
                        &at,
                        "interval",
                        "compare the times and the time zone of the trigger",
                    );
                }
                None => self.report.note(Verdict::Refused, &at, "interval", "write a trigger with `cron`"),
            }
        }
    }

    /// Adds a trigger to the flow.
    fn declare(&mut self, trigger: Value) {
        let triggers = self.draft.head.entry("triggers").or_insert_with(|| json!([]));
        if let Some(triggers) = triggers.as_array_mut() {
            match triggers.len() < flowcell_flow::limits::TRIGGERS {
                true => triggers.push(trigger),
                false => {
                    let why = "a flow has at most 16 triggers; bind the others with `flowcell trigger create`";
                    self.report.note(Verdict::Refused, &At::default(), "triggers", why);
                }
            }
        }
    }

    /// Writes `data.filter` for each output of If and Filter.
    fn branch(&mut self, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port], outputs: usize) {
        let at = pointer(node).join("parameters");
        let place = Place { item: Some("item"), index: Some("index"), list };
        let (conditions, at_conditions) = (parameters.get("conditions").unwrap_or(&Value::Null), at.join("conditions"));
        // Version 2 has a list of conditions.
        let condition = match conditions.get("conditions") {
            Some(_) => conditions::conditions(self, conditions, place, &at_conditions),
            None => {
                let word = parameters.get("combineOperation").or_else(|| parameters.get("combineConditions"));
                let is_any = word.is_some_and(|word| word == "any" || word == "OR");
                old::conditions(self, conditions, is_any, place, &at_conditions)
            }
        };
        self.options(parameters, &["looseTypeValidation", "ignoreCase"], &at);
        self.unknown(parameters, &["conditions", "options", "combineOperation", "combineConditions"], &at);
        let conditions = [condition.clone(), format!("not ({condition})")];
        self.filters(node, &conditions[..outputs], list, sources);
    }

    /// Writes a filter for each condition.
    pub(super) fn filters(&mut self, node: usize, conditions: &[String], list: &str, sources: &[Port]) {
        let mut ports = Vec::new();
        for (index, condition) in conditions.iter().enumerate() {
            let name = match (conditions.len(), index) {
                (1, _) => self.name(node).to_owned(),
                (2, 0) if self.kind(node) == "if" => format!("{}_true", self.name(node)),
                (2, 1) if self.kind(node) == "if" => format!("{}_false", self.name(node)),
                _ => format!("{}_{}", crate::names::cleaned(self.name(node), "node"), index + 1),
            };
            let id = self.draft.names.fresh(&name);
            let condition = bounded(condition.clone()).unwrap_or_else(|why| {
                let why = format!("{why}; write the condition");
                self.report.note(Verdict::Refused, &pointer(node), "conditions", &why);
                REFUSED.to_owned()
            });
            let made = Node::new(&id, "data.filter", json!({ "list": binding(list), "when": condition }));
            self.add(node, made, sources);
            ports.push(Port { list: format!("{id}.list"), from: Some(id.clone()), may_be_empty: true, fails: false });
            if conditions.len() == 1 {
                self.fields.insert(node, (id, "list"));
            }
        }
        self.ports.insert(node, ports);
    }

    fn wait(&mut self, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
        let at = pointer(node).join("parameters");
        let text = |key: &str| parameters.get(key).and_then(Value::as_str);
        // The default unit was hours in the first version.
        let is_first = self.nodes[node].get("typeVersion").and_then(Value::as_f64).unwrap_or(1.0) < 1.1;
        let unit = text("unit").unwrap_or(if is_first { "hours" } else { "seconds" });
        let factor = [("seconds", 1_000), ("minutes", 60_000), ("hours", 3_600_000), ("days", 86_400_000)];
        let factor = factor.into_iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
        let amount = parameters.get("amount").map_or(Some(if is_first { 1.0 } else { 5.0 }), Value::as_f64);
        let input = match (text("resume").unwrap_or("timeInterval"), factor, amount) {
            ("timeInterval", Some(factor), Some(amount)) if (0.0..=31_536_000.0).contains(&amount) => {
                let ms = (amount * f64::from(factor)).min(31_536_000_000.0);
                // The product is not negative, and far below 2^53.
                json!({ "ms": ms as u64 })
            }
            _ => {
                self.report.note(
                    Verdict::Refused,
                    &at,
                    "resume",
                    "write `ms`, `at` or `until`; see `control.wait` and `control.gate`",
                );
                json!({ "ms": binding(REFUSED) })
            }
        };
        self.options(parameters, &[], &at);
        self.unknown(parameters, &["resume", "amount", "unit", "options"], &at);
        let id = self.fresh(node);
        self.add(node, Node::new(&id, "control.wait", input), sources);
        // A node of its own has the items, so that the expressions of nodes behind it stay short.
        let out = self.draft.names.fresh(&format!("{id}_out"));
        self.draft.edge(&id, &out, On::Success);
        self.draft.nodes.push(Node::value(&out, binding(list)));
        self.single(node, &out, "value", format!("{out}.value"), false);
    }

    fn stop(&mut self, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
        let at = pointer(node).join("parameters");
        let first = format!("({list} | first)");
        let place = Place { item: Some(&first), index: None, list };
        let message =
            values::parameter(self, parameters, "errorMessage", place, &at).unwrap_or(Term::Literal("".into()));
        let message = self.report.text(message, &at.join("errorMessage"), "errorMessage");
        self.unknown(parameters, &["errorType", "errorMessage"], &at);
        let id = self.fresh(node);
        self.add(node, Node::new(&id, "control.fail", json!({ "message": message.to_value() })), sources);
        self.ports.insert(node, Vec::new());
    }

    /// Refuses parameters that are not known.
    pub(super) fn unknown(&mut self, parameters: &Map<String, Value>, known: &[&str], at: &At) {
        for key in parameters.keys().filter(|key| !known.contains(&key.as_str())) {
            self.report.note(
                Verdict::Refused,
                &at.join(key),
                key,
                "the parameter has no counterpart; see whether it matters",
            );
        }
    }

    /// Refuses members of `options` that are not known.
    pub(super) fn options(&mut self, parameters: &Map<String, Value>, known: &[&str], at: &At) {
        if let Some(options) = parameters.get("options").and_then(Value::as_object) {
            self.unknown(options, known, &at.join("options"));
        }
    }
}
