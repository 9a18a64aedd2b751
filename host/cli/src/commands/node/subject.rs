//! The node type that a command tries, and the values that it gets.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::{Args, ValueHint};
use flowcell::{Host, HostBuilder, Json, LoadError, LoadedFlow, NodeType, Probe, RunStatus, contract::Failure};

use super::test::{
    CASES_FOLDER, TestHost,
    cases::{self, Case},
    trial::{self, CaseEnd},
};
use crate::{cli_error::CliError, commands::nodes, options::PackArgs, session::inputs};

/// Maximum real time of one of repeated runs.
const MAX_RUN_TIME: Duration = Duration::from_secs(60);

/// The node type, and where its values come from.
#[derive(Args)]
pub(super) struct SubjectArgs {
    /// The node type, such as `data.pick`, or with a version `acme.greet@1.2`
    #[arg(value_name = "TYPE")]
    pub(super) node_type: String,
    /// A member of the input: JSON if the value parses as JSON, the content of a file for `@PATH`, otherwise text; may
    /// be repeated
    #[arg(short, long = "input", value_name = "KEY=VALUE", value_parser = inputs::pair)]
    input: Vec<(String, inputs::Member)>,
    /// Read the input, a JSON object, from this file; `-` is standard input; members given with `-i` take precedence
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    input_file: Option<PathBuf>,
    /// A member of the node's config; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = inputs::plain)]
    config: Vec<(String, Json)>,
    /// Grant the node a capability, as in a flow: http='["https://api.example.com"]'; may be repeated
    #[arg(long, value_name = "CAPABILITY=GRANT", value_parser = inputs::plain)]
    grant: Vec<(String, Json)>,
    /// Begin with the case that has this name: its input, config, grants, replies, answer and state
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// The folder of the cases
    #[arg(long, value_name = "DIR", default_value = CASES_FOLDER, value_hint = ValueHint::DirPath)]
    cases: PathBuf,
    #[command(flatten)]
    pub(super) packs: PackArgs,
}

/// A node type that is compiled and ready, with the values for its runs.
pub(super) struct Subject {
    host: TestHost,
    pub(super) node: NodeType,
    /// The values of a run. Its input is `None` if the command line gives none.
    pub(super) case: Case,
    /// The folder of the cases.
    folder: PathBuf,
}

/// The outcome of one run of a node.
pub(super) enum Outcome {
    Succeeded,
    Failed(Failure),
    /// The node waits for an answer, an event or a message that nothing sends.
    Waits,
    /// The run did not end in time.
    Overdue,
}

impl SubjectArgs {
    /// Builds the host, finds the node type, and compiles its pack. No call of the node leaves the host. `with` changes
    /// the builder of the host.
    pub(super) fn open(&self, with: impl FnOnce(HostBuilder) -> HostBuilder) -> Result<Subject, CliError> {
        let host = TestHost::build(with(self.packs.builder()))?;
        let node = nodes::find(&host.host.catalog(), &self.node_type)?;
        compile(&host.host, &node)?;
        let case = self.case(&host.host, &node)?;
        Ok(Subject { host, node, case, folder: self.cases.clone() })
    }

    /// Returns the case of the command line, with the values of the other options in place of its own.
    fn case(&self, host: &Host, node: &NodeType) -> Result<Case, CliError> {
        let mut case = match &self.case {
            Some(name) => self.written_case(node, name)?,
            None => Case::of_type(&self.node_type, node),
        };
        case.node_type = self.node_type.clone();
        if !self.input.is_empty() || self.input_file.is_some() {
            let members = inputs::kept_by(host, &self.input)?;
            case.input = Some(inputs::collect(&members, self.input_file.as_deref())?);
        }
        if !self.config.is_empty() {
            case.config = Some(inputs::collect(&self.config, None)?);
        }
        case.grants.extend(self.grant.iter().map(|(name, grant)| (name.clone(), grant.to_serde())));
        Ok(case)
    }

    fn written_case(&self, node: &NodeType, name: &str) -> Result<Case, CliError> {
        let mut all = cases::read(&self.cases)?;
        all.retain(|case| *case.node_type == *node.name);
        let names: Vec<_> = all.iter().map(|case| format!("`{}`", case.name)).collect();
        let case = all.into_iter().find(|case| case.name == name).ok_or_else(|| {
            let missing = format!("{} has no case `{name}` of `{}`", self.cases.display(), node.name);
            CliError::wrong(missing).hint(match names.as_slice() {
                [] => "`--cases DIR` names the folder of the cases".to_owned(),
                names => format!("there are {}", names.join(", ")),
            })
        })?;
        match &case.example {
            Some(title) => case.completed(std::slice::from_ref(node), title),
            None => Ok(case),
        }
    }
}

