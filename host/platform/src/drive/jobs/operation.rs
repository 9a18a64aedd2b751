//! The requests of operators about jobs.

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use super::{Creator, JobCommand, JobError, JobRequest, Jobs};
use crate::{
    Host,
    operate::{documents::to_json, identity::Scopes},
};

/// A request of an operator about the jobs of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum JobOperation {
    /// Shows the runs that a job would select.
    Preview {
        /// The job.
        request: Box<JobRequest>,
    },
    /// Creates a job.
    Create {
        /// The job.
        request: Box<JobRequest>,
    },
    /// Lists the jobs, the latest first.
    List,
    /// Shows a job.
    Show {
        /// The id of the job.
        id: String,
    },
    /// Pauses, resumes or cancels a job.
    Steer {
        /// The id of the job.
        id: String,
        /// The command.
        command: JobCommand,
    },
}

impl JobOperation {
    /// Executes the request on the jobs of a host's tenant, and returns its result.
    pub(crate) fn execute(&self, host: &Host) -> Result<Json, JobError> {
        let jobs = Jobs::of(host);
        Ok(match self {
            JobOperation::Preview { request } => to_json("preview", &jobs.preview(request)?),
            JobOperation::Create { request } => {
                to_json("job", &jobs.create((**request).clone(), &Creator::Operator, Scopes::all())?)
            }
            JobOperation::List => to_json("jobs", &jobs.list()?),
            JobOperation::Show { id } => to_json("job", &jobs.show(id)?),
            JobOperation::Steer { id, command } => to_json("job", &jobs.steer(id, *command, &Creator::Operator)?),
        }?)
    }
}
