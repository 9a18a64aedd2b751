//! The members of the document beside its tasks.

use serde_json::{Value, json};

use super::{Serverless, duration, query};
use crate::{
    report::{At, Verdict},
    scope::Exit,
};

/// Converts the members of the document, except for its data and its tasks.
pub(super) fn head(import: &mut Serverless<'_>, at: &At) {
    let document = import.document;
    about(import, &document["document"], &at.join("document"));
    for (key, value) in document {
        let at = at.join(key);
        match key.as_str() {
            "document" | "do" | "input" | "output" => {}
            "timeout" => workflow_timeout(import, value, &at),
            "use" => components(import, value, &at),
            "schedule" => schedule(import, value, &at),
            "evaluate" => {
                for (key, fits) in [("language", "jq"), ("mode", "strict")] {
                    match value.get(key) {
                        None => {}
                        Some(given) if given == fits => import.report.exact(&at.join(key), key, None, ""),
                        Some(_) => {
                            let why = format!("only `{fits}` is supported; compare all expressions");
                            import.report.mark_flow(Verdict::Refused, &at.join(key), key, &why);
                        }
                    }
                }
                import.check_keys(value, &["language", "mode"], &at);
            }
            _ => {
                let why = "the key has no counterpart here; see whether it matters";
                import.report.mark_flow(Verdict::Refused, &at, key, why);
            }
        }
    }
    import.report.settle_flow();
}

/// Converts `document`.
fn about(import: &mut Serverless<'_>, about: &Value, at: &At) {
    let texts = ["title", "summary"].iter().filter_map(|key| about.get(*key)?.as_str());
    let description = texts.collect::<Vec<_>>().join("\n");
    if !description.trim().is_empty() {
        import.draft.head.insert("description".into(), description.trim().into());
    }
    for (key, value) in about.as_object().into_iter().flatten() {
        let at = at.join(key);
        match key.as_str() {
            "title" | "summary" if value.is_string() => import.report.exact(&at, key, None, "`flow.description`"),
            "dsl" if value.as_str().is_some_and(|version| version.starts_with("1.0.")) => {
                import.report.exact(&at, key, None, "");
            }
            "dsl" => {
                let why = "the flow is imported as one of version 1.0; compare it with its specification";
                import.report.mark_flow(Verdict::Approximated, &at, key, why);
            }
            "namespace" | "name" | "version" | "tags" | "metadata" => {
                import.draft.comments.push(format!("{key}: {value}"));
                import.report.exact(&at, key, None, "a comment");
            }
            _ => import.report.mark_flow(Verdict::Refused, &at, key, "the key is unknown; see whether it matters"),
        }
    }
}

fn workflow_timeout(import: &mut Serverless<'_>, timeout: &Value, at: &At) {
    match import.limit_of(timeout) {
        Some(millis) => {
            import.draft.head.insert("policy".into(), json!({ "totalTimeoutMs": millis }));
            import.report.exact(at, "timeout", None, "`flow.policy.totalTimeoutMs`");
        }
        None => {
            let why = "the time limit is not imported; set `flow.policy.totalTimeoutMs`";
            import.report.mark_flow(Verdict::Refused, at, "timeout", why);
        }
    }
}

/// Converts `use`: errors and time limits stand where they are named.
fn components(import: &mut Serverless<'_>, uses: &Value, at: &At) {
    for key in uses.as_object().into_iter().flat_map(serde_json::Map::keys) {
        let at = at.join(key);
        match key.as_str() {
            "errors" | "timeouts" | "functions" | "retries" => {
                import.report.exact(&at, key, None, "they stand where they are named")
            }
            "secrets" | "authentications" => {
                let why = "store them with `flowcell secret set`, and name them in `grants.secrets`";
                import.report.mark_flow(Verdict::Refused, &at, key, why);
            }
            _ => {
                let why = "they are not imported; write them into the nodes";
                import.report.mark_flow(Verdict::Refused, &at, key, why);
            }
        }
    }
}

fn schedule(import: &mut Serverless<'_>, schedule: &Value, at: &At) {
    let cron = match (schedule.get("cron").and_then(Value::as_str), schedule.get("every")) {
        (Some(cron), _) => crate::cron::plain(cron),
        (None, Some(every)) => duration::millis(every).and_then(cron_of),
        (None, None) => None,
    };
    if let Some(cron) = cron {
        import.draft.head.insert("triggers".into(), json!([{ "id": "schedule", "cron": cron }]));
        let why = "compare the times and the time zone; the input has a member `trigger`, and defaults must be set";
        import.report.mark_flow(Verdict::Approximated, at, "schedule", why);
    } else {
        import.report.mark_flow(Verdict::Refused, at, "schedule", "write a trigger with `cron`");
    }
    for key in ["on", "after"].into_iter().filter(|key| schedule.get(*key).is_some()) {
        let why = "nothing starts the flow in this way; see `flowcell help trigger`";
        import.report.mark_flow(Verdict::Refused, &at.join(key), key, why);
    }
    import.check_keys(schedule, &["cron", "every", "on", "after"], at);
}

/// Converts `input` of the workflow.
pub(super) fn workflow_input(import: &mut Serverless<'_>, start: &mut Exit, at: &At) {
    let Some(input) = import.document.get("input") else { return };
    let at = at.join("input");
    import.schema(input, &["from"], &at);
    import.report.settle_flow();
    if let Some(from) = input.get("from") {
        let (env, at) = (start.env.clone(), at.join("from"));
        let query = query::field(import, from, &env, &at);
        start.env.data = query::computed(import, start, query, &env, "workflow_input", &at);
    }
}

/// Converts `output` of the workflow.
pub(super) fn workflow_output(import: &mut Serverless<'_>, end: &mut Exit, at: &At) {
    let Some(output) = import.document.get("output") else { return };
    let at = at.join("output");
    import.schema(output, &["as"], &at);
    import.report.settle_flow();
    if let Some(value) = output.get("as") {
        let (env, at) = (end.env.clone(), at.join("as"));
        let query = query::field(import, value, &env, &at);
        end.env.data = query::computed(import, end, query, &env, "workflow_output", &at);
    }
}

/// Returns the cron expression of an interval; `None` if it is not as simple as one.
fn cron_of(millis: u64) -> Option<String> {
    let minutes = (millis > 0 && millis.is_multiple_of(60_000)).then_some(millis / 60_000)?;
    match minutes {
        1_440 => Some("0 0 * * *".into()),
        minutes if minutes < 60 && 60_u64.is_multiple_of(minutes) => Some(format!("*/{minutes} * * * *")),
        minutes if minutes.is_multiple_of(60) && minutes < 1_440 && 24_u64.is_multiple_of(minutes / 60) => {
            Some(format!("0 */{} * * *", minutes / 60))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_simple_intervals_become_cron() {
        let cases = [
            (60_000, Some("*/1 * * * *")),
            (900_000, Some("*/15 * * * *")),
            (3_600_000, Some("0 */1 * * *")),
            (86_400_000, Some("0 0 * * *")),
            (420_000, None),
            (0, None),
            (1_000, None),
            (18_000_000, None),
        ];
        for (millis, expected) in cases {
            assert_eq!(cron_of(millis).as_deref(), expected, "{millis}");
        }
    }
}
