//! Prepares test runs, which store nothing.

use std::sync::Arc;

use flowcell_contract::{Capability, NodeRunner};
use flowcell_runtime::{FlowRunner, MemoryBudget, RunOptions, World, memory::MemoryBlobs};

use super::{Host, called::CallableFlows, error::StartError, homes, loaded::LoadedFlow, outside};
use crate::{
    operate::usage::counted::CountedRunner,
    world::{
        measure::MeasuringRunner,
        test_run::{BudgetedBlobs, Clock, FixtureRunner, Fixtures, Stub, VirtualTimers},
    },
};

/// Performs [`Host::test_runner`].
pub(super) fn runner(
    host: &Host,
    flow: &LoadedFlow,
    script: Arc<Fixtures>,
    mut options: RunOptions,
) -> Result<FlowRunner, StartError> {
    options.input = host.check_input(flow, options.input)?.given;
    let clock = Arc::new(Clock::new(&script));
    let (engine, usage) = (host.shared.engine.clone(), host.shared.usage.clone());
    let engine: Arc<dyn NodeRunner> = match script.probe.clone() {
        Some(probe) => Arc::new(MeasuringRunner { engine, probe }),
        None => Arc::new(CountedRunner { engine, usage }),
    };
    let runner = FixtureRunner::new(engine, script.clone(), clock.clone());
    let library = CallableFlows::new(host.clone(), homes::bind(host, flow));
    let (homes, pinned) = (library.homes().clone(), library.pin(flow));
    let mut world = World::in_memory(Arc::new(runner), Arc::new(library));
    world.tenant = host.tenant.clone();
    world.seed = Some(script.seed);
    world.timers = Arc::new(VirtualTimers(clock));
    world.live = host.shared.live.clone();
    world.blobs = Arc::new(MemoryBlobs::over(host.shared.blobs.clone()));
    if let Some(most) = script.most_bytes {
        let budget = Arc::new(MemoryBudget::new(most));
        world.blobs = Arc::new(BudgetedBlobs { blobs: world.blobs, budget: budget.clone() });
        world.budget = Some(budget);
    }
    let stand_in = |real: &Arc<dyn Capability>| -> Arc<dyn Capability> {
        Arc::new(Stub { real: real.clone(), script: script.clone(), simulate: host.simulate.clone() })
    };
    let outside = outside::capabilities(host, &homes, &world.blobs);
    let outside = outside.iter().map(|(name, real)| (name.clone(), stand_in(real)));
    world.capabilities = Arc::new(outside.collect());
    Ok(FlowRunner::new(pinned, Arc::new(world), options)?)
}