/// Compiles the pack of a node type, so that no run waits for it.
fn compile(host: &Host, node: &NodeType) -> Result<(), CliError> {
    let pack = node.pack.as_ref();
    let pack = pack.ok_or_else(|| CliError::internal(format!("`{}` has no pack", node.full_name())))?;
    host.prepare(pack).map_err(|error| CliError::wrong("the pack cannot be compiled").because(&error))
}

impl Subject {
    /// Returns another node type of the same host, with this input.
    pub(super) fn beside(&self, node_type: &str, input: Json) -> Result<(NodeType, Case), CliError> {
        let node = nodes::find(&self.host.host.catalog(), node_type)?;
        compile(&self.host.host, &node)?;
        let case = Case { input: Some(input), ..Case::of_type(node_type, &node) };
        Ok((node, case))
    }

    /// Returns the size of the component in bytes.
    pub(super) fn component_size(&self) -> Option<usize> {
        self.host.host.pack_size(self.node.pack.as_ref()?)
    }

    /// Loads the flow of a case.
    pub(super) fn load(&self, case: &Case) -> Result<LoadedFlow, CliError> {
        trial::load(&self.host.host, &self.folder, case).map_err(|error| match error {
            LoadError::Host(error) => error.into(),
            LoadError::Invalid(findings) => {
                CliError::found(findings).hint("`--grant`, `--config` and `--case` give the node what it needs")
            }
        })
    }

    /// Gives the runs an input if the command line gives none: that of the first example that succeeds, or an empty
    /// object. Returns the source of the input.
    pub(super) fn complete_input(&mut self) -> String {
        if self.case.input.is_some() {
            return "as given".to_owned();
        }
        let Some(example) = self.node.examples.iter().find(|example| example.output.is_some()) else {
            return "an empty object".to_owned();
        };
        self.case.input = Some(Json::from(example.input.clone())).filter(|input| !input.is_null());
        if self.case.config.is_none() {
            self.case.config = example.config.clone().map(Json::from);
        }
        format!("the example \"{}\"", example.title)
    }

    /// Runs a case for at most `limit` of real time.
    pub(super) async fn run(
        &self,
        flow: &LoadedFlow,
        case: &Case,
        limit: Duration,
        probe: Option<Arc<Probe>>,
    ) -> Result<Outcome, CliError> {
        let run = trial::run(&self.host.host, flow, case, limit, probe).await?;
        Ok(match run.end {
            CaseEnd::Refused(why) => return Err(CliError::wrong(why)),
            CaseEnd::Overdue => Outcome::Overdue,
            CaseEnd::Ended(result) => match (result.status, result.error) {
                (RunStatus::Succeeded, _) => Outcome::Succeeded,
                (_, Some(error)) => Outcome::Failed(error.failure),
                _ => Outcome::Waits,
            },
        })
    }
}

/// Repeated runs of a case, whose attempts a probe measures.
pub(super) struct Runs<'a> {
    subject: &'a Subject,
    case: &'a Case,
    flow: LoadedFlow,
    pub(super) probe: Arc<Probe>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(subject: &'a Subject, case: &'a Case, probe: Probe) -> Result<Runs<'a>, CliError> {
        Ok(Runs { subject, case, flow: subject.load(case)?, probe: Arc::new(probe) })
    }

    /// Runs the case once. Fails if the node does not succeed, since a failure tells little about the node's costs.
    pub(super) async fn once(&self) -> Result<(), CliError> {
        let outcome = self.subject.run(&self.flow, self.case, MAX_RUN_TIME, Some(self.probe.clone())).await?;
        let of = &self.case.node_type;
        match outcome {
            Outcome::Succeeded => Ok(()),
            Outcome::Failed(failure) => Err(CliError::internal(format!("`{of}` fails with this input"))
                .because(&failure)
                .hint("`-i` and `--input-file` give another input, `--case` also grants, replies and answers")),
            Outcome::Waits => Err(CliError::internal(format!("`{of}` waits for an answer, an event or a message"))
                .hint("`--case NAME` gives what a case of the project has")),
            Outcome::Overdue => {
                Err(CliError::internal(format!("a run of `{of}` takes longer than {} s", MAX_RUN_TIME.as_secs())))
            }
        }
    }
}
