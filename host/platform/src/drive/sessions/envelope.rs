//! What came of a flow, as one object.

use flowcell_flow::agentic::FlowLabel;
use flowcell_runtime::ports::{StepState, StepStatus};
use serde::Serialize;

/// The steps of a flow, by how they stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// The flow.
    pub flow_id: String,
    /// The session of its first step.
    pub root_session_id: String,
    /// Steps that have begun and not ended.
    pub running_steps: Vec<StepLine>,
    /// Steps with an output.
    pub completed_steps: Vec<StepLine>,
    /// Steps whose last try has failed.
    pub failed_steps: Vec<StepLine>,
    /// Steps that are left to the next run.
    pub postponed_steps: Vec<StepLine>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepLine {
    /// Which.
    pub step_id: String,
    /// Its session.
    pub session_id: String,
    /// How it stands.
    pub status: StepStatus,
    /// What came of it, as text; of a failed step why.
    pub output: Option<String>,
    /// Whether the output is JSON that was checked against a schema.
    pub is_struct_output: bool,
}

impl Envelope {
    /// The states of the steps of a flow: in the order in which they began, and of those that began at once in the flow's.
    pub(super) fn new(flow: &str, root: &str, label: &FlowLabel, mut states: Vec<StepState>) -> Envelope {
        let place = |state: &StepState| label.steps.iter().position(|step| *step == state.step);
        states.sort_by_key(|state| (state.created, place(state)));
        let of = |status: StepStatus| states.iter().filter(move |state| state.status == status).map(line).collect();
        Envelope {
            flow_id: flow.to_owned(),
            root_session_id: root.to_owned(),
            running_steps: of(StepStatus::Running),
            completed_steps: of(StepStatus::Completed),
            failed_steps: of(StepStatus::Failed),
            postponed_steps: of(StepStatus::Postponed),
        }
    }
}

fn line(state: &StepState) -> StepLine {
    StepLine {
        step_id: state.step.clone(),
        session_id: state.session.clone(),
        status: state.status,
        output: state.output.clone(),
        is_struct_output: state.is_struct_output,
    }
}
