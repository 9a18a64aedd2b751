//! Simulates a Linux machine with faults. A process that loads this code with `LD_PRELOAD` calls it in place of
//! functions of the C library. Environment variables choose the fault:
//!
//! | variable | effect |
//! |---|---|
//! | `BAD_DISK=write:7` | the seventh write to a store writes only half of its data, and later writes find no space |
//! | `BAD_DISK=sync:3` | the third sync of a store (`fsync` or similar) fails; the others succeed |
//! | `BAD_DISK=read:5` | the fifth read of a store and all later ones fail |
//! | `BAD_DISK=die:9` | the process is killed at the ninth kill point |
//! | `BAD_DISK=slow:200` | each sync of a store takes 200 ms longer |
//! | `BAD_CLOCK=-3600` | the calendar clock is wrong by this many seconds |
//!
//! There are two kill points for each group of writes that one sync makes durable. At the first write of the group, the
//! process writes half of the data and dies. At the sync, the process dies before the sync. The faults of
//! `BAD_DISK` concern only files of a store. When one of them other than `slow` occurs, this code creates the
//! file `bad-disk` in the current folder.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

const EIO: c_int = 5;
const KILL: c_int = 9;
const ENOSPC: c_int = 28;
const NEXT: *mut c_void = -1_isize as *mut c_void;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
    fn raise(signal: c_int) -> c_int;
}

/// Returns the function of the C library that this code replaces.
fn find_original(name: &CStr) -> *mut c_void {
    unsafe { dlsym(NEXT, name.as_ptr()) }
}

fn fail(error: c_int) -> isize {
    unsafe { *__errno_location() = error };
    -1
}

/// Returns the number in `BAD_DISK` if its fault has this kind; `None` if it has another kind. The number counts
/// operations up to the first faulty one, or is the delay of `slow` in milliseconds.
fn fault_number(kind: &str) -> Option<u64> {
    static PLAN: OnceLock<String> = OnceLock::new();
    let plan = PLAN.get_or_init(|| std::env::var("BAD_DISK").unwrap_or_default());
    plan.strip_prefix(kind)?.strip_prefix(':')?.parse().ok()
}

fn is_store(file: c_int) -> bool {
    let path = std::fs::read_link(format!("/proc/self/fd/{file}"));
    path.is_ok_and(|path| path.to_string_lossy().contains("flowcell.db"))
}

/// Creates the file `bad-disk`, which shows that a fault has occurred.
fn mark_fault() {
    let _ = std::fs::File::create("bad-disk");
}

/// The planned result of a write.
enum Fate {
    Good,
    Short,
    Full,
    /// The process writes half of the data and dies.
    Last,
}

/// Returns true if this operation on a file is the kill point that `BAD_DISK=die` names. `makes_durable` is true for a
/// sync, false for a write.
fn is_last(file: c_int, makes_durable: bool) -> bool {
    static MOMENTS: AtomicU64 = AtomicU64::new(0);
    static WRITTEN: AtomicBool = AtomicBool::new(false);
    let Some(last) = fault_number("die").filter(|_| is_store(file)) else { return false };
    let was_written = WRITTEN.swap(!makes_durable, Ordering::SeqCst);
    was_written == makes_durable && MOMENTS.fetch_add(1, Ordering::SeqCst) + 1 == last
}

/// Ends the process without warning.
fn die() -> ! {
    mark_fault();
    unsafe { raise(KILL) };
    std::process::abort()
}

fn write_fate(file: c_int) -> Fate {
    if is_last(file, false) {
        return Fate::Last;
    }
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let Some(bad) = fault_number("write").filter(|_| is_store(file)) else { return Fate::Good };
    match WRITES.fetch_add(1, Ordering::SeqCst) + 1 {
        number if number < bad => Fate::Good,
        number if number == bad => {
            mark_fault();
            Fate::Short
        }
        _ => Fate::Full,
    }
}

fn is_good_read(file: c_int) -> bool {
    static READS: AtomicU64 = AtomicU64::new(0);
    let bad = fault_number("read").filter(|_| is_store(file));
    let good = bad.is_none_or(|bad| READS.fetch_add(1, Ordering::SeqCst) + 1 < bad);
    if !good {
        mark_fault();
    }
    good
}

