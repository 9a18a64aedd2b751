//! Telling clients that the flows have changed. Flows are files that anybody may edit, so they are looked at again and again.

use std::{sync::Arc, time::Duration};

use flowcell_contract::Tenant;
use rmcp::{Peer, RoleServer};
use tokio::sync::watch;

use crate::http::{app::App, connection::over};
use flowcell_platform::FlowLibrary;

/// Time between two looks.
pub(crate) const LOOK: Duration = Duration::from_secs(2);

/// How the flows of a tenant are, as something that changes with them.
#[derive(Clone)]
pub(super) struct Changes(watch::Receiver<u64>);

impl Changes {
    /// Looks at the flows of a tenant as long as somebody wants to know, and the server has not ended.
    pub(super) fn follow(app: &Arc<App>, tenant: &Tenant) -> Changes {
        let library = FlowLibrary::open(app.flows_of(tenant));
        let (tell, told) = watch::channel(stamp(&library));
        let mut ends = app.ends.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    () = tell.closed() => return,
                    () = over(&mut ends) => return,
                }
                let look = library.clone();
                // A look that broke has seen nothing new.
                let Ok(seen) = tokio::task::spawn_blocking(move || stamp(&look)).await else { continue };
                tell.send_if_modified(|known| std::mem::replace(known, seen) != seen);
            }
        });
        Changes(told)
    }

    /// Waits for the next change; false: there is none any more.
    pub(super) async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// Tells a client of every change, until it has gone.
    pub(super) async fn tell(mut self, peer: Peer<RoleServer>) {
        self.0.mark_unchanged();
        while self.next().await {
            if peer.is_transport_closed() || peer.notify_tool_list_changed().await.is_err() {
                return;
            }
        }
    }
}

/// A folder that cannot be read has no flows to offer.
fn stamp(library: &FlowLibrary) -> u64 {
    library.stamp().unwrap_or_default()
}
