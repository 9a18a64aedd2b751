//! The states, except `Choice`.

use serde_json::{Map, Value, json};

use super::{
    Asl, bounds,
    catch::{self, placed, reference_path},
    choice, keys, policy, tasks,
    template::{self, States},
};
use crate::{
    draft::Node,
    expr::{REFUSED, Term, atom, binding},
    names::error_code,
    report::{At, Verdict},
    scope::{Env, Exit, Scope},
    walk::Target,
};

/// Length from which the expression of a result gets a node of its own.
const LONG_RESULT: usize = 200;

impl Asl {
    /// Writes a state. Returns its transitions, each with the end of the way to it.
    pub(super) fn state(&mut self, scope: &Scope<'_>, state: &Value, at: &At, mut exit: Exit) -> Vec<(Target, Exit)> {
        let empty = Map::new();
        let state = state.as_object().unwrap_or(&empty);
        let outer_language = self.is_jsonata;
        if let Some(language) = state.get("QueryLanguage") {
            self.is_jsonata = language == "JSONata";
        }
        let ends = match state.get("Type").and_then(Value::as_str) {
            Some("Pass") => self.pass(scope, state, at, exit),
            Some("Wait") => self.wait(scope, state, at, exit),
            Some("Succeed") => self.succeed(scope, state, at, exit),
            Some("Fail") => self.fail(state, at, exit),
            Some("Choice") => choice::choice(self, scope, state, at, exit),
            Some("Task") => tasks::task(self, scope, state, at, exit),
            Some("Parallel") => self.parallel(scope, state, at, exit),
            Some("Map") => self.map(scope, state, at, exit),
            _ => {
                self.report.note(Verdict::Refused, &at.join("Type"), "Type", "no state has this type; write a node");
                let name = exit.env.state.clone();
                self.refused_node(&name, "Type", &mut exit);
                Vec::new()
            }
        };
        self.is_jsonata = outer_language;
        ends
    }

    /// Notes the keys of a state that are common, reports the noted findings, and marks the node.
    pub(super) fn settle(&mut self, node: &mut Node, state: &Map<String, Value>, at: &At) {
        let kind = state.get("Type").and_then(Value::as_str).unwrap_or_default();
        if let Some(comment) = state.get("Comment").and_then(Value::as_str) {
            node.comment = Some(comment.to_owned());
            self.report.note(Verdict::Exact, &at.join("Comment"), "Comment", "a comment");
        }
        self.report.note(Verdict::Exact, at, kind, &format!("`{}`", node.kind));
        for key in state.keys() {
            if let Some(why) = keys::refusal(kind, key, self.is_jsonata) {
                self.report.note(Verdict::Refused, &at.join(key), key, why);
            }
        }
        self.report.settle(node);
    }

    /// Returns the expression of the state's input behind `InputPath`.
    pub(super) fn input_path(&mut self, state: &Map<String, Value>, env: &Env, at: &At) -> String {
        template::path_field(self, state, "InputPath", env, at).unwrap_or_else(|| env.data.clone())
    }

    /// Returns the expression of the state's output behind `OutputPath`.
    pub(super) fn output_path(&mut self, state: &Map<String, Value>, env: &Env, at: &At) -> String {
        template::path_field(self, state, "OutputPath", env, at).unwrap_or_else(|| env.data.clone())
    }

    /// Returns the transition of a state with `Next` or `End`.
    fn next(&mut self, scope: &Scope<'_>, state: &Map<String, Value>, at: &At) -> Target {
        match state.get("End") {
            Some(Value::Bool(true)) => Target::End,
            _ => self.target(scope, state.get("Next"), &at.join("Next")),
        }
    }

    /// Returns the input of the state's work: `Parameters` or `Arguments`, or else the data.
    pub(super) fn effective_input(&mut self, state: &Map<String, Value>, env: &Env, at: &At) -> Term {
        if self.is_jsonata {
            return match state.get("Arguments") {
                Some(arguments) => template::query(self, arguments, env, States::default(), &at.join("Arguments")),
                None => Term::Expr(env.data.clone()),
            };
        }
        let data = self.input_path(state, env, at);
        match state.get("Parameters") {
            Some(parameters) => {
                let env = Env { data, ..env.clone() };
                template::template(self, parameters, &env, &at.join("Parameters"))
            }
            None => Term::Expr(data),
        }
    }

