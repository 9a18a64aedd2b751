//! Converts ended spans to OpenTelemetry spans of the run's trace.
//!
//! Ids are hashes of a span's identity. So a run that continues in another process stays in the same trace, below the
//! same spans. A span that is sent twice has the same id.

use std::time::{Duration, SystemTime};

use flowcell_contract::{BuiltIn, RunId, Tenant};
use opentelemetry::{
    InstrumentationScope, KeyValue,
    trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use sha2::{Digest, Sha256};

use crate::observe::observed::{AttemptId, CallTarget, EndedSpan, SpanSubject};

/// Builds the OpenTelemetry span, in the trace of the run `root`.
pub(super) fn to_open_telemetry(root: &RunId, ended: &EndedSpan, link: Option<SpanContext>) -> SpanData {
    let EndedSpan { tenant, run, what, .. } = ended;
    let own = run_span(tenant, run);
    let (span_id, parent, name, span_kind) = match what {
        SpanSubject::Run { flow } => {
            let above = if run == root { SpanId::INVALID } else { run_span(tenant, root) };
            (own, above, format!("run {flow}"), SpanKind::Internal)
        }
        SpanSubject::Attempt { task, node_type } => {
            (attempt_span(ended, task), own, node_type.clone(), SpanKind::Internal)
        }
        SpanSubject::Agent { task, id, .. } => {
            (agent_span(ended, id), attempt_span(ended, task), "invoke_agent".to_owned(), SpanKind::Internal)
        }
        SpanSubject::Call { task, agent, call } => {
            let above = match agent {
                Some(agent) => agent_span(ended, agent),
                None => attempt_span(ended, task),
            };
            (call_span(ended, task, call), above, call_name(call), SpanKind::Client)
        }
    };
    let context = SpanContext::new(trace_id(tenant, root), span_id, TraceFlags::SAMPLED, false, TraceState::NONE);
    let mut links = SpanLinks::default();
    links.links.extend(link.map(|link| Link::new(link, Vec::new(), 0)));
    SpanData {
        span_context: context,
        parent_span_id: parent,
        parent_span_is_remote: false,
        span_kind,
        name: name.into(),
        start_time: system_time(ended.began),
        end_time: system_time(ended.ended),
        attributes: attributes(ended),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        // A failure's message may contain data of the run, so the status has only the outcome.
        status: if ended.outcome == "succeeded" { Status::Unset } else { Status::error(ended.outcome) },
        instrumentation_scope: InstrumentationScope::builder("flowcell").build(),
    }
}

fn attributes(ended: &EndedSpan) -> Vec<KeyValue> {
    let mut all = vec![
        KeyValue::new("flowcell.tenant", ended.tenant.as_str().to_owned()),
        KeyValue::new("flowcell.run.id", ended.run.as_str().to_owned()),
        KeyValue::new("flowcell.outcome", ended.outcome),
    ];
    all.extend(ended.error.clone().map(|error| KeyValue::new("error.type", error)));
    let of = |task: &AttemptId| {
        let attempt = i64::try_from(task.attempt).unwrap_or(i64::MAX);
        [KeyValue::new("flowcell.task", task.task.clone()), KeyValue::new("flowcell.attempt", attempt)]
    };
    match &ended.what {
        SpanSubject::Run { flow } => all.push(KeyValue::new("flowcell.flow", flow.clone())),
        SpanSubject::Attempt { task, node_type } => {
            all.extend(of(task));
            all.push(KeyValue::new("flowcell.node.type", node_type.clone()));
        }
        SpanSubject::Agent { task, id, model, usage } => {
            all.extend(of(task));
            all.push(KeyValue::new("gen_ai.operation.name", "invoke_agent"));
            all.push(KeyValue::new("gen_ai.agent.id", id.clone()));
            all.extend(model.clone().map(|model| KeyValue::new("gen_ai.request.model", model)));
            all.extend(usage.iter().flat_map(tokens));
        }
        SpanSubject::Call { task, call, .. } => {
            all.extend(of(task));
            all.push(KeyValue::new("flowcell.call.interface", call.interface.clone()));
            all.push(KeyValue::new("flowcell.call.function", call.function.clone()));
            all.extend(generative_ai_attributes(call));
        }
    }
    all
}

/// Returns the attributes that the conventions for generative AI define for a model's turn or a tool call.
fn generative_ai_attributes(call: &CallTarget) -> Vec<KeyValue> {
    let text = |name, value: &Option<String>| value.clone().map(|value| KeyValue::new(name, value));
    match BuiltIn::named(&call.interface) {
        Some(BuiltIn::Model) => {
            let mut all = vec![KeyValue::new("gen_ai.operation.name", "chat")];
            all.extend(text("gen_ai.provider.name", &call.provider));
            all.extend(text("gen_ai.request.model", &call.model));
            all.extend(text("gen_ai.response.model", &call.answered));
            all.extend(call.usage.iter().flat_map(tokens));
            all
        }
        Some(BuiltIn::Tools) if call.tool.is_some() => {
            let mut all = vec![KeyValue::new("gen_ai.operation.name", "execute_tool")];
            all.extend(text("gen_ai.tool.name", &call.tool));
            all
        }
        _ => Vec::new(),
    }
}

fn tokens(used: &crate::observe::observed::Tokens) -> [KeyValue; 2] {
    let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
    [
        KeyValue::new("gen_ai.usage.input_tokens", count(used.input)),
        KeyValue::new("gen_ai.usage.output_tokens", count(used.output)),
    ]
}

fn call_name(call: &CallTarget) -> String {
    match (BuiltIn::named(&call.interface), &call.model, &call.tool) {
        (Some(BuiltIn::Model), Some(model), _) => format!("chat {model}"),
        (Some(BuiltIn::Tools), _, Some(tool)) => format!("execute_tool {tool}"),
        _ => format!("{}.{}", call.interface, call.function),
    }
}

fn trace_id(tenant: &Tenant, root: &RunId) -> TraceId {
    let hash = hash(&["trace", tenant.as_str(), root.as_str()]);
    TraceId::from_bytes(std::array::from_fn(|at| hash[at]))
}

fn run_span(tenant: &Tenant, run: &RunId) -> SpanId {
    span_id(&["run", tenant.as_str(), run.as_str()])
}

fn attempt_span(ended: &EndedSpan, task: &AttemptId) -> SpanId {
    span_id(&["attempt", ended.tenant.as_str(), ended.run.as_str(), &task.task, &task.attempt.to_string()])
}

fn call_span(ended: &EndedSpan, task: &AttemptId, call: &CallTarget) -> SpanId {
    let (attempt, ordinal) = (task.attempt.to_string(), call.ordinal.to_string());
    span_id(&["call", ended.tenant.as_str(), ended.run.as_str(), &task.task, &attempt, &ordinal])
}

fn agent_span(ended: &EndedSpan, agent: &str) -> SpanId {
    span_id(&["agent", ended.tenant.as_str(), ended.run.as_str(), agent])
}

fn span_id(parts: &[&str]) -> SpanId {
    let hash = hash(parts);
    SpanId::from_bytes(std::array::from_fn(|at| hash[at]))
}

/// Hashes parts, each with its length before it, so that different parts never give the same input of the hash.
fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn system_time(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
}
