//! Going on with a run that the journal knows.

use std::panic::{self, AssertUnwindSafe};

use flowcell_contract::FlowCall;

use super::{Begin, Driver, each_unit};
use crate::{decide::Input, outstanding::Outstanding, ports::StoreError};

impl Driver {
    /// Folds what is durable of the run into the state. Answers how a drive begins then, none if the run is new.
    pub(crate) fn recover(&mut self, by_hand: bool) -> Result<Option<Begin>, StoreError> {
        let (journal, identity) = (self.world.journal.clone(), self.identity.clone());
        self.has_called = true;
        let mut folded = Ok(());
        each_unit(&*journal, &identity.tenant, &identity.run_id, |unit| {
            if folded.is_err() {
                return;
            }
            // The fold panics where facts do not fit, rather than invent history.
            folded = panic::catch_unwind(AssertUnwindSafe(|| {
                assert_eq!(unit.first_seq, self.outbox.next_seq, "a unit is missing");
                unit.facts.iter().for_each(|fact| self.state.apply(fact, unit.ts));
            }));
            self.outbox.recover(&unit);
        })?;
        if folded.is_err() {
            let message = format!("the journal of run `{}` does not fit its flow", identity.run_id);
            return Err(StoreError(message.into()));
        }
        if self.outbox.next_seq == 0 {
            return Ok(None);
        }
        self.outbox.recovered();
        Ok(Some(Begin::Again { by_hand }))
    }

    /// Begins again what was begun and not answered. That the run is resumed is durable before, so that one which kills
    /// its process is known.
    pub(super) async fn go_on(&mut self, by_hand: bool) {
        if self.state.end().is_some() {
            return;
        }
        let _ = self.bring(Input::Resume { by_hand, alone: self.alone });
        self.leave().await;
        if self.state.held().is_some() {
            return;
        }
        for outstanding in self.state.outstanding() {
            match outstanding {
                // An attempt that waits for people begins again when something arrives for it.
                Outstanding::Attempt { task, attempt, resumes } if self.state.task(task).idle => {
                    self.attempts.keep_dropped(task, (attempt, resumes));
                }
                Outstanding::Attempt { task, .. } => self.start(task),
                Outstanding::Timer(timer, _) => self.clock.add(&self.state, timer),
                Outstanding::Child { task, name, input, cancelled, .. } => {
                    self.place_child(task, &FlowCall { name, input });
                    if cancelled {
                        self.cancel_child(task);
                    }
                }
                Outstanding::Question { task, .. } => self.answer_early(task),
                Outstanding::Permission { task, ordinal, .. } => self.allow_early(task, ordinal),
                // A call is made again when its attempt is back at it.
                Outstanding::Event { .. }
                | Outstanding::Messages { .. }
                | Outstanding::Decision { .. }
                | Outstanding::Call { .. } => {}
            }
        }
        let _ = self.bring(Input::Proceed);
    }
}
