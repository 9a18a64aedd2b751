//! Witnesses: units whose commits the server has acknowledged to this process. A database that lacks one of them is an
//! older copy, or a promoted replica without acknowledged commits, however short the time is that it lacks.
//!
//! A process commits in one order, so a copy that lacks any commit of the process also lacks the last one. The last
//! units are therefore enough. They are kept in memory, and written to a file if the operator names one. The file is
//! overwritten after each commit without a force: it outlives the process, and after a crash of the machine it may have
//! earlier units, which are true, too.
//!
//! The removal of a run removes its units, so the absence of a unit proves nothing if its top run was removed. The
//! witnesses are of different top runs for this reason.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
};

use flowcell_contract::Tenant;
use parking_lot::Mutex;

use super::connection::{Connection, SqlError, args};
use crate::{rows::checksum, sqlite::private};

/// Maximum number of witnesses, each of another top run.
const MAX_WITNESSES: usize = 4;

/// A unit that the server has acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Witness {
    pub(super) tenant: Tenant,
    /// The row of the top run.
    pub(super) top: i64,
    /// The row of the run.
    pub(super) run: i64,
    pub(super) first_seq: u64,
    pub(super) checksum: u32,
}

/// The evidence of a database about a witness.
#[derive(Debug, PartialEq)]
enum Evidence {
    Kept,
    Lost,
    /// The run was removed.
    None,
}

impl Witness {
    /// Looks for the unit.
    async fn ask(&self, connection: &mut Connection) -> Result<Evidence, SqlError> {
        let sql = "SELECT checksum FROM flowcell_units WHERE run = ? AND first_seq = ?";
        if let Some(unit) = connection.row(sql, args![self.run, self.first_seq]).await? {
            let is_same = unit.number(0)? == u64::from(self.checksum);
            return Ok(if is_same { Evidence::Kept } else { Evidence::Lost });
        }
        let sql = "SELECT standing FROM flowcell_runs WHERE id = ?";
        if let Some(top) = connection.row(sql, args![self.top]).await? {
            return Ok(if top.text(0)? == "removed" { Evidence::None } else { Evidence::Lost });
        }
        // The removal of a tenant removes the rows of its runs in their order.
        let sql = "SELECT id FROM flowcell_runs WHERE tenant = ? AND id < ? LIMIT 1";
        let earlier = connection.row(sql, args![self.tenant.as_str(), self.top]).await?;
        Ok(earlier.map_or(Evidence::None, |_| Evidence::Lost))
    }

    /// Returns the line of the file. It ends with a checksum of its text, so that half a line is recognised.
    fn line(&self, number: u64) -> String {
        let Witness { tenant, top, run, first_seq, checksum } = self;
        let text = format!("{number} {top} {run} {first_seq} {checksum} {tenant}");
        let sum = sum_of(&text);
        format!("{text} {sum}\n")
    }

    /// Parses a line of the file. Returns the witness, with the number of the epoch at its time.
    fn parse(line: &str) -> Option<(u64, Witness)> {
        let (text, sum) = line.rsplit_once(' ')?;
        if sum.parse() != Ok(sum_of(text)) {
            return None;
        }
        let mut parts = text.splitn(6, ' ');
        let number = parts.next()?.parse().ok()?;
        let (top, run) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (first_seq, checksum) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((number, Witness { tenant: Tenant::from(parts.next()?), top, run, first_seq, checksum }))
    }
}

fn sum_of(text: &str) -> u32 {
    checksum(0, 0, 0, text, None)
}

/// The witnesses of one process.
#[derive(Default)]
pub(super) struct Witnesses {
    file: Option<WitnessFile>,
    /// The witnesses, the latest first, each with the number of the epoch at its time.
    latest: Mutex<VecDeque<(u64, Witness)>>,
}

/// The file with the witnesses, beside that of the epoch.
struct WitnessFile {
    path: PathBuf,
    file: File,
}

impl WitnessFile {
    fn open(path: PathBuf) -> io::Result<WitnessFile> {
        let file = private::open_lock(&path)?;
        Ok(WitnessFile { path, file })
    }

    /// Overwrites the file.
    fn write(&self, text: &str) -> io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    }
}

/// Returns the path of the file with the witnesses: that of the epoch, with `.units` at its end.
fn path_beside(epoch: &Path) -> PathBuf {
    let mut path = epoch.as_os_str().to_owned();
    path.push(".units");
    path.into()
}

impl Witnesses {
    /// Opens the file beside that of the epoch, if the operator has named one. Reads it if `reads` is true.
    pub(super) fn new(epoch: Option<&Path>, reads: bool) -> Witnesses {
        let Some(path) = epoch.map(path_beside) else { return Witnesses::default() };
        let text = if reads { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let latest = text.lines().filter_map(Witness::parse).take(MAX_WITNESSES).collect();
        let file = WitnessFile::open(path.clone()).inspect_err(|error| warn_unwritten(&path, error)).ok();
        Witnesses { file, latest: Mutex::new(latest) }
    }

    /// Records a unit that the server has acknowledged. `number` is that of the epoch.
    pub(super) fn record(&self, number: u64, witness: Witness) {
        let mut latest = self.latest.lock();
        latest.retain(|(_, known)| known.top != witness.top);
        latest.push_front((number, witness));
        latest.truncate(MAX_WITNESSES);
        if let Some(file) = &self.file {
            let text: String = latest.iter().map(|(number, witness)| witness.line(*number)).collect();
            file.write(&text).unwrap_or_else(|error| warn_unwritten(&file.path, &error));
        }
    }

    /// Returns whether the database lacks a unit of a time at which the epoch had at least the number `since`.
    pub(super) async fn are_lost(&self, connection: &mut Connection, since: u64) -> Result<bool, SqlError> {
        let latest: Vec<_> = self.latest.lock().iter().filter(|(number, _)| *number >= since).cloned().collect();
        for (_, witness) in latest {
            match witness.ask(connection).await? {
                Evidence::Kept => return Ok(false),
                Evidence::Lost => return Ok(true),
                Evidence::None => {}
            }
        }
        Ok(false)
    }
}

fn warn_unwritten(path: &Path, error: &io::Error) {
    tracing::warn!(
        "cannot write {}, so an older copy may not be recognised at the next start: {error}",
        path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(top: i64, first_seq: u64) -> Witness {
        Witness { tenant: Tenant::from("a"), top, run: top + 1, first_seq, checksum: 7 }
    }

    #[test]
    fn the_latest_units_outlive_the_process_and_half_a_line_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let epoch = folder.path().join("epoch");
        let witnesses = Witnesses::new(Some(&epoch), true);
        (1..=6).for_each(|top| witnesses.record(3, witness(top, 100_000)));
        witnesses.record(4, witness(5, 2));
        let expected =
            [(4, witness(5, 2)), (3, witness(6, 100_000)), (3, witness(4, 100_000)), (3, witness(3, 100_000))];
        let read = || Witnesses::new(Some(&epoch), true).latest.into_inner();
        assert_eq!(read(), expected);
        let path = path_beside(&epoch);
        let text = fs::read_to_string(&path).unwrap();
        for end in 0..text.len() {
            fs::write(&path, &text[..end]).unwrap();
            let found = read();
            assert!(found.iter().zip(&expected).all(|(found, whole)| found == whole), "{:?}", &text[..end]);
            assert!(found.len() < expected.len() || end + 1 == text.len());
        }
    }
}
