//! Lists runs of several tenants as one list, the latest first.

use std::cmp::{Ordering, Reverse};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::ports::{Filter, RunRow, Runs, StoreError};

/// The place of a run in the list of all tenants: the order is that of the times of the starts, the latest first, then
/// that of the names of the tenants, then that of each tenant's own list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlace {
    /// The time of the run's start, in milliseconds since 1970.
    pub created: u64,
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The id of the run.
    pub run: RunId,
}

impl RunPlace {
    /// Writes the place as text. The name of a tenant has no `:`.
    pub fn to_text(&self) -> String {
        format!("{}:{}:{}", self.created, self.tenant.as_str(), self.run)
    }

    /// Parses [`RunPlace::to_text`].
    pub fn parse(text: &str) -> Option<RunPlace> {
        let mut parts = text.splitn(3, ':');
        let created = parts.next()?.parse().ok()?;
        let (tenant, run) = (parts.next()?, parts.next()?);
        let is_whole = !tenant.is_empty() && !run.is_empty();
        is_whole.then(|| RunPlace { created, tenant: Tenant::from(tenant), run: RunId::from(run) })
    }

    /// Narrows the filter of a tenant's list to the runs that follow this place.
    fn narrow(&self, tenant: &Tenant, filter: &mut Filter) {
        let before = match tenant.as_str().cmp(self.tenant.as_str()) {
            Ordering::Equal => return filter.after = Some(self.run.clone()),
            Ordering::Less => self.created,
            Ordering::Greater => self.created.saturating_add(1),
        };
        filter.before = Some(filter.before.map_or(before, |given| given.min(before)));
    }
}

/// Lists the runs of tenants that a filter selects, from the first one after `after`. Reads each tenant's list, but of no
/// tenant more than `filter.limit` rows. The cursor of the filter itself does not apply.
pub fn list_runs(
    runs: &dyn Runs,
    tenants: &[Tenant],
    filter: &Filter,
    after: Option<&RunPlace>,
) -> Result<Vec<(Tenant, RunRow)>, StoreError> {
    let mut found: Vec<(Tenant, RunRow)> = Vec::new();
    for tenant in tenants {
        let mut own = Filter { after: None, ..filter.clone() };
        if let Some(place) = after {
            place.narrow(tenant, &mut own);
        }
        // Runs that began before the last one of a full page are not part of it.
        if let Some((_, last)) = found.last().filter(|_| found.len() >= filter.limit) {
            own.since = Some(own.since.map_or(last.created, |since| since.max(last.created)));
        }
        let rows = runs.runs(tenant, &own)?;
        if rows.is_empty() {
            continue;
        }
        found.extend(rows.into_iter().map(|row| (tenant.clone(), row)));
        // The sort is stable, so it keeps the order of each tenant's own list.
        found.sort_by(|(one, a), (other, b)| {
            (Reverse(a.created), one.as_str()).cmp(&(Reverse(b.created), other.as_str()))
        });
        found.truncate(filter.limit);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let place = RunPlace { created: 7, tenant: Tenant::from("a"), run: RunId::from("job.1:x/[2]") };
        assert_eq!(RunPlace::parse(&place.to_text()), Some(place));
        for wrong in ["", "7", "7:a", "7::r", "7:a:", "-1:a:r", "x:a:r", "99999999999999999999:a:r"] {
            assert_eq!(RunPlace::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_place_excludes_what_came_before_it() {
        let place = RunPlace { created: 7, tenant: Tenant::from("b"), run: RunId::from("r") };
        for (tenant, given, before, follows) in [
            ("a", None, Some(7), false),
            ("b", None, None, true),
            ("ba", None, Some(8), false),
            ("c", Some(3), Some(3), false),
        ] {
            let mut filter = Filter { before: given, ..Filter::default() };
            place.narrow(&Tenant::from(tenant), &mut filter);
            assert_eq!((filter.before, filter.after.is_some()), (before, follows), "{tenant}");
        }
    }
}
