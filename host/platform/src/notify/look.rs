//! A look at a tenant: at its runs, its quotas, its tokens, its secrets and its credentials.

use std::time::Instant;

use flowcell_runtime::ports::StoreError;

use super::{
    config::TargetSettings,
    message::{Message, NoticeKind},
    record::Progress,
    scan::{Look, MAX_READ_RUNS, MAX_READ_TIME},
    sender::Shared,
    watch,
};
use crate::Host;

/// Looks at the runs of a tenant, and at its quotas, tokens, secrets and credentials. Queues the messages.
pub(super) fn look_at_runs(
    shared: &Shared,
    host: &Host,
    progress: &mut Progress,
    again: bool,
    tokens: &[(Message, u64)],
) -> Result<(), StoreError> {
    use NoticeKind::{CrashLoop, GateOpened, Restored, RunBlocked};
    let (tenant, now) = (host.tenant(), host.now());
    progress.set_clock(now);
    let hears_waits =
        |of: &TargetSettings| [CrashLoop, GateOpened, Restored, RunBlocked].iter().any(|kind| of.hears_kind(*kind));
    let waits = shared.any_hears(tenant, hears_waits);
    let contents = shared.any_hears(tenant, |of| of.contents);
    let mut look = Look {
        host,
        progress,
        waits,
        contents,
        reads_left: MAX_READ_RUNS,
        until: Instant::now() + MAX_READ_TIME,
        has_read: false,
        found: Vec::new(),
    };
    let mut looked = look.look(false);
    if (again || look.progress.second.is_some()) && matches!(looked, Ok(true)) {
        // The first look must not use up what the second one may read.
        (look.reads_left, look.has_read, look.until) = (MAX_READ_RUNS, false, Instant::now() + MAX_READ_TIME);
        looked = look.look(true);
    }
    for message in std::mem::take(&mut look.found) {
        shared.queue(tenant, &message, now);
    }
    if again {
        if shared.any_hears(tenant, |of| of.hears_kind(NoticeKind::Quota)) {
            match watch::quotas(host, progress, now) {
                Ok(found) => found.iter().for_each(|message| shared.queue(tenant, message, now)),
                // Such as a damaged policy. It must not hold up the messages about tokens.
                Err(error) => looked = looked.and(Err(error)),
            }
        }
        let mut found = Vec::new();
        // Such as a damaged row. It must not hold up the messages about runs.
        let warn = |what, error| tracing::warn!("cannot read the {what} of `{tenant}` for notifications: {error}");
        if shared.any_hears(tenant, |of| of.hears_kind(NoticeKind::SecretExpires))
            && progress.begins_look_at_secrets(now)
        {
            watch::secrets(host, now).map_or_else(|error| warn("secrets", error), |all| found.extend(all));
        }
        let hears_credentials = |of: &TargetSettings| {
            [NoticeKind::CredentialExpires, NoticeKind::CredentialFailed].iter().any(|kind| of.hears_kind(*kind))
        };
        if shared.any_hears(tenant, hears_credentials) && progress.begins_look_at_credentials(now) {
            watch::credentials(host, now).map_or_else(|error| warn("credentials", error), |all| found.extend(all));
        }
        for (message, until) in found.iter().chain(tokens) {
            if progress.tell_once(message.id.clone(), *until) {
                shared.queue(tenant, message, now);
            }
        }
    }
    progress.prune(now);
    looked.map(drop)
}