    /// Returns the state's output: the result at its `ResultPath` in the input, behind `OutputPath`.
    fn output(&mut self, state: &Map<String, Value>, env: &Env, result: Term, at: &At) -> Term {
        if self.is_jsonata {
            let result = result.to_expr();
            return match state.get("Output") {
                Some(output) => {
                    let states = States { result: Some(&result), ..States::default() };
                    template::query(self, output, env, states, &at.join("Output"))
                }
                None => Term::Expr(result),
            };
        }
        let placed = match state.get("ResultPath") {
            Some(Value::Null) => Term::Expr(env.data.clone()),
            Some(path) if path != "$" => match reference_path(self, path, at) {
                Some(keys) => placed(self, &env.data, &keys, &result, at),
                None => result,
            },
            _ => result,
        };
        if state.get("OutputPath").is_none() {
            return placed;
        }
        let env = Env { data: placed.to_expr(), ..env.clone() };
        Term::Expr(self.output_path(state, &env, at))
    }

    /// Sets the variables of `Assign`: a node of its own has their values.
    pub(super) fn assign(&mut self, exit: &mut Exit, assigned: &Value, env: &Env, states: States<'_>, at: &At) {
        let at = at.join("Assign");
        let values = match self.is_jsonata {
            true => template::query(self, assigned, env, states, &at),
            false => template::template(self, assigned, env, &at),
        };
        let Term::Object(members) = &values else {
            return self.report.note(Verdict::Refused, &at, "Assign", "it must be an object; write the variables");
        };
        let id = self.draft.names.fresh(&format!("{}_vars", crate::names::cleaned(&env.state, "state")));
        let mut node = Node::value(&id, values.to_value());
        self.report.note(Verdict::Exact, &at, "Assign", "the value of a node, which later states read");
        self.report.settle(&mut node);
        exit.push(&mut self.draft, node);
        for (name, _) in members {
            exit.env.vars.insert(name.clone(), crate::expr::member(&format!("{id}.value"), name));
        }
    }

    fn pass(&mut self, scope: &Scope<'_>, state: &Map<String, Value>, at: &At, mut exit: Exit) -> Vec<(Target, Exit)> {
        let id = self.draft.names.fresh(&exit.env.state);
        let env = exit.env.clone();
        let mut result = match state.get("Result").filter(|_| !self.is_jsonata) {
            Some(result) => Term::Literal(result.clone()),
            None => self.effective_input(state, &env, at),
        };
        let is_placed = state.get("ResultPath").is_some_and(|path| path != "$") || state.contains_key("OutputPath");
        if is_placed || state.contains_key("Assign") {
            result = self.short(&mut exit, result, &id);
        }
        let output = self.output(state, &env, result.clone(), at);
        let mut node = Node::value(&id, output.to_value());
        self.settle(&mut node, state, at);
        exit.push(&mut self.draft, node);
        exit.env.data = format!("{id}.value");
        exit.carries = scope.assigned.is_empty();
        if let Some(assigned) = state.get("Assign") {
            // JSONPath reads the result, and JSONata `$states`.
            let data = if self.is_jsonata { env.data.clone() } else { result.to_expr() };
            let env = Env { data, ..env };
            self.assign(&mut exit, assigned, &env, States::default(), at);
        }
        vec![(self.next(scope, state, at), exit)]
    }

    /// Returns a term whose expression is short: if it is long, a node of its own has the value.
    fn short(&mut self, exit: &mut Exit, term: Term, id: &str) -> Term {
        if matches!(term, Term::Expr(_)) || term.to_expr().len() < LONG_RESULT {
            return term;
        }
        let id = self.draft.names.fresh(&format!("{id}_result"));
        exit.push(&mut self.draft, Node::value(&id, term.to_value()));
        Term::Expr(format!("{id}.value"))
    }

