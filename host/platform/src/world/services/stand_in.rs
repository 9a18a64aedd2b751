//! The answers of simulated services. The same call always gets the same answer.

use std::sync::Arc;

use flowcell_contract::{Blobs, Json, Tenant, Value};
use flowcell_services::images::sample;
use sha2::{Digest, Sha256};

use super::{AGENT, IMAGES, Service};

/// Maximum number of characters of a prompt that an answer repeats.
const MAX_REPEATED_CHARS: usize = 200;

/// Returns the stand-in's answer for a service, which need not be configured.
pub(super) fn answer(
    service: Option<&Service>,
    name: &str,
    args: &[Json],
    tenant: &Tenant,
    blobs: &Arc<dyn Blobs>,
) -> Value {
    match (service, name) {
        (Some(Service::Images(_)), _) | (None, IMAGES) => picture(args, tenant, blobs),
        (Some(Service::Model(_)), _) | (None, AGENT) => text_answer(args),
        _ => Value::from(Json::object([
            ("simulated", Json::from(true)),
            ("service", Json::from(name)),
            ("args", Json::array(args.iter().cloned())),
        ])),
    }
}

/// Returns a picture of one pixel. Its colour depends on the arguments.
fn picture(args: &[Json], tenant: &Tenant, blobs: &Arc<dyn Blobs>) -> Value {
    let digest = Sha256::digest(Json::array(args.iter().cloned()).to_text());
    let blob = blobs.put(tenant, sample([digest[0], digest[1], digest[2]]).into(), "image/png");
    let options = args.get(2).filter(|options| !options.is_null()).cloned();
    let meta = [
        ("simulated", Json::from(true)),
        ("prompt", args.get(1).cloned().unwrap_or_default()),
        ("options", options.unwrap_or_else(|| Json::object::<&str>([]))),
    ];
    let members = [("kind", Json::from("file")), ("fileId", Json::from(blob.file_id)), ("meta", Json::object(meta))];
    Value::from(Json::object(members))
}

fn text_answer(args: &[Json]) -> Value {
    let asked = args.first().cloned().unwrap_or_default();
    let prompt = asked.get("prompt").unwrap_or(&asked);
    let prompt = shorten(&prompt.as_str().map_or_else(|| prompt.to_text(), str::to_owned));
    let summary = asked.as_str().map_or_else(|| shorten(&asked.to_text()), shorten);
    let meta = [("simulated", Json::from(true)), ("inputSummary", Json::from(summary))];
    Value::from(Json::object([
        ("kind", Json::from("text")),
        ("value", Json::from(format!("simulated reply to: {prompt}"))),
        ("meta", Json::object(meta)),
    ]))
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_REPEATED_CHARS).collect()
}
