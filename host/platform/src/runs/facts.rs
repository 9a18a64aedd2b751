//! The facts of a run that are fixed at its start: its input, the packs that it is pinned to, and whether its flow has
//! agents.

use flowcell_contract::{Json, RunId};
use flowcell_runtime::ports::MaybeStoreError;
use serde::Serialize;
use serde_json::Value;

use crate::{Host, StartError};

pub use crate::host::pin::PinnedPack;

/// Maximum size in bytes of an input that is shown whole, as JSON text.
pub const MAX_SHOWN_INPUT_BYTES: usize = 16 * 1024;
/// Number of characters that are shown of a larger input.
pub const CUT_INPUT_CHARS: usize = 1_000;

/// The facts of a run that are fixed at its start.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunFacts {
    /// The packs that the run is pinned to, sorted by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packs: Vec<PinnedPack>,
    /// The reason why the packs are unknown, such as damaged content. `None`: they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packs_unknown: Option<String>,
    /// True if a node of the flow can run agents.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_agents: bool,
    /// The input with the defaults of the flow, if its JSON text has at most [`MAX_SHOWN_INPUT_BYTES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The beginning of a larger input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_cut: Option<CutInput>,
    /// The damage that makes the input unknown. `None`: the input is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_unknown: Option<String>,
}

/// The beginning of an input that is too large to be shown whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CutInput {
    /// The size of the whole input, in bytes of JSON text.
    pub bytes: usize,
    /// The first 1,000 characters of the JSON text.
    pub start: String,
}

const _: () = assert!(CUT_INPUT_CHARS == 1_000, "the documentation of `start` names the number");

impl RunFacts {
    /// Reads the facts of a run.
    pub fn of(host: &Host, run: &RunId) -> Result<RunFacts, StartError> {
        let mut facts = RunFacts::default();
        match host.packs_of(run) {
            Ok(packs) => (facts.packs, facts.has_agents) = (packs, host.has_agents(run)?),
            // The rest of the run can be shown without its packs.
            Err(error) => facts.packs_unknown = Some(error.to_string()),
        }
        facts.with_input(host, run)
    }

    /// Reads the input of a run into these facts. Damage of the input is one of the facts.
    pub fn with_input(mut self, host: &Host, run: &RunId) -> Result<RunFacts, StartError> {
        match host.input_of(run) {
            Ok(input) => input.iter().for_each(|input| self.set_input(input)),
            Err(error) => self.input_unknown = Some(error.damage().ok_or(error)?),
        }
        Ok(self)
    }

    /// Returns the facts without the input.
    pub fn without_input(&self) -> RunFacts {
        let RunFacts { packs, packs_unknown, has_agents, .. } = self;
        let (packs, packs_unknown) = (packs.clone(), packs_unknown.clone());
        RunFacts { packs, packs_unknown, has_agents: *has_agents, ..RunFacts::default() }
    }

    fn set_input(&mut self, input: &Json) {
        let text = input.to_text();
        match text.len() <= MAX_SHOWN_INPUT_BYTES {
            true => self.input = Some(input.to_serde()),
            false => {
                let start = text.chars().take(CUT_INPUT_CHARS).collect();
                self.input_cut = Some(CutInput { bytes: text.len(), start });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_input_beyond_the_limit_is_cut_and_says_its_size() {
        // The quotes of the text count, too.
        for (length, is_whole) in [(0, true), (MAX_SHOWN_INPUT_BYTES - 2, true), (MAX_SHOWN_INPUT_BYTES - 1, false)] {
            let mut facts = RunFacts::default();
            facts.set_input(&Json::from(json!("x".repeat(length))));
            assert_eq!(facts.input.is_some(), is_whole, "{length}");
            let cut = (!is_whole).then(|| CutInput { bytes: length + 2, start: format!("\"{}", "x".repeat(999)) });
            assert_eq!(facts.input_cut, cut, "{length}");
        }
    }
}