    fn wait(&mut self, scope: &Scope<'_>, state: &Map<String, Value>, at: &At, mut exit: Exit) -> Vec<(Target, Exit)> {
        let id = self.draft.names.fresh(&exit.env.state);
        let mut env = exit.env.clone();
        env.data = self.input_path(state, &env, at);
        let time = |asl: &mut Asl, key: &str| match state.get(key)? {
            Value::String(text) if text.starts_with("{%") => {
                Some(template::query(asl, &text.as_str().into(), &env, States::default(), &at.join(key)))
            }
            Value::String(text) if key.ends_with("Path") => Some(template::dynamic(asl, text, &env, &at.join(key))),
            plain => Some(Term::Literal(plain.clone())),
        };
        let seconds = time(self, "Seconds").or_else(|| time(self, "SecondsPath"));
        let moment = time(self, "Timestamp").or_else(|| time(self, "TimestampPath"));
        let input = match (seconds, moment) {
            (Some(Term::Literal(seconds)), None) if seconds.as_u64().is_some_and(|seconds| seconds <= 31_536_000) => {
                json!({ "ms": seconds.as_u64().unwrap_or_default() * 1_000 })
            }
            (Some(Term::Expr(seconds)), None) => json!({ "ms": binding(&format!("{} * 1000", atom(&seconds))) }),
            (None, Some(moment)) => json!({ "at": self.report.text(moment, at, "Timestamp").to_value() }),
            _ => {
                self.report.note(
                    Verdict::Refused,
                    at,
                    "Wait",
                    "the time is missing, or more than 365 days; write `ms` or `at`",
                );
                json!({ "ms": binding(REFUSED) })
            }
        };
        let mut node = Node::new(&id, "control.wait", input);
        self.settle(&mut node, state, at);
        exit.push(&mut self.draft, node);
        exit.env.data = match (self.is_jsonata, state.get("Output")) {
            (true, Some(output)) => {
                let output = template::query(self, output, &env, States::default(), &at.join("Output"));
                exit.env.data = output.to_expr();
                self.materialize(&mut exit);
                exit.env.data.clone()
            }
            _ => self.output_path(state, &env, at),
        };
        if let Some(assigned) = state.get("Assign") {
            self.assign(&mut exit, assigned, &env, States::default(), at);
        }
        vec![(self.next(scope, state, at), exit)]
    }

    fn succeed(
        &mut self,
        scope: &Scope<'_>,
        state: &Map<String, Value>,
        at: &At,
        mut exit: Exit,
    ) -> Vec<(Target, Exit)> {
        let mut env = exit.env.clone();
        env.data = self.input_path(state, &env, at);
        let data = match (self.is_jsonata, state.get("Output")) {
            (true, Some(output)) => {
                template::query(self, output, &env, States::default(), &at.join("Output")).to_expr()
            }
            _ => self.output_path(state, &env, at),
        };
        let id = self.draft.names.fresh(&exit.env.state);
        let mut node = Node::value(&id, binding(&data));
        self.settle(&mut node, state, at);
        exit.push(&mut self.draft, node);
        exit.env.data = format!("{id}.value");
        exit.carries = scope.assigned.is_empty();
        vec![(Target::End, exit)]
    }

