//! The resident memory of a guest, measured in a process of its own.

use std::{env, fs, process::Command};

use flowcell_contract::code;
use flowcell_engine::{Config, Limits};

use crate::support::{attempt, engine, run};

/// The environment variable that is set in the process that measures.
const ALONE_VARIABLE: &str = "FLOWCELL_TEST_ALONE";
/// The memory that the host may take in addition to the guest's own, in bytes.
const MAX_HOST_BYTES: u64 = 32 << 20;

/// Returns a value of `/proc/self/status` in bytes, such as `VmRSS:` or its maximum `VmHWM:`.
fn resident(which: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(which)).unwrap();
    line.trim_matches(|letter: char| !letter.is_ascii_digit()).parse::<u64>().unwrap() * 1_024
}

#[test]
fn n4_the_resident_memory_of_a_guest_is_bounded() {
    if env::var_os(ALONE_VARIABLE).is_none() {
        // The path of this module begins with the name of the binary, which no name of a test does.
        let (_, module) = module_path!().split_once("::").unwrap();
        let alone = format!("{module}::n4_the_resident_memory_of_a_guest_is_bounded");
        let mut command = Command::new(env::current_exe().unwrap());
        let done = command.args(["--exact", &alone, "--nocapture"]).env(ALONE_VARIABLE, "1").output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"), "the test is named otherwise");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (engine, pack) = engine(Config::default());
        let (may, echo) = (Limits::default().memory as u64, || run(&engine, attempt(&pack, "hostile.echo", "{}")));
        echo().await.0.unwrap();
        // Memory that compiling took before does not count.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = resident("VmRSS:");
        let failure = run(&engine, attempt(&pack, "hostile.hog", "{}")).await.0.unwrap_err();
        let taken = resident("VmHWM:") - before;
        assert_eq!(failure.code, code::OUT_OF_MEMORY);
        assert!(taken > may / 2, "{taken} bytes are not what it takes");
        assert!(taken <= may + MAX_HOST_BYTES, "{taken} bytes were taken");
        // A second attempt uses the same memory as the first.
        run(&engine, attempt(&pack, "hostile.hog", "{}")).await.0.unwrap_err();
        echo().await.0.unwrap();
        let taken = resident("VmHWM:") - before;
        assert!(taken <= may + MAX_HOST_BYTES, "{taken} bytes were taken");
    });
}
