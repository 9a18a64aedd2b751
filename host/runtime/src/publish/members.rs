//! Members of several events.

use flowcell_contract::{Json, ScopePath};

use super::Members;
use crate::{question::QuestionRef, quota::QuotaHold};

/// Adds the path of passes, unless it is that of the flow itself.
pub(super) fn add_scope(path: ScopePath, members: &mut Members) {
    if !path.as_str().is_empty() {
        members.push(("scope", Json::from(path.0)));
    }
}

pub(super) fn reference_members(asked: QuestionRef) -> impl Iterator<Item = (&'static str, Json)> {
    let digest = asked.digest.map(|digest| ("digest", Json::from(&*digest)));
    asked.attempt.map(|attempt| ("attempt", Json::from(attempt))).into_iter().chain(digest)
}

/// Describes a quota that is used up, and when it renews.
pub(super) fn quota_members(hold: &QuotaHold) -> Members {
    vec![("quota", Json::from(&*hold.quota)), ("until", Json::from(hold.until))]
}

/// Returns the name of an enum variant in the journal.
pub(super) fn name_of(choice: &impl serde::Serialize) -> Json {
    serde_json::to_value(choice).map(Json::from).unwrap_or_default()
}