    fn fail(&mut self, state: &Map<String, Value>, at: &At, mut exit: Exit) -> Vec<(Target, Exit)> {
        let id = self.draft.names.fresh(&exit.env.state);
        let env = exit.env.clone();
        let text = |asl: &mut Asl, key: &str| match (state.get(key), state.get(&format!("{key}Path"))) {
            (Some(value), _) if asl.is_jsonata => {
                Some(template::query(asl, value, &env, States::default(), &at.join(key)))
            }
            (Some(value), _) => Some(Term::Literal(value.clone())),
            (None, Some(Value::String(path))) => Some(template::dynamic(asl, path, &env, &at.join(key))),
            _ => None,
        };
        let (error, cause) = (text(self, "Error"), text(self, "Cause"));
        let mut as_text = |term: Term, key: &str| self.report.text(term, &at.join(key), key);
        let error = error.map(|error| as_text(error, "Error"));
        let cause = cause.map(|cause| as_text(cause, "Cause"));
        let mut input = Map::new();
        input.insert("message".into(), cause.map_or_else(|| "".into(), |cause| cause.to_value()));
        match error {
            Some(Term::Literal(Value::String(name))) => {
                let code = error_code(&name);
                if code != name {
                    let note = format!("a code has letters, digits, `_`, `.` and `-`, so it is `{code}`");
                    self.report.note(Verdict::Approximated, &at.join("Error"), "Error", &note);
                }
                input.insert("code".into(), code.into());
            }
            Some(error) => {
                let note =
                    "a computed name with other signs than letters, digits, `_`, `.`, `-` fails with `invalid_input`";
                self.report.note(Verdict::Approximated, &at.join("Error"), "Error", note);
                input.insert("code".into(), error.to_value());
            }
            None => {}
        }
        let mut node = Node::new(&id, "control.fail", input.into());
        self.settle(&mut node, state, at);
        exit.push(&mut self.draft, node);
        Vec::new()
    }

