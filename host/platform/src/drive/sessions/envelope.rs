//! The steps of an agentic flow with their results, grouped by status, as one object.

use flowcell_flow::agentic::FlowLabel;
use flowcell_runtime::ports::{StepState, StepStatus};
use serde::Serialize;

/// The steps of a flow, grouped by their status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// The name of the flow.
    pub flow_id: String,
    /// The session of the flow's first step.
    pub root_session_id: String,
    /// Steps that have begun and not ended.
    pub running_steps: Vec<StepLine>,
    /// Steps with an output.
    pub completed_steps: Vec<StepLine>,
    /// Steps whose last try has failed.
    pub failed_steps: Vec<StepLine>,
    /// Steps that are left for the next run.
    pub postponed_steps: Vec<StepLine>,
}

/// The state of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepLine {
    /// The step's id in the flow.
    pub step_id: String,
    /// The id of the step's session.
    pub session_id: String,
    /// The step's current status.
    pub status: StepStatus,
    /// The output of the step as text. For a failed step, the reason of the failure.
    pub output: Option<String>,
    /// True if the output is JSON that was checked against a schema. False if it is plain text.
    pub is_struct_output: bool,
}

impl Envelope {
    /// Groups the states of a flow's steps. Each group is sorted by start time, then by the order of the steps in the
    /// flow.
    pub(super) fn new(flow: &str, root: &str, label: &FlowLabel, mut states: Vec<StepState>) -> Envelope {
        let place = |state: &StepState| label.steps.iter().position(|step| *step == state.step);
        states.sort_by_key(|state| (state.created, place(state)));
        let of =
            |status: StepStatus| states.iter().filter(move |state| state.status == status).map(step_line).collect();
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

fn step_line(state: &StepState) -> StepLine {
    StepLine {
        step_id: state.step.clone(),
        session_id: state.session.clone(),
        status: state.status,
        output: state.output.clone(),
        is_struct_output: state.is_struct_output,
    }
}
