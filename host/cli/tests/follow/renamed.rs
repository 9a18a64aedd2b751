//! Retries of runs in a version of their flow whose nodes have other names.

use super::*;

#[test]
fn a_failed_run_is_repeated_with_its_file_in_which_nodes_have_other_names() {
    for (owner, says) in [(None, ""), (Some(&["drive"][..]), "driving the runs")] {
        let (folder, _owner) = failed_order(owner, says);
        let (folder, file) = (folder.path(), folder.path().join("order.yaml"));
        fs::write(&file, REPAIRED.replace("pay", "charge").replace("sum", "total")).unwrap();
        let retry = |more: &[&str]| output_of(folder, &[&["runs", "retry", "r"], more].concat());
        let latest = |more: &[&str]| retry(&[&["--flow-version", "latest"], more].concat());
        let refused = retry(&["--rename", "pay=charge"]);
        assert_eq!(refused.status.code(), Some(2), "{owner:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("`--rename` needs `--flow-version`"), "{owner:?}: {}", stderr(&refused));
        for (more, says) in [
            (&["--rename", "pay"][..], "write `OLD=NEW`, such as `pay=charge`"),
            (&["--rename", "pay=charge", "--rename", "pay=total"], "`--rename` gives `pay` two names; give it one"),
            (&["--rename", "nobody=charge"], "the version that the run uses has no node `nobody`"),
            (&["--rename", "pay=nobody", "--check"], "the other version has no node `nobody`"),
            (&["--rename", "pay=charge", "--rename", "sum=charge"], "`charge` is the new name of two nodes"),
            (&["--rename", "pay=charge", "--from", "pay"], "begin at `charge`"),
        ] {
            let refused = latest(more);
            assert!(!refused.status.success(), "{owner:?} {more:?}");
            assert!(stderr(&refused).contains(says), "{owner:?} {more:?}: {}", stderr(&refused));
        }
        let plan = latest(&["--rename", "sum=total", "--rename", "pay=charge", "--check"]);
        let expected = "keep their outputs: total\nhave another name in the version: pay (charge), sum (total)\nrun:\n  charge: \
                        the type or its pack changed; it has already called http.send (1 x)\n";
        assert_eq!(kit::stdout(&plan), expected, "{owner:?}: {}", stderr(&plan));
        let again = latest(&["--rename", "sum=total", "--rename", "pay=charge", "--run-id", "again"]);
        assert!(again.status.success(), "{owner:?}: {}", stderr(&again));
        let events = output_of(folder, &["runs", "events", "again"]);
        let started: Vec<_> = String::from_utf8(events.stdout).unwrap().lines().map(str::to_owned).collect();
        let started: Vec<_> = started.iter().filter(|line| line.contains("\"task:start\"")).collect();
        assert!(started.iter().any(|line| line.contains("charge")), "{owner:?}: {started:?}");
        let shown = output_of(folder, &["runs", "show", "again", "total", "--json"]);
        assert!(String::from_utf8_lossy(&shown.stdout).contains("not_run"), "{owner:?}: {}", kit::stdout(&shown));
    }
}
