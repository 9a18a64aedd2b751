//! The waits of a run for a reader that looks again and again, such as a person at a terminal.

use std::collections::HashMap;

use flowcell_contract::RunId;
use flowcell_runtime::{Event, OpenError};
use serde_json::Value;

use super::{BoundedList, MAX_DEPTH, OpenWaits};
use crate::{
    Host, StartError,
    host::{events::EventReader, task_inputs::calling_task},
};

/// The waits of a run and its child runs. It reads each event once.
#[derive(Default)]
pub struct FollowedWaits {
    /// The run and its unfinished child runs, in the order of the list.
    runs: Vec<FollowedRun>,
}

/// The waits of one run.
struct FollowedRun {
    run: RunId,
    /// The part of the addresses before those of the run, such as `review/`.
    prefix: String,
    events: EventReader,
    open: OpenWaits,
}

impl FollowedWaits {
    /// Reads the events since the last call. `visit` gets those of the run itself. Returns whether anything has
    /// changed.
    pub fn refresh(&mut self, host: &Host, run: &RunId, mut visit: impl FnMut(&Event)) -> Result<bool, StartError> {
        let mut known: HashMap<RunId, FollowedRun> =
            self.runs.drain(..).map(|followed| (followed.run.clone(), followed)).collect();
        let before = known.len();
        let (mut is_fresh, mut level) = (false, vec![(run.clone(), String::new())]);
        for depth in 0..=MAX_DEPTH {
            let mut below = Vec::new();
            for (at, prefix) in level {
                let mut followed = match known.remove(&at) {
                    Some(followed) => followed,
                    None => FollowedRun {
                        run: at.clone(),
                        prefix: prefix.clone(),
                        events: host.events(&at)?,
                        open: OpenWaits::default(),
                    },
                };
                let read = followed.read(|event| {
                    is_fresh = true;
                    if depth == 0 {
                        visit(event);
                    }
                });
                self.runs.push(followed);
                read?;
                if depth < MAX_DEPTH {
                    for child in host.live_runs_below(&at).map_err(OpenError::Store)? {
                        let task = calling_task(&at, &child).map(|task| format!("{prefix}{task}/"));
                        below.extend(task.map(|prefix| (child.clone(), prefix)));
                    }
                }
            }
            level = below;
        }
        // The waits of an ended child run are gone.
        Ok(is_fresh || before > self.runs.len())
    }

    /// Lists the waits as [`list`](super::list) does.
    pub fn list(&self) -> Vec<Value> {
        let Some(root) = self.runs.first() else { return Vec::new() };
        let mut list = BoundedList::new(&root.run);
        for followed in &self.runs {
            for (_, waits) in followed.open.waits.values().flatten() {
                let address = format!("{}{}", followed.prefix, waits["address"].as_str().unwrap_or_default());
                let mut waits = waits.clone();
                waits["address"] = address.into();
                list.take(waits);
            }
        }
        list.end()
    }
}

impl FollowedRun {
    /// Reads the events since the last call.
    fn read(&mut self, mut visit: impl FnMut(&Event)) -> Result<(), StartError> {
        while let Some(event) = self.events.next(0)? {
            self.open.apply(&event);
            visit(&event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_flow::Source;
    use flowcell_runtime::{RunOptions, RunStatus};

    use super::{super::list, *};

    #[test]
    fn each_event_is_read_once_and_the_list_is_the_usual_one() {
        let host = Host::builder().build().unwrap();
        let text = "
flow: { name: asks }
nodes:
  - { id: each, type: control.foreach, input: { list: [1, 2, 3] }, body: [ok] }
  - { id: ok, type: control.gate, input: { prompt: 'Well, {{ item }}?', choices: ['yes'] } }
edges: []
";
        let flow = host.load_source(Source { name: "asks.yaml".into(), text: text.into() }).unwrap();
        let options = RunOptions { run_id: Some("r".into()), ..RunOptions::default() };
        let runner = host.runner(&flow, options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(runner.run()).status, RunStatus::Parked);
        let (run, mut seen, mut waits) = (RunId::from("r"), Vec::new(), FollowedWaits::default());
        assert!(waits.refresh(&host, &run, |event| seen.push(event.seq)).unwrap());
        assert_eq!(seen, (0..seen.len() as u64).collect::<Vec<_>>());
        let usual = list(&host, &run).unwrap();
        assert_eq!((waits.list(), usual.len()), (usual, 3));
        let before = seen.len();
        assert!(!waits.refresh(&host, &run, |event| seen.push(event.seq)).unwrap());
        assert_eq!((seen.len(), waits.list().len()), (before, 3));
        assert!(waits.refresh(&host, &"missing".into(), |_| ()).is_err());
    }
}
