//! The expressions that read a step's arguments and the output of the preceding step.

use crate::agentic::{label::FAILED_BEFORE, placeholder::quoted};

/// The beginnings of a step in a run. A step on a loop may have both: the run starts with it, and edges lead back to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The data with which the run starts the step, if it does.
    pub(crate) start: Option<Start>,
    /// True if an edge leads to the step that fires after a success.
    pub(crate) success: bool,
    /// True if an edge leads to the step that fires after a failure.
    pub(crate) error: bool,
}

/// The data of a step with which a run starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The run starts with the first step. The step gets the flow's arguments.
    First,
    /// An earlier run postponed this step, which has this id. The step gets the data in `flow.input.steps[id]`.
    Postponed(String),
}

impl Origin {
    /// Returns the expression with which a step reads all of its arguments. `begins_at_first` is true if the run starts
    /// with the first step, so that its input is the arguments themselves.
    pub(crate) fn args(&self, begins_at_first: bool) -> String {
        let initial = if begins_at_first { "flow.input" } else { "flow.input.args" };
        let start = self.start.as_ref().map(|start| match start {
            Start::First => initial.to_owned(),
            Start::Postponed(step) => format!("flow.input.steps[{}].args", quoted(step)),
        });
        // A step that failed before it had an input passes no arguments on.
        let failed = format!("(inbound.input.args if inbound.input.args != null else {initial})");
        self.choose(start, "inbound.args", &failed)
    }

    /// Returns an expression for a text: the output of the preceding step, or the reason of its failure. Returns `None`
    /// if no step precedes.
    pub(crate) fn previous(&self) -> Option<String> {
        let structured = "(inbound.structuredOutput | tojson)";
        let succeeded = format!("({structured} if inbound.structuredOutput != null else (inbound.result | string))");
        let failed = format!("({} ~ inbound.error.message)", quoted(FAILED_BEFORE));
        self.has_predecessor().then(|| self.choose(self.start_text("previous"), &succeeded, &failed))
    }

    /// Returns the expression that gives the id of the preceding step; `None` if no step precedes.
    pub(crate) fn from(&self) -> Option<String> {
        // The first edge that fires starts the step, so the map has one entry. Of several edges that begin an iteration,
        // `inbound` is the first one, too.
        let from = "inbounds | list | first";
        self.has_predecessor().then(|| self.choose(self.start_text("from"), from, from))
    }

    fn has_predecessor(&self) -> bool {
        self.success || self.error || matches!(self.start, Some(Start::Postponed(_)))
    }

    /// Returns the expression for a text that the step gets if the run starts with it.
    fn start_text(&self, member: &str) -> Option<String> {
        self.start.as_ref().map(|start| match start {
            Start::First => quoted(""),
            Start::Postponed(step) => format!("flow.input.steps[{}].{member}", quoted(step)),
        })
    }

    /// Returns an expression that chooses between the start of the run, an edge from a success and one from a failure.
    fn choose(&self, start: Option<String>, succeeded: &str, failed: &str) -> String {
        let edges = match (self.success, self.error) {
            (false, false) => None,
            (true, false) => Some(succeeded.to_owned()),
            (false, true) => Some(failed.to_owned()),
            (true, true) if succeeded == failed => Some(succeeded.to_owned()),
            (true, true) => Some(format!("({failed} if inbound.failed else {succeeded})")),
        };
        match (start, edges) {
            (Some(start), Some(edges)) => format!("({start} if inbound == null else ({edges}))"),
            (start, edges) => start.or(edges).unwrap_or_else(|| "null".to_owned()),
        }
    }
}

/// Returns the expression with which an edge reads the arguments that a step passes on.
pub(crate) fn args_of(step: &str) -> String {
    format!("nodes[{}].args", quoted(step))
}

/// Returns a text that is a single binding of an expression.
pub(crate) fn whole_binding(expression: &str) -> String {
    format!("{{{{ {expression} }}}}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_contract::Json;
    use flowcell_expr::Binding;

    use super::*;

    fn given(expression: &str, roots: &str) -> Json {
        let binding = Binding::compile(&whole_binding(expression).into()).unwrap();
        binding.render(&Json::parse(roots).unwrap()).unwrap()
    }

    #[test]
    fn arguments_follow_the_edge_that_fired() {
        let both = Origin { start: None, success: true, error: true };
        let success = r#"{ "flow": { "input": { "a": 0 } }, "inbound": { "args": { "a": 1 }, "result": "done" },
            "inbounds": { "before": {} } }"#;
        let failure = r#"{ "flow": { "input": { "a": 0 } }, "inbound": { "failed": true,
            "error": { "code": "c", "message": "no model" }, "input": { "args": { "a": 2 } } } }"#;
        let unready = r#"{ "flow": { "input": { "a": 0 } }, "inbound": { "failed": true, "input": null,
            "error": { "message": "`args.k` is required" } } }"#;
        let structured = r#"{ "inbound": { "args": {}, "result": "x", "structuredOutput": { "k": "v" } } }"#;
        let cases = [(success, r#"{"a":1}"#), (failure, r#"{"a":2}"#), (unready, r#"{"a":0}"#)];
        for (roots, expected) in cases {
            assert_eq!(given(&both.args(true), roots).to_string(), expected, "{roots}");
        }
        let previous = both.previous().unwrap();
        assert_eq!(given(&previous, success), Json::from("done"));
        assert_eq!(given(&previous, failure), Json::from("The step before failed: no model"));
        assert_eq!(given(&previous, structured), Json::from(r#"{"k":"v"}"#));
        assert_eq!(given(&both.from().unwrap(), success), Json::from("before"));
    }

    /// A step on a loop gets the data of the run's start first, and those of the edge that leads back afterwards.
    #[test]
    fn a_step_that_starts_and_repeats_has_two_origins() {
        let start = r#"{ "flow": { "input": { "a": 0, "steps": { "s": { "args": { "a": 1 }, "previous": "text", "from": "r" } } } },
            "inbound": null, "inbounds": {} }"#;
        let back = r#"{ "flow": { "input": { "a": 0 } }, "inbound": { "args": { "a": 2 }, "result": "again" },
            "inbounds": { "review": {} } }"#;
        let first = Origin { start: Some(Start::First), success: true, error: false };
        let postponed = Origin { start: Some(Start::Postponed("s".into())), success: true, error: true };
        for (origin, roots, args, previous, from) in [
            (&first, start, r#"{"a":0,"steps":{"s":{"args":{"a":1},"previous":"text","from":"r"}}}"#, "", ""),
            (&first, back, r#"{"a":2}"#, "again", "review"),
            (&postponed, start, r#"{"a":1}"#, "text", "r"),
            (&postponed, back, r#"{"a":2}"#, "again", "review"),
        ] {
            assert_eq!(given(&origin.args(true), roots).to_string(), args);
            assert_eq!(given(&origin.previous().unwrap(), roots), Json::from(previous));
            assert_eq!(given(&origin.from().unwrap(), roots), Json::from(from));
        }
        assert_eq!(Origin { start: Some(Start::First), success: false, error: false }.previous(), None);
    }
}
