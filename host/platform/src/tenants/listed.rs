//! The tenants whose runs are driven, as the store has listed them last.

use flowcell_contract::Tenant;
use flowcell_runtime::ports::{MaybeStoreError, StoreError};
use parking_lot::Mutex;

use super::TenantRow;

/// The last list of the tenants. It stays in use while the store lists none.
#[derive(Default)]
pub(super) struct ListedTenants(Mutex<Listed>);

#[derive(Default)]
struct Listed {
    tenants: Vec<Tenant>,
    is_unreadable: bool,
}

impl ListedTenants {
    /// Returns the tenants of a new list that are enabled. If the list could not be read, returns those of the last one,
    /// and warns once until it can be read again.
    pub(super) fn update(&self, rows: Result<Vec<TenantRow>, StoreError>) -> Vec<Tenant> {
        let mut listed = self.0.lock();
        match rows {
            Ok(rows) => {
                // If `local` was not created as a tenant, the operator's own runs continue beside those of the tenants.
                let local = rows.iter().all(|row| row.name != Tenant::local().as_str()).then(Tenant::local);
                let enabled = rows.into_iter().filter(|row| !row.disabled).map(|row| Tenant::from(row.name));
                *listed = Listed { tenants: local.into_iter().chain(enabled).collect(), is_unreadable: false };
            }
            Err(error) => {
                if !std::mem::replace(&mut listed.is_unreadable, true) {
                    error.warn("cannot list the tenants; the runs of those that were listed last go on");
                }
            }
        }
        listed.tenants.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_list_stays_while_the_store_lists_no_tenants() {
        let row = |name: &str, disabled| TenantRow { name: name.into(), created: 0, disabled, being_removed: false };
        let lost = || Err(StoreError("the row is damaged".into()));
        let (listed, local) = (ListedTenants::default(), Tenant::local());
        // A tenant may be disabled, so none is driven before the first list.
        assert!(listed.update(lost()).is_empty());
        assert_eq!(listed.update(Ok(Vec::new())), std::slice::from_ref(&local));
        let both = [local, Tenant::from("a")];
        assert_eq!(listed.update(Ok(vec![row("a", false), row("b", true)])), both);
        for _ in 0..2 {
            assert_eq!(listed.update(lost()), both);
        }
        assert_eq!(listed.update(Ok(vec![row("local", true), row("b", false)])), [Tenant::from("b")]);
    }
}
