//! Reads the files of notifications and of the sign-in again, for a reload.

use std::sync::Arc;

use flowcell_platform::{
    notify::Notifications,
    reload::{NotificationsRead, ReadNotifications, ReadSignIn, SignInRead},
    sign_in::SignIns,
};
use futures_util::FutureExt;

/// Returns what reads the file of notifications again.
pub(crate) fn notifications(notifications: Notifications) -> ReadNotifications {
    Arc::new(move || {
        let notifications = notifications.clone();
        async move { Ok(NotificationsRead { targets: notifications.reload().await? }) }.boxed()
    })
}

/// Returns what reads the file of the sign-in again.
pub(crate) fn sign_in(sign_ins: SignIns) -> ReadSignIn {
    Arc::new(move || {
        let sign_ins = sign_ins.clone();
        async move { Ok(SignInRead { issuers: sign_ins.reload().await? }) }.boxed()
    })
}
