//! Notices to clients that the flows have changed. Flows are files that other programs may edit, so the server polls
//! them.

use std::{sync::Arc, time::Duration};

use flowcell_contract::Tenant;
use rmcp::{Peer, RoleServer};
use tokio::sync::watch;

use crate::{
    blocking::blocking,
    http::{app::App, connection::wait_for_server_end},
};
use flowcell_platform::FlowLibrary;

/// The interval between two checks.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A watch on a tenant's flows. Its value is a stamp, which changes whenever a flow changes.
#[derive(Clone)]
pub(super) struct Changes(watch::Receiver<u64>);

impl Changes {
    /// Starts a tokio task that checks the flows of a tenant every [`POLL_INTERVAL`]. The task ends when no client
    /// listens any more, or when the server ends.
    pub(super) fn follow(app: &Arc<App>, tenant: &Tenant) -> Changes {
        let host = app.host.for_tenant(tenant.clone());
        let library = FlowLibrary::open(app.flows_of(tenant)).with_posted_of(&host);
        let (tell, told) = watch::channel(stamp(&library));
        let mut ends = app.ends.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    () = tell.closed() => return,
                    () = wait_for_server_end(&mut ends) => return,
                }
                let look = library.clone();
                // A check that has panicked reports no change.
                let Ok(seen) = blocking(move || stamp(&look)).await else { continue };
                tell.send_if_modified(|known| std::mem::replace(known, seen) != seen);
            }
        });
        Changes(told)
    }

    /// Waits for the next change, and returns true. Returns false if the tokio task that checks the flows has ended.
    pub(super) async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// Notifies a client of every change, until it disconnects.
    pub(super) async fn notify(mut self, peer: Peer<RoleServer>) {
        self.0.mark_unchanged();
        while self.next().await {
            if peer.is_transport_closed() || peer.notify_tool_list_changed().await.is_err() {
                return;
            }
        }
    }
}

/// Returns the current stamp of the flows. An unreadable folder counts as an empty one.
fn stamp(library: &FlowLibrary) -> u64 {
    library.stamp().unwrap_or_default()
}
