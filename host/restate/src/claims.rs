//! Claims and offers of run trees. The cluster decides which process has the invocation of a tree. A driver of this
//! process may claim a run only then.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{
    ports::{Lease, StoreError},
    remote::new_message_id,
    shared::Offer,
};
use tokio::{sync::oneshot, time::sleep};

use crate::{shared::Shared, tree::Tree, wire::Drive};

/// The time for which a claim waits until its invocation begins here.
const CLAIM_PATIENCE: Duration = Duration::from_secs(2);

impl Shared {
    /// Puts a tree on the list of those that wait for a supervisor.
    pub(crate) fn offer(&self, tree: &Arc<Tree>) {
        self.offers.lock().push_back(tree.clone());
    }

    /// Takes trees of a tenant that wait for a supervisor.
    pub(crate) fn take_offers(self: &Arc<Shared>, tenant: &Tenant, limit: usize) -> Vec<Offer> {
        let mut offers = self.offers.lock();
        let mut taken = Vec::new();
        let mut kept = VecDeque::with_capacity(offers.len());
        for tree in offers.drain(..) {
            let is_wanted = tree.key.0 == *tenant && taken.len() < limit;
            let mut state = tree.lock();
            if !state.is_offered {
                continue;
            }
            if is_wanted {
                (state.is_offered, state.offers) = (false, state.offers + 1);
                drop(state);
                taken.push(tree);
            } else {
                drop(state);
                kept.push_back(tree);
            }
        }
        *offers = kept;
        drop(offers);
        taken.into_iter().map(|tree| self.new_offer(tree)).collect()
    }

    fn new_offer(self: &Arc<Shared>, tree: Arc<Tree>) -> Offer {
        let (tenant, run) = tree.key.clone();
        let shared = self.clone();
        let lease = Lease::new(move || {
            let mut state = tree.lock();
            state.offers -= 1;
            if state.offers == 0 && state.drivers.is_empty() {
                state.delay_offer();
            }
            drop(state);
            tree.changed.notify_one();
            shared.drop_if_idle(&tree);
        });
        Offer { tenant, run, lease }
    }

    /// Claims a run for a driver in this process. A process that does not listen for the cluster drives only runs that
    /// do not exist yet.
    pub(crate) fn claim(
        self: &Arc<Shared>,
        tenant: &Tenant,
        run: &RunId,
        listens: bool,
    ) -> Result<Option<Lease>, StoreError> {
        let key = self.tree_key(tenant, run)?;
        let tree = self.tree(&key);
        let claimed = self.claim_in(&tree, run, listens);
        if !matches!(claimed, Ok(true)) {
            self.drop_if_idle(&tree);
            return claimed.map(|_| None);
        }
        Ok(Some(self.new_lease(tree, run)))
    }

    /// Claims a run that does not exist yet.
    pub(crate) fn claim_new(self: &Arc<Shared>, tenant: &Tenant, run: &RunId) -> Option<Lease> {
        let tree = self.tree(&(tenant.clone(), run.clone()));
        let is_new = tree.lock().claim_new(run);
        is_new.then(|| self.new_lease(tree, run))
    }

    fn new_lease(self: &Arc<Shared>, tree: Arc<Tree>, run: &RunId) -> Lease {
        let (shared, run) = (self.clone(), run.clone());
        Lease::new(move || {
            let mut state = tree.lock();
            state.drivers.remove(&run);
            state.offer_after = None;
            drop(state);
            tree.changed.notify_one();
            shared.drop_if_idle(&tree);
        })
    }

    fn claim_in(self: &Arc<Shared>, tree: &Arc<Tree>, run: &RunId, listens: bool) -> Result<bool, StoreError> {
        {
            let mut state = tree.lock();
            if state.drivers.contains(run) || !listens && !state.heads.is_empty() {
                return Ok(false);
            }
            if state.session.is_some() || state.is_asked || !state.drivers.is_empty() {
                state.is_offered = false;
                return Ok(state.drivers.insert(run.clone()));
            }
        }
        let found = self.block_on(self.clone().head(tree.key.clone(), tree.key.1.clone()))?;
        if found.head.is_none() && !found.driven {
            return Ok(tree.lock().claim_new(run));
        }
        if found.driven || !listens {
            return Ok(false);
        }
        let nonce = new_message_id();
        let (claimed, begun) = oneshot::channel();
        tree.lock().claims.insert(nonce.clone(), (run.clone(), claimed));
        let (shared, key, claim) = (self.clone(), tree.key.clone(), nonce.clone());
        let arrived = self.block_on(async move {
            let drive = Drive { claim: Some(claim), ..Drive::default() };
            // The invocation ends at once in a process that does not know the claim, if the run is not ready.
            tokio::select! {
                biased;
                begun = begun => Ok::<_, StoreError>(begun.is_ok()),
                ended = shared.call_drive(&key, &drive) => ended.map(|()| false),
                () = sleep(CLAIM_PATIENCE) => Ok(false),
            }
        });
        let mut state = tree.lock();
        let is_late = state.claims.remove(&nonce).is_none();
        // The invocation may have begun just after the wait, also after one that failed.
        if is_late && state.drivers.contains(run) { Ok(true) } else { arrived }
    }
}