fn is_good_sync(file: c_int) -> bool {
    if is_last(file, true) {
        die();
    }
    if let Some(milliseconds) = fault_number("slow").filter(|_| is_store(file)) {
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
    }
    static SYNCS: AtomicU64 = AtomicU64::new(0);
    let bad = fault_number("sync").filter(|_| is_store(file));
    let good = bad.is_none_or(|bad| SYNCS.fetch_add(1, Ordering::SeqCst) + 1 != bad);
    if !good {
        mark_fault();
    }
    good
}

type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
type ReadAt = unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;
type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type WriteAt = unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize;
type Sync = unsafe extern "C" fn(c_int) -> c_int;
type Truncate = unsafe extern "C" fn(c_int, i64) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: usize) -> isize {
    let write: Write = unsafe { transmute(find_original(c"write")) };
    match write_fate(file) {
        Fate::Good => unsafe { write(file, bytes, count) },
        Fate::Short => unsafe { write(file, bytes, count / 2) },
        Fate::Full => fail(ENOSPC),
        Fate::Last => {
            unsafe { write(file, bytes, count / 2) };
            die()
        }
    }
}

unsafe fn write_at(name: &CStr, file: c_int, bytes: *const c_void, count: usize, at: i64) -> isize {
    let write: WriteAt = unsafe { transmute(find_original(name)) };
    match write_fate(file) {
        Fate::Good => unsafe { write(file, bytes, count, at) },
        Fate::Short => unsafe { write(file, bytes, count / 2, at) },
        Fate::Full => fail(ENOSPC),
        Fate::Last => {
            unsafe { write(file, bytes, count / 2, at) };
            die()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn read(file: c_int, bytes: *mut c_void, count: usize) -> isize {
    let read: Read = unsafe { transmute(find_original(c"read")) };
    if is_good_read(file) { unsafe { read(file, bytes, count) } } else { fail(EIO) }
}

unsafe fn read_at(name: &CStr, file: c_int, bytes: *mut c_void, count: usize, at: i64) -> isize {
    let read: ReadAt = unsafe { transmute(find_original(name)) };
    if is_good_read(file) { unsafe { read(file, bytes, count, at) } } else { fail(EIO) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pread(file: c_int, bytes: *mut c_void, count: usize, at: i64) -> isize {
    unsafe { read_at(c"pread", file, bytes, count, at) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pread64(file: c_int, bytes: *mut c_void, count: usize, at: i64) -> isize {
    unsafe { read_at(c"pread64", file, bytes, count, at) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(file: c_int, bytes: *const c_void, count: usize, at: i64) -> isize {
    unsafe { write_at(c"pwrite", file, bytes, count, at) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(file: c_int, bytes: *const c_void, count: usize, at: i64) -> isize {
    unsafe { write_at(c"pwrite64", file, bytes, count, at) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(file: c_int) -> c_int {
    let sync: Sync = unsafe { transmute(find_original(c"fsync")) };
    if is_good_sync(file) { unsafe { sync(file) } } else { fail(EIO) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    let sync: Sync = unsafe { transmute(find_original(c"fdatasync")) };
    if is_good_sync(file) { unsafe { sync(file) } } else { fail(EIO) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate64(file: c_int, length: i64) -> c_int {
    let truncate: Truncate = unsafe { transmute(find_original(c"ftruncate64")) };
    match write_fate(file) {
        Fate::Good => unsafe { truncate(file, length) },
        Fate::Short | Fate::Full => fail(ENOSPC) as c_int,
        Fate::Last => die(),
    }
}

#[repr(C)]
struct Time {
    seconds: i64,
    nanoseconds: i64,
}

const CALENDAR: c_int = 0;

type Clock = unsafe extern "C" fn(c_int, *mut Time) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Time) -> c_int {
    static WRONG: OnceLock<i64> = OnceLock::new();
    let real: Clock = unsafe { transmute(find_original(c"clock_gettime")) };
    let told = unsafe { real(clock, time) };
    if told == 0 && clock == CALENDAR {
        let wrong = || std::env::var("BAD_CLOCK").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
        unsafe { (*time).seconds += WRONG.get_or_init(wrong) };
    }
    told
}
