//! The test cases of an imported flow.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{draft::Draft, write};

/// A case that the source contains.
pub(crate) struct Case {
    pub(crate) name: String,
    /// Outputs of nodes that the source has recorded, by ids.
    pub(crate) given: Map<String, Value>,
}

/// Writes the cases of the source, or else one case to be filled in.
pub(crate) fn write(draft: &Draft, cases: &[Case]) -> String {
    let mut text = String::new();
    let missing: Vec<_> = draft.nodes.iter().filter_map(|node| Some((&node.id, node.sample.clone()?))).collect();
    let given = |known: &Map<String, Value>| {
        let mut given = known.clone();
        for (id, sample) in &missing {
            given.entry(id.as_str()).or_insert_with(|| json!({ "output": sample }));
        }
        given
    };
    let mut listed = Vec::new();
    if cases.is_empty() {
        write::comment(
            &mut text,
            "The source has no examples. Fill in the input, the outputs of nodes that call services, and the expected outputs.",
            0,
        );
        let mut case = Map::new();
        case.insert("name".into(), "fill in what the flow is expected to do".into());
        let input: Map<String, Value> = inputs(draft).into_iter().map(|name| (name, Value::Null)).collect();
        if !input.is_empty() {
            case.insert("input".into(), input.into());
        }
        let given = given(&Map::new());
        if !given.is_empty() {
            case.insert("given".into(), given.into());
        }
        case.insert("expect".into(), json!({ "status": "succeeded" }));
        listed.push(Value::from(case));
    } else {
        write::comment(
            &mut text,
            "The outputs under `given` are those that the source has recorded. Fill in the expected outputs.",
            0,
        );
    }
    for case in cases {
        listed.push(json!({ "name": case.name, "given": given(&case.given), "expect": { "status": "succeeded" } }));
    }
    text.push_str("cases:\n");
    listed.iter().for_each(|case| write::item(&mut text, case, 1));
    text
}

/// Returns the members of the input that the flow reads.
fn inputs(draft: &Draft) -> BTreeSet<String> {
    fn find(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => {
                for part in text.split("flow.input.").skip(1) {
                    let name: String =
                        part.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect();
                    if !name.is_empty() {
                        found.insert(name);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| find(item, found)),
            Value::Object(members) => members.values().for_each(|member| find(member, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    for node in &draft.nodes {
        node.input.values().for_each(|value| find(value, &mut found));
    }
    found
}
