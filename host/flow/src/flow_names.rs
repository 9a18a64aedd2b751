//! Suggests the flow that a wrong name may mean.

use flowcell_expr::did_you_mean;

use crate::{CheckContext, limits};

/// The names of the flows that a wrong name may mean. They are looked up for the first wrong name only.
#[derive(Default)]
pub(crate) struct FlowNames {
    names: Option<Vec<String>>,
    /// The number of names that wrong ones were compared with.
    compared: usize,
}

impl FlowNames {
    /// Returns "did you mean …?", if a flow has a similar name. `except` is never suggested. Returns `None` once the
    /// check has compared [`limits::FLOW_NAMES`] names.
    pub(crate) fn did_you_mean(
        &mut self,
        wrong: &str,
        except: Option<&str>,
        context: &dyn CheckContext,
    ) -> Option<String> {
        let names = self.names.get_or_insert_with(|| context.flow_names(limits::FLOW_NAMES));
        let compared = self.compared.saturating_add(names.len());
        if compared > limits::FLOW_NAMES {
            return None;
        }
        self.compared = compared;
        did_you_mean(wrong, names.iter().map(String::as_str).filter(|name| Some(*name) != except))
    }
}
