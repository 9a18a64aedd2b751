//! The bounds of the state `Map`.

use serde_json::{Map, Value};

use super::{Asl, template};
use crate::{
    report::{At, Verdict},
    scope::Env,
};

/// Converts the bounds of a `Map`.
pub(super) fn set(
    asl: &mut Asl,
    state: &Map<String, Value>,
    env: &Env,
    is_distributed: bool,
    input: &mut Map<String, Value>,
    at: &At,
) {
    let mut number = |asl: &mut Asl, key: &str, field: &str, most: f64| {
        let value = match (state.get(key), state.get(&format!("{key}Path"))) {
            (Some(Value::Number(number)), _)
                if number.as_f64().is_some_and(|number| (0.0..=most).contains(&number))
                    && (number.is_u64() || field == "maxFailuresPercent") =>
            {
                Value::from(number.clone())
            }
            (None, Some(Value::String(path))) => template::dynamic(asl, path, env, &at.join(key)).to_value(),
            (None, None) => return,
            _ => return asl.report.note(Verdict::Refused, &at.join(key), key, &format!("set `{field}` of the node")),
        };
        asl.report.note(Verdict::Exact, &at.join(key), key, &format!("`{field}`"));
        input.insert(field.into(), value);
    };
    if state.get("MaxConcurrency") != Some(&0.into()) {
        number(asl, "MaxConcurrency", "concurrency", 10_000.0);
    }
    number(asl, "ToleratedFailureCount", "maxFailures", 4_294_967_295.0);
    number(asl, "ToleratedFailurePercentage", "maxFailuresPercent", 100.0);
    input.entry("concurrency").or_insert(40.into());
    if input.contains_key("maxFailures") || input.contains_key("maxFailuresPercent") {
        let why = "items that failed are `{ failed, error }` in the list";
        asl.report.note(Verdict::Approximated, &at.join("ToleratedFailureCount"), "tolerated failures", why);
    }
    if is_distributed {
        let why = "items run in this flow, and not in executions of their own";
        asl.report.note(Verdict::Approximated, at, "distributed mode", why);
    }
    if let Some(batcher) = state.get("ItemBatcher") {
        let at = at.join("ItemBatcher");
        match batcher.get("MaxItemsPerBatch").and_then(Value::as_u64).filter(|size| *size > 0) {
            Some(size) => {
                input.insert("batchSize".into(), size.into());
                asl.report.note(Verdict::Exact, &at, "ItemBatcher", "`batchSize`");
            }
            None => asl.report.note(Verdict::Refused, &at, "ItemBatcher", "set `batchSize` of the node"),
        }
        asl.check_keys(batcher, &["MaxItemsPerBatch"], &at);
        if state.contains_key("ItemSelector") || state.contains_key("Parameters") {
            let why = "the selector is for a batch here, and for each of its items there; select in a node of the body";
            asl.report.note(Verdict::Refused, &at, "ItemSelector", why);
        }
    }
}
