//! Reads the inputs of tasks from the store.

use flowcell_contract::RunId;
use flowcell_runtime::{
    OpenError,
    inputs::{TaskInputs, Window},
    ports::{Runs, StoreError},
};

use super::{
    Host,
    events::{Until, count_until},
    pin,
};
use crate::host::error::StartError;

/// Performs [`Host::task_inputs`].
pub(crate) fn read(
    host: &Host,
    runs: Option<&dyn Runs>,
    run: &RunId,
    address: &str,
    window: Window,
) -> Result<TaskInputs, StartError> {
    // Without a limit the last child run of each task counts, as it is.
    let at = match address.contains('/') && window.end < u64::MAX {
        true => count_until(host, run, Until::Event(window.end))?.1,
        false => None,
    };
    let children = |run: &RunId| -> Result<Vec<RunId>, StoreError> {
        let mut children = runs.map_or(Ok(Vec::new()), |runs| runs.children(&host.tenant, run))?;
        if let (Some(at), Some(runs)) = (at, runs) {
            let has_begun = |child: &RunId| Ok(runs.run(&host.tenant, child)?.is_some_and(|(row, _)| row.created < at));
            let begun: Result<Vec<bool>, StoreError> = children.iter().map(has_begun).collect();
            let mut begun = begun?.into_iter();
            children.retain(|_| begun.next() == Some(true));
        }
        Ok(children)
    };
    let (run, task) = match run_at(run, address, children).map_err(OpenError::Store)? {
        (run, Some(task)) => (run, task),
        (run, None) => return Ok(TaskInputs::none(run, address)),
    };
    let end = match at {
        Some(at) => count_until(host, &run, Until::Time(at))?.0,
        None if address.contains('/') => u64::MAX,
        None => window.end,
    };
    let window = Window { end, ..window };
    let record = host.record(&run).map_err(OpenError::Store)?;
    let record = record.ok_or_else(|| OpenError::Unknown(run.clone()))?;
    let graphs = pin::graphs_of(host, &record).map_err(OpenError::Pin)?;
    let of = (&host.tenant, &run);
    let inputs = TaskInputs::read(&*host.shared.journal, &graphs, &record, of, (task, window));
    Ok(inputs.map_err(OpenError::Store)?)
}

/// Follows an address such as `review/pay` to the run that `review` called last. Returns that run, and the part of
/// the address that names a task in it. The part is `None` if a node of the address has called no run.
pub(crate) fn run_at<'a, E>(
    run: &RunId,
    address: &'a str,
    children: impl Fn(&RunId) -> Result<Vec<RunId>, E>,
) -> Result<(RunId, Option<&'a str>), E> {
    let (mut run, mut task) = (run.clone(), address);
    while let Some((owner, below)) = task.split_once('/') {
        let child = children(&run)?.into_iter().rev().find(|child| calling_task(&run, child) == Some(owner));
        let Some(child) = child else { return Ok((run, None)) };
        (run, task) = (child, below);
    }
    Ok((run, Some(task)))
}

/// Returns the address of the task in `parent` that called the run `child`. The address is in the child's id, before
/// the attempt. `None`: the run is not a child run of `parent`.
pub(crate) fn calling_task<'a>(parent: &RunId, child: &'a RunId) -> Option<&'a str> {
    let rest = child.as_str().strip_prefix(parent.as_str())?.strip_prefix('.')?;
    Some(rest.rsplit_once('.')?.0)
}
