//! Finds and kills the processes of programs: the programs themselves, their descendants, and all other processes in
//! their process groups.

use std::{collections::BTreeSet, fs};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Maximum number of scans of all processes. Scanning ends earlier, once a scan finds no process of the programs that
/// was not found before. Every found process is stopped at once, so that it starts no others.
const MAX_SCANS: usize = 16;

/// A process as the system reports it.
struct Process {
    id: u32,
    parent: u32,
    group: u32,
}

/// Kills programs, each the leader of its group, and all processes that they started. Ignores processes that have
/// ended.
pub(super) fn kill(programs: &[u32]) {
    let mut found = BTreeSet::new();
    for _ in 0..MAX_SCANS {
        let new: Vec<u32> = find_processes(programs, &found);
        if new.is_empty() {
            break;
        }
        for id in new {
            signal(id, Signal::STOP);
            found.insert(id);
        }
    }
    for id in found {
        signal(id, Signal::KILL);
    }
    // On systems without `/proc`, only this kills processes that the programs started: those that are still in their
    // groups.
    for group in programs.iter().filter_map(|id| pid(*id)) {
        // The group may have ended already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Returns the processes of the programs, except those that are in `found` already.
fn find_processes(programs: &[u32], found: &BTreeSet<u32>) -> Vec<u32> {
    let all = processes();
    let mut belong: BTreeSet<u32> = programs.iter().chain(found).copied().collect();
    loop {
        let more = all.iter().filter(|process| belong.contains(&process.parent) || programs.contains(&process.group));
        let more: Vec<u32> = more.map(|process| process.id).filter(|id| !belong.contains(id)).collect();
        if more.is_empty() {
            break;
        }
        belong.extend(more);
    }
    all.iter().map(|process| process.id).filter(|id| belong.contains(id) && !found.contains(id)).collect()
}

/// Returns all processes, on systems with `/proc`.
fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| process(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?)).collect()
}

/// Parses `ID (NAME) STATE PARENT GROUP …`. The name may have blanks and parentheses.
fn process(id: u32, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1);
    Some(Process { id, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

fn signal(id: u32, signal: Signal) {
    // The process may have ended already.
    let _ = pid(id).map(|id| kill_process(id, signal));
}

/// Converts the id of one process. Returns `None` for 0, 1 and ids that are too large, because a signal to them could
/// reach other processes.
fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().filter(|id| *id > 1).and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::process;

    #[test]
    fn a_process_with_any_name_is_parsed() {
        for name in ["sh", "a b", "a) S 1 1 (b", ")"] {
            let read = process(7, &format!("7 ({name}) S 5 6 6 0 -1"));
            assert_eq!(read.map(|read| (read.id, read.parent, read.group)), Some((7, 5, 6)), "{name}");
        }
        assert!(process(7, "7 sh").is_none() && process(7, "").is_none());
    }
}
