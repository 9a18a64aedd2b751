//! Sessions and step states in memory.

use std::collections::BTreeMap;

use flowcell_contract::{RunId, Tenant};

use super::MemoryJournal;
use crate::ports::{Change, Entry, Session, Sessions, StepState, StoreError};

type Key = (Tenant, String);

/// The sessions and step states, by tenant and the id of the session.
#[derive(Default)]
pub(super) struct Tables {
    sessions: BTreeMap<Key, Session>,
    states: BTreeMap<Key, StepState>,
}

impl Tables {
    /// Applies the changes of an entry.
    pub(super) fn apply(&mut self, entry: &Entry) {
        entry.rows.iter().for_each(|change| self.apply_change(&entry.tenant, &entry.run, entry.unit.ts, change));
    }

    fn apply_change(&mut self, tenant: &Tenant, run: &RunId, now: u64, change: &Change) {
        let key = |id: &String| (tenant.clone(), id.clone());
        match change {
            Change::Clear { root } => {
                self.sessions.retain(|(owner, _), session| owner != tenant || session.root != *root);
                let Tables { sessions, states } = self;
                states.retain(|key, _| sessions.contains_key(key));
            }
            Change::Renew { root } => {
                self.states.retain(|(owner, _), state| owner != tenant || state.root != *root);
            }
            Change::Session { id, parent, root, title } => {
                let created = self.sessions.get(&key(id)).map_or(now, |session| session.created);
                let session = Session {
                    id: id.clone(),
                    parent: parent.clone(),
                    root: root.clone(),
                    title: title.clone(),
                    run: run.clone(),
                    created,
                    updated: now,
                };
                self.sessions.insert(key(id), session);
            }
            Change::Begun { session, root, flow, step, status, args } => {
                let created = self.states.get(&key(session)).map_or(now, |state| state.created);
                let state = StepState {
                    session: session.clone(),
                    root: root.clone(),
                    flow: flow.clone(),
                    step: step.clone(),
                    status: *status,
                    args: args.clone(),
                    output: None,
                    is_struct_output: false,
                    created,
                    updated: now,
                };
                self.states.insert(key(session), state);
            }
            Change::Ended { session, status, output, is_struct_output } => {
                if let Some(state) = self.states.get_mut(&key(session)) {
                    (state.status, state.output) = (*status, Some(output.clone()));
                    (state.is_struct_output, state.updated) = (*is_struct_output, now);
                }
            }
        }
    }
}

impl Sessions for MemoryJournal {
    fn session(&self, tenant: &Tenant, id: &str) -> Result<Option<Session>, StoreError> {
        Ok(self.tables.lock().sessions.get(&(tenant.clone(), id.to_owned())).cloned())
    }

    fn sessions(&self, tenant: &Tenant, root: &str) -> Result<Vec<Session>, StoreError> {
        let tables = self.tables.lock();
        let of_tree = tables.sessions.iter().filter(|((owner, _), session)| owner == tenant && session.root == root);
        let mut sessions: Vec<_> = of_tree.map(|(_, session)| session.clone()).collect();
        sessions.sort_by_key(|session| session.created);
        Ok(sessions)
    }

    fn states(&self, tenant: &Tenant, root: &str) -> Result<Vec<StepState>, StoreError> {
        let tables = self.tables.lock();
        let of_tree = tables.states.iter().filter(|((owner, _), state)| owner == tenant && state.root == root);
        let mut states: Vec<_> = of_tree.map(|(_, state)| state.clone()).collect();
        states.sort_by_key(|state| state.created);
        Ok(states)
    }
}
