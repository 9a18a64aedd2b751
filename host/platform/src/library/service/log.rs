//! The log files: `tool_logs/flow_<name>.jsonl` beside the folder of the flows.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use flowcell_runtime::paging::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use crate::host::folder::is_flow_name;

/// Number of bytes that are read at a time from the end of a log.
const PIECE_BYTES: u64 = 64 * 1024;

/// A line of the log, for one step that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepLine {
    /// The run's id.
    pub flow_run_id: String,
    /// The flow's name.
    pub flow_name: String,
    /// The step's id.
    pub step_id: String,
    /// The tool, as the flow names it.
    pub tool_name: String,
    /// Either `success` or `error`.
    pub status: String,
    /// The tool's parameters. If one of the references in them failed, they have only the parts that could be computed.
    pub params: serde_json::Value,
    /// The beginning of the result as text. `None` if the step has no result.
    pub result_summary: Option<String>,
    /// The reason of a failed step. `None` if it succeeded.
    pub error: Option<String>,
    /// The time when the step ended, in UTC.
    pub timestamp: String,
}

/// The logs of the flows of a folder. Several processes may write them.
pub(super) struct StepLog {
    folder: PathBuf,
}

impl StepLog {
    /// Returns the logs beside a folder.
    pub(super) fn beside(flows: &Path) -> StepLog {
        StepLog { folder: flows.parent().unwrap_or(Path::new("")).join("tool_logs") }
    }

    /// Returns the path of a flow's log.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("flow_{name}.jsonl"))
    }

    /// Appends lines to a flow's log.
    pub(super) fn add(&self, name: &str, lines: &[StepLine]) -> io::Result<()> {
        append(&mut self.open(name)?, lines.iter())
    }

    /// Appends the lines of a run's steps that are not in the log yet.
    pub(super) fn add_missing(&self, name: &str, run: &str, lines: &[StepLine]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut file = self.open(name)?;
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        let of_run = text.lines().filter(|line| line.contains(run)).filter_map(parse);
        let there: HashSet<_> = of_run.filter(|line| line.flow_run_id == run).map(|line| line.step_id).collect();
        append(&mut file, lines.iter().filter(|line| !there.contains(&line.step_id)))
    }

    /// Returns the last `limit` lines of a flow's log. Returns `None` if the log does not exist.
    pub(super) fn last(&self, name: &str, limit: usize) -> io::Result<Option<Vec<StepLine>>> {
        if !is_flow_name(name) {
            return Ok(None);
        }
        let mut file = match File::open(self.file(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (mut at, mut tail) = (file.seek(SeekFrom::End(0))?, Vec::new());
        let is_full = |tail: &[u8]| tail.len() as u64 >= PAGE_BYTES;
        while at > 0 && !is_full(&tail) && tail.iter().filter(|byte| **byte == b'\n').count() <= limit {
            let from = at.saturating_sub(PIECE_BYTES);
            let mut piece = vec![0; (at - from) as usize];
            file.seek(SeekFrom::Start(from))?;
            file.read_exact(&mut piece)?;
            piece.append(&mut tail);
            (at, tail) = (from, piece);
        }
        let text = String::from_utf8_lossy(&tail);
        let mut lines: Vec<_> = text.lines().rev().filter_map(parse).take(limit).collect();
        lines.reverse();
        Ok(Some(lines))
    }

    /// Opens and locks a log for writing.
    fn open(&self, name: &str) -> io::Result<File> {
        let (mut folder, mut options) = (fs::DirBuilder::new(), OpenOptions::new());
        // The log contains parameters and results, so only its owner may read it.
        #[cfg(unix)]
        {
            std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        folder.recursive(true).create(&self.folder)?;
        let file = options.read(true).append(true).create(true).open(self.file(name))?;
        file.lock()?;
        Ok(file)
    }
}

/// Appends lines. If the file ends with an incomplete line, since a process died during a write, the new lines begin
/// on the next line.
fn append<'a>(file: &mut File, lines: impl Iterator<Item = &'a StepLine>) -> io::Result<()> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    let length = file.seek(SeekFrom::End(0))?;
    if length > 0 && !text.is_empty() {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.insert(0, b'\n');
        }
    }
    file.write_all(&text)
}

fn parse(line: &str) -> Option<StepLine> {
    serde_json::from_str(line).ok()
}
