//! A run that continues in the same process after its driver was dropped.

use super::{FlowRunner, OpenError, RunOptions};

impl FlowRunner {
    /// Returns a function that prepares to continue this run, once its runner was dropped, as another process would after
    /// the end of this one: from what the store has. It works for stores in memory, too.
    pub fn continuation(&self) -> impl Fn(RunOptions) -> Result<FlowRunner, OpenError> + use<> {
        let (world, run_id) = (self.world.clone(), self.identity.run_id.clone());
        move |options| FlowRunner::resume(world.clone(), run_id.clone(), options)
    }
}