    fn parallel(
        &mut self,
        scope: &Scope<'_>,
        state: &Map<String, Value>,
        at: &At,
        mut exit: Exit,
    ) -> Vec<(Target, Exit)> {
        let branches = state.get("Branches").and_then(Value::as_array).cloned().unwrap_or_default();
        if branches.is_empty() || !self.may_nest() {
            return self.no_body(state, "Branches", at, exit);
        }
        let before = exit.clone();
        let id = self.draft.names.fresh(&exit.env.state);
        let input = self.effective_input(state, &exit.env.clone(), at);
        let input = self.named(&mut exit, input, &id);
        let mut node = Node::new(&id, "control.scope", json!({}));
        self.settle(&mut node, state, at);
        policy::policy(self, state, &mut node, at);
        let owner = self.draft.nodes.len();
        exit.push(&mut self.draft, node);
        self.depth += 1;
        let env = Env { data: input, ..before.env.clone() };
        let mut results = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            let at = at.join("Branches").join(index);
            let empty = Map::new();
            let prefix = format!("{id}_{}_", index + 1);
            let result = self.machine(branch.as_object().unwrap_or(&empty), &prefix, Exit::start(&env), &at);
            self.check_machine_keys(branch, &at);
            // A branch without a successful end fails, so its result is never read.
            results.push(result.unwrap_or_else(|| "null".into()));
        }
        self.depth -= 1;
        let body = self.draft.outer_ids(owner + 1..self.draft.nodes.len());
        self.draft.nodes[owner].body = Some(body);
        self.draft.nodes[owner].body_output = Some(binding(&format!("[{}]", results.join(", "))));
        self.finish(scope, state, at, &id, id.clone(), exit, &before)
    }

    fn map(&mut self, scope: &Scope<'_>, state: &Map<String, Value>, at: &At, mut exit: Exit) -> Vec<(Target, Exit)> {
        let key = if state.contains_key("ItemProcessor") { "ItemProcessor" } else { "Iterator" };
        let Some(processor) = state.get(key).and_then(Value::as_object).filter(|_| self.may_nest()) else {
            return self.no_body(state, key, at, exit);
        };
        let before = exit.clone();
        let id = self.draft.names.fresh(&exit.env.state);
        let mut env = exit.env.clone();
        env.data = self.input_path(state, &env, at);
        let list = match (self.is_jsonata, state.get("Items"), state.get("ItemsPath")) {
            (true, Some(items), _) => {
                template::query(self, items, &env, States::default(), &at.join("Items")).to_expr()
            }
            (_, _, Some(Value::String(path))) => template::dynamic(self, path, &env, &at.join("ItemsPath")).to_expr(),
            _ => env.data.clone(),
        };
        let mut input = Map::new();
        input.insert("list".into(), binding(&list));
        let is_distributed =
            processor.get("ProcessorConfig").and_then(|config| config.get("Mode")) == Some(&"DISTRIBUTED".into());
        bounds::set(self, state, &env, is_distributed, &mut input, at);
        let mut node = Node::new(&id, "control.foreach", input.into());
        self.settle(&mut node, state, at);
        policy::policy(self, state, &mut node, at);
        let owner = self.draft.nodes.len();
        exit.push(&mut self.draft, node);
        let item = format!("{id}.item");
        let mut inner = Env { item: Some((item.clone(), format!("{id}.index"))), ..env.clone() };
        let mut start = Exit::start(&inner);
        let selector = state.get("ItemSelector").or_else(|| state.get("Parameters"));
        inner.data = match selector {
            Some(selector) => {
                let name = if state.contains_key("ItemSelector") { "ItemSelector" } else { "Parameters" };
                let term = match self.is_jsonata {
                    true => template::query(self, selector, &inner, States::default(), &at.join(name)),
                    false => template::template(self, selector, &inner, &at.join(name)),
                };
                let item_id = self.draft.names.fresh(&format!("{id}_item"));
                let mut node = Node::value(&item_id, term.to_value());
                self.report.settle(&mut node);
                start.push(&mut self.draft, node);
                format!("{item_id}.value")
            }
            None if state.contains_key("ItemBatcher") => format!("{{'Items': {item}}}"),
            None => item,
        };
        self.depth += 1;
        start.env = inner;
        let result = self.machine(processor, &format!("{id}_"), start, &at.join(key));
        self.depth -= 1;
        self.check_machine_keys(&state[key], &at.join(key));
        let body = self.draft.outer_ids(owner + 1..self.draft.nodes.len());
        self.draft.nodes[owner].body = Some(body);
        self.draft.nodes[owner].body_output = Some(result.map_or(Value::Null, |result| binding(&result)));
        let items = format!("{id}.items");
        self.finish(scope, state, at, &id, items, exit, &before)
    }

    /// Writes what follows the work of a state: the selection of the result, its place, the variables and the catchers.
    #[expect(clippy::too_many_arguments, reason = "the parts of one state")]
    pub(super) fn finish(
        &mut self,
        scope: &Scope<'_>,
        state: &Map<String, Value>,
        at: &At,
        id: &str,
        result: String,
        mut exit: Exit,
        before: &Exit,
    ) -> Vec<(Target, Exit)> {
        let env = before.env.clone();
        let mut sources = vec![id.to_owned()];
        let raw = result.clone();
        let mut result = Term::Expr(result);
        if let Some(selector) = state.get("ResultSelector").filter(|_| !self.is_jsonata) {
            let inner = Env { data: result.to_expr(), ..env.clone() };
            result = template::template(self, selector, &inner, &at.join("ResultSelector"));
        }
        let is_placed = state.get("ResultPath").is_some_and(|path| path != "$") || state.contains_key("OutputPath");
        if is_placed && state.get("ResultPath") != Some(&Value::Null) {
            result = self.short(&mut exit, result, id);
        }
        let output = self.output(state, &env, result, at);
        exit.env.data = match &output {
            Term::Expr(expr) if *expr == raw || *expr == env.data => expr.clone(),
            output => {
                let out = self.draft.names.fresh(&format!("{id}_out"));
                let mut node = Node::value(&out, output.to_value());
                self.report.settle(&mut node);
                exit.push(&mut self.draft, node);
                exit.carries = scope.assigned.is_empty();
                sources.push(out.clone());
                format!("{out}.value")
            }
        };
        if let Some(assigned) = state.get("Assign") {
            let inner = Env { data: if self.is_jsonata { env.data.clone() } else { raw.clone() }, ..env };
            let states = States { result: Some(&raw), ..States::default() };
            self.assign(&mut exit, assigned, &inner, states, at);
        }
        if !self.report.notes.is_empty() {
            self.materialize(&mut exit);
        }
        let mut ends = catch::catch(self, scope, state, &sources, before, at);
        ends.push((self.next(scope, state, at), exit));
        ends
    }
}
