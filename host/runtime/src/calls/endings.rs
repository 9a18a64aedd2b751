//! The actions for the ends of attempts: what capabilities have left open for them, such as streams.

use std::sync::{Arc, Weak};

use flowcell_contract::{AttemptEnd, EndAction, EndRegistration};
use parking_lot::Mutex;

use crate::fact::TaskKey;

/// The actions for the ends of the attempts of one run. When the run is given up, all of them happen.
#[derive(Default)]
pub(crate) struct Endings(Mutex<Actions>);

#[derive(Default)]
struct Actions {
    last: u64,
    waiting: Vec<Waiting>,
}

struct Waiting {
    number: u64,
    task: TaskKey,
    /// The attempt and its number of resumes.
    attempt: (u32, u32),
    action: EndAction,
}

impl Endings {
    /// Returns the end of an attempt, for its calls.
    pub(crate) fn end_of(self: &Arc<Self>, task: TaskKey, attempt: (u32, u32)) -> AttemptEnd {
        let endings = Arc::downgrade(self);
        AttemptEnd::new(move |action| Endings::register(&endings, task, attempt, action))
    }

    fn register(endings: &Weak<Endings>, task: TaskKey, attempt: (u32, u32), action: EndAction) -> EndRegistration {
        let Some(there) = endings.upgrade() else {
            // The run was given up meanwhile.
            action();
            return EndRegistration::default();
        };
        let mut actions = there.0.lock();
        actions.last += 1;
        let number = actions.last;
        actions.waiting.push(Waiting { number, task, attempt, action });
        let endings = endings.clone();
        EndRegistration::new(move || {
            let removed = endings.upgrade().and_then(|endings| endings.remove(number));
            drop(removed);
        })
    }

    /// Returns true if an action waits for the end of this attempt.
    pub(crate) fn has(&self, task: TaskKey, attempt: (u32, u32)) -> bool {
        self.0.lock().waiting.iter().any(|waiting| (waiting.task, waiting.attempt) == (task, attempt))
    }

    /// Performs the actions of the attempts that do not run any more.
    pub(crate) fn perform_unless(&self, is_running: impl Fn(TaskKey, (u32, u32)) -> bool) {
        let mut actions = self.0.lock();
        if actions.waiting.is_empty() {
            return;
        }
        let ended: Vec<_> = actions.waiting.extract_if(.., |one| !is_running(one.task, one.attempt)).collect();
        // An action may remove registrations.
        drop(actions);
        ended.into_iter().for_each(|one| (one.action)());
    }

    fn remove(&self, number: u64) -> Option<Waiting> {
        let waiting = &mut self.0.lock().waiting;
        let at = waiting.iter().position(|one| one.number == number)?;
        Some(waiting.swap_remove(at))
    }
}

impl Drop for Endings {
    fn drop(&mut self) {
        self.perform_unless(|_, _| false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use flowcell_flow::graph::NodeIx;

    use super::*;
    use crate::fact::ScopeId;

    fn task(node: u32) -> TaskKey {
        TaskKey { scope: ScopeId::ROOT, node: NodeIx(node) }
    }

    fn counted(closed: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
        let closed = closed.clone();
        move || {
            closed.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn an_action_happens_once_at_the_end_of_its_attempt() {
        let (endings, closed) = (Arc::new(Endings::default()), Arc::new(AtomicUsize::new(0)));
        let first = endings.end_of(task(0), (1, 0)).on_end(counted(&closed));
        let removed = endings.end_of(task(0), (1, 0)).on_end(counted(&closed));
        let other = endings.end_of(task(1), (2, 1)).on_end(counted(&closed));
        drop(removed);
        endings.perform_unless(|_, _| true);
        assert!(closed.load(Ordering::SeqCst) == 0 && endings.has(task(0), (1, 0)));
        endings.perform_unless(|task_key, attempt| (task_key, attempt) == (task(1), (2, 1)));
        assert!(closed.load(Ordering::SeqCst) == 1 && !endings.has(task(0), (1, 0)) && endings.has(task(1), (2, 1)));
        // The attempt goes on after a pause, so it is another one.
        endings.perform_unless(|_, attempt| attempt == (2, 2));
        drop((first, other));
        drop(endings);
        assert_eq!(closed.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_run_that_is_given_up_ends_its_attempts() {
        let (endings, closed) = (Arc::new(Endings::default()), Arc::new(AtomicUsize::new(0)));
        let end = endings.end_of(task(0), (1, 0));
        let _open = end.on_end(counted(&closed));
        drop(endings);
        assert_eq!(closed.load(Ordering::SeqCst), 1);
        let _late = end.on_end(counted(&closed));
        assert_eq!(closed.load(Ordering::SeqCst), 2);
    }
}
