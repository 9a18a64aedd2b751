//! Runs node types and flows that agents call as tools. Each call is a child run of the agent's run.

use std::{collections::BTreeSet, sync::Arc};

use flowcell_contract::{Catalog, Failure, Json, Outgoing, RunId, code};
use flowcell_flow::{Source, graph::Graph};
use flowcell_runtime::{QuotaHold, RunOptions, RunResult, RunStatus};
use futures_util::{FutureExt, future::BoxFuture};

use super::{Host, error::StartError, home::Home, homes, loaded::LoadedFlow, loading};
use crate::world::tools::RunFlows;

/// The flows that runs with the same home can call.
pub(super) struct CalledFlows {
    pub(super) host: Host,
    pub(super) home: Arc<Home>,
}

impl CalledFlows {
    /// Runs a flow as a child of the agent's run, and returns its outputs.
    async fn run(&self, flow: &LoadedFlow, input: Json, outgoing: &Outgoing) -> Result<Json, Failure> {
        let run = RunId::from(format!("{}.tool-{}", outgoing.caller.run_id, outgoing.key));
        let options = RunOptions {
            run_id: Some(run),
            input,
            parent: Some(outgoing.caller.run_id.clone()),
            wait_for_answers: true,
            without_events: true,
            by_hand: true,
            ..RunOptions::default()
        };
        let mut runner = self.host.runner(flow, options).map_err(failed_to_start)?;
        runner.enter().await?;
        runner.start_session();
        // If its caller stops waiting, the child ends with the agent's run.
        outputs_of(runner.run().await)
    }
}

impl RunFlows for CalledFlows {
    fn catalog(&self) -> Arc<Catalog> {
        self.host.catalog()
    }

    fn names(&self) -> BTreeSet<String> {
        self.home.tool_flow_names()
    }

    fn has(&self, name: &str) -> bool {
        self.home.has(name)
    }

    fn graph(&self, name: &str) -> Option<Arc<Graph>> {
        homes::load_called(&self.host, &self.home, name).ok().map(|flow| flow.graph)
    }

    fn run_flow<'a>(
        &'a self,
        name: &'a str,
        input: Json,
        outgoing: &'a Outgoing,
    ) -> BoxFuture<'a, Result<Json, Failure>> {
        async move {
            let flow = homes::called(&self.host, &self.home, name).map_err(|failure| unusable(&failure))?;
            self.run(&flow, input, outgoing).await
        }
        .boxed()
    }

    fn run_source<'a>(
        &'a self,
        source: &'a Source,
        input: Json,
        outgoing: &'a Outgoing,
    ) -> BoxFuture<'a, Result<Json, Failure>> {
        async move {
            let flow =
                loading::load_in(&self.host, source, self.home.folder.clone()).map_err(|error| unusable(&error))?;
            self.run(&LoadedFlow { home: Some(self.home.clone()), ..flow }, input, outgoing).await
        }
        .boxed()
    }
}

fn outputs_of(result: RunResult) -> Result<Json, Failure> {
    match (result.status, result.error, result.quota) {
        (RunStatus::Succeeded, ..) => Ok(result.outputs),
        (_, Some(error), _) => Err(QuotaHold::without(error.failure)),
        // The call is made again when the quota has renewed, and then this run goes on.
        (_, None, Some(hold)) => Err(hold.failure(format!("the tool waits until the quota `{}` renews", hold.quota))),
        (status, None, None) => {
            Err(Failure::new(code::CANCELLED, format!("the run of the tool ended with the status {status:?}")))
        }
    }
}

fn failed_to_start(error: StartError) -> Failure {
    match error {
        StartError::Quota(error) => error.into(),
        StartError::Input(error) => Failure::new(error.code(), error.to_string()),
        other => Failure::retryable(code::LOST_WORKER, other.to_string()),
    }
}

fn unusable(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(code::TOOL_NOT_FOUND, format!("cannot use the tool: {error}"))
}
