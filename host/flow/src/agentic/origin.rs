//! The expressions that read a step's arguments and the output of the preceding step.

use crate::agentic::{argument::quoted, label::FAILED_BEFORE};

/// The way in which a run reaches a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The run starts with this step. The step gets the flow's arguments.
    First,
    /// An earlier run postponed this step, which has this id. The run starts with it, and the step gets the data in
    /// `flow.input.steps[id]`.
    Postponed(String),
    /// Edges lead to the step. `success` is true if some of them fire after a success, `error` if some of them fire
    /// after a failure.
    Edges { success: bool, error: bool },
}

impl Origin {
    /// Returns the expression with which a step reads all of its arguments. `begins_at_first` is true if the run starts
    /// with the first step, so that its input is the arguments themselves.
    pub(crate) fn args(&self, begins_at_first: bool) -> String {
        let initial = if begins_at_first { "flow.input" } else { "flow.input.args" };
        // A step that failed before it had an input passes no arguments on.
        let failed = format!("(inbound.input.args if inbound.input.args != null else {initial})");
        match self {
            Origin::First => initial.to_owned(),
            Origin::Postponed(step) => format!("flow.input.steps[{}].args", quoted(step)),
            Origin::Edges { error: false, .. } => "inbound.args".to_owned(),
            Origin::Edges { success: false, .. } => failed,
            Origin::Edges { .. } => format!("({failed} if inbound.failed else inbound.args)"),
        }
    }

    /// Returns an expression for a text: the output of the preceding step, or the reason of its failure. Returns `None`
    /// for the first step.
    pub(crate) fn previous(&self) -> Option<String> {
        let structured = "(inbound.structuredOutput | tojson)";
        let succeeded = format!("({structured} if inbound.structuredOutput != null else (inbound.result | string))");
        let failed = format!("({} ~ inbound.error.message)", quoted(FAILED_BEFORE));
        match self {
            Origin::First => None,
            Origin::Postponed(step) => Some(format!("flow.input.steps[{}].previous", quoted(step))),
            Origin::Edges { error: false, .. } => Some(succeeded),
            Origin::Edges { success: false, .. } => Some(failed),
            Origin::Edges { .. } => Some(format!("({failed} if inbound.failed else {succeeded})")),
        }
    }

    /// Returns the expression that gives the id of the preceding step; `None` for the first step.
    pub(crate) fn from(&self) -> Option<String> {
        match self {
            Origin::First => None,
            Origin::Postponed(step) => Some(format!("flow.input.steps[{}].from", quoted(step))),
            // The first edge that fires starts the step, so the map has one entry.
            Origin::Edges { .. } => Some("inbounds | list | first".to_owned()),
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
        let both = Origin::Edges { success: true, error: true };
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
}
