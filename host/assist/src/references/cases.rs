//! Renames a node in the test cases of its flow.

use std::ops::Range;

use super::Plan;
use crate::{
    Edit, is_too_large,
    reading::{Kind, Value, read},
    scalar::Scalar,
};

/// Renames a node in the test cases of its flow: in `answers`, `given`, `calls` and `route`, and in `outputs` if the
/// flow declares none, so that they are the outputs of its nodes. Of a use of a fragment, the nodes inside get other
/// ids, too.
pub fn rename_in_cases(text: &str, plan: &Plan) -> Vec<Edit> {
    if is_too_large(text) {
        return Vec::new();
    }
    let root = read(text);
    let mut edits = Vec::new();
    for case in root.member("cases").map(Value::items).unwrap_or_default() {
        let mut addresses: Vec<Range<usize>> = Vec::new();
        for member in ["answers", "given"].iter().filter_map(|name| case.member(name)) {
            addresses.extend(member.members().iter().map(|member| member.key.clone()));
        }
        let texts =
            |value: &Value| Scalar::new(text, value).map(|scalar| scalar.range_to_file(&(0..scalar.text.len())));
        let calls = case.member("calls").map(Value::items).unwrap_or_default();
        addresses.extend(calls.iter().filter_map(|call| texts(call.member("node")?)));
        let expect = case.member("expect");
        let route = expect.and_then(|expect| expect.member("route")).map(Value::items).unwrap_or_default();
        addresses.extend(route.iter().filter_map(texts));
        let outputs = expect
            .and_then(|expect| expect.member("outputs"))
            .filter(|outputs| plan.has_outputs_by_id() && matches!(outputs.kind, Kind::Map(_)));
        addresses.extend(outputs.map(Value::members).unwrap_or_default().iter().map(|member| member.key.clone()));
        for range in addresses {
            for (place, id) in in_address(&text[range.clone()]) {
                let start = range.start + place;
                let edit = |new: &str| Edit { range: start..start + id.len(), text: new.to_owned() };
                edits.extend(plan.new_id(id).map(edit));
            }
        }
    }
    edits
}

/// Returns the ids in an address such as `each[3].pay`, with their places. Behind `/` stand nodes of called flows.
fn in_address(address: &str) -> impl Iterator<Item = (usize, &str)> {
    let own = address.split('/').next().unwrap_or_default();
    let mut at = 0;
    own.split('.').map(move |part| {
        let start = at;
        at += part.len() + 1;
        (start, part.split(['[', '#']).next().unwrap_or_default())
    })
}
