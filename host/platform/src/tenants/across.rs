//! Lists runs of several tenants as one list, the latest first.

use std::cmp::{Ordering, Reverse};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{
    limits::MAX_READ_RUNS,
    ports::{Filter, RunRow, Runs, StoreError},
};

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

    /// Narrows the filter of a tenant's list to the runs that follow this place. `exists` is true if the store has the run
    /// of this place. Otherwise the list of its tenant continues with the runs that began in the same millisecond, so
    /// that it leaves out none.
    fn narrow(&self, tenant: &Tenant, exists: bool, filter: &mut Filter) {
        let before = match tenant.as_str().cmp(self.tenant.as_str()) {
            Ordering::Equal if exists => return filter.after = Some(self.run.clone()),
            Ordering::Less => self.created,
            Ordering::Equal | Ordering::Greater => self.created.saturating_add(1),
        };
        filter.before = Some(filter.before.map_or(before, |given| given.min(before)));
    }
}

/// The first character of a cursor that is a time, and no place of a run.
const TIME_MARK: char = '@';

/// The beginning of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageStart {
    /// The page begins after this run.
    After(RunPlace),
    /// The page begins with the runs that began at this time, in milliseconds since 1970.
    At(u64),
}

impl PageStart {
    /// Writes the beginning as text.
    pub fn to_text(&self) -> String {
        match self {
            PageStart::After(place) => place.to_text(),
            PageStart::At(time) => format!("{TIME_MARK}{time}"),
        }
    }

    /// Parses [`PageStart::to_text`].
    pub fn parse(text: &str) -> Option<PageStart> {
        match text.strip_prefix(TIME_MARK) {
            Some(time) => time.parse().ok().map(PageStart::At),
            None => RunPlace::parse(text).map(PageStart::After),
        }
    }

    /// Returns the time of the first run that the page may have.
    fn time(&self) -> u64 {
        match self {
            PageStart::After(place) => place.created,
            PageStart::At(time) => *time,
        }
    }
}

/// A page of the runs of several tenants. The tenants are read some at a time, in any order.
///
/// The search of one tenant ends after [`MAX_READ_RUNS`] runs. The page then has the runs that began after the time at
/// which the search ended, of all tenants, and the next page begins at that time.
pub struct RunsAcross {
    filter: Filter,
    start: Option<PageStart>,
    found: Vec<(Tenant, RunRow)>,
    /// The latest time at which the search of a tenant ended before its end.
    searched_to: Option<u64>,
}

impl RunsAcross {
    /// Begins the list of the runs that a filter selects, from `start` on, with at most `filter.limit` runs. The cursor of
    /// the filter itself does not apply.
    pub fn new(filter: Filter, start: Option<PageStart>) -> RunsAcross {
        RunsAcross { filter, start, found: Vec::new(), searched_to: None }
    }

    /// Reads the lists of some tenants, of none more than `filter.limit` rows.
    pub fn read(&mut self, runs: &dyn Runs, tenants: &[Tenant]) -> Result<(), StoreError> {
        let limit = self.filter.limit;
        for tenant in tenants {
            let mut own = Filter { after: None, ..self.filter.clone() };
            match &self.start {
                Some(PageStart::After(place)) => {
                    let exists = *tenant == place.tenant && runs.run(tenant, &place.run)?.is_some();
                    place.narrow(tenant, exists, &mut own);
                }
                Some(PageStart::At(time)) => {
                    let before = time.saturating_add(1);
                    own.before = Some(own.before.map_or(before, |given| given.min(before)));
                }
                None => {}
            }
            // Runs that began before the last one of a full page are not part of it.
            if let Some((_, last)) = self.found.last().filter(|_| self.found.len() >= limit) {
                own.since = Some(own.since.map_or(last.created, |since| since.max(last.created)));
            }
            let rows = self.search(runs, tenant, own)?;
            if rows.is_empty() {
                continue;
            }
            self.found.extend(rows.into_iter().map(|row| (tenant.clone(), row)));
            // The sort is stable, so it keeps the order of each tenant's own list.
            self.found.sort_by(|(one, a), (other, b)| {
                (Reverse(a.created), one.as_str()).cmp(&(Reverse(b.created), other.as_str()))
            });
            self.found.truncate(limit);
        }
        Ok(())
    }

    /// Searches the runs of one tenant, and records the time at which the search ends.
    fn search(&mut self, runs: &dyn Runs, tenant: &Tenant, mut own: Filter) -> Result<Vec<RunRow>, StoreError> {
        let mut rows = Vec::new();
        loop {
            let page = runs.search(tenant, &own, MAX_READ_RUNS)?;
            own.limit -= page.rows.len();
            rows.extend(page.rows);
            let Some(to) = page.searched_to else { return Ok(rows) };
            // A page that ends at the time of its beginning would be followed by itself.
            if self.start.as_ref().is_some_and(|start| start.time() <= to.created) {
                (own.after, own.after_place) = (None, Some(to));
                continue;
            }
            self.searched_to = self.searched_to.max(Some(to.created));
            return Ok(rows);
        }
    }

    /// Returns the runs, the latest first. If the search has ended before a full page, also returns the time at which the
    /// next page begins.
    pub fn into_page(mut self) -> (Vec<(Tenant, RunRow)>, Option<u64>) {
        let Some(to) = self.searched_to else { return (self.found, None) };
        let whole = self.found.partition_point(|(_, row)| row.created > to);
        if whole >= self.filter.limit {
            return (self.found, None);
        }
        self.found.truncate(whole);
        (self.found, Some(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let place = RunPlace { created: 7, tenant: Tenant::from("a"), run: RunId::from("job.1:x/[2]") };
        assert_eq!(RunPlace::parse(&place.to_text()), Some(place));
        let start = PageStart::At(7);
        assert_eq!(PageStart::parse(&start.to_text()), Some(start));
        assert_eq!(PageStart::parse("@x"), None);
        for wrong in ["", "7", "7:a", "7::r", "7:a:", "-1:a:r", "x:a:r", "99999999999999999999:a:r"] {
            assert_eq!(RunPlace::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_place_excludes_what_came_before_it() {
        let place = RunPlace { created: 7, tenant: Tenant::from("b"), run: RunId::from("r") };
        for (tenant, exists, given, before, follows) in [
            ("a", false, None, Some(7), false),
            ("b", true, None, None, true),
            ("b", false, None, Some(8), false),
            ("ba", false, None, Some(8), false),
            ("c", false, Some(3), Some(3), false),
        ] {
            let mut filter = Filter { before: given, ..Filter::default() };
            place.narrow(&Tenant::from(tenant), exists, &mut filter);
            assert_eq!((filter.before, filter.after.is_some()), (before, follows), "{tenant}");
        }
    }
}
