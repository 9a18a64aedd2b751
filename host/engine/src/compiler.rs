//! Compiling what strangers made, in a process of its own that may have so much memory and compute for so long. A component
//! that needs more is refused, and nobody else notices.

use std::{
    ffi::OsString,
    io::{self, BufRead, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::{
    Limits, machine,
    text::{cut, single_line},
};

/// Compilers at a time; a pack that comes meanwhile waits.
const AT_A_TIME: usize = 2;
/// What a compiler says at the end of its life is told to so many bytes.
const LAST_WORDS: usize = 1 << 10;

/// The command that compiles: a program that does [`compile`] with its standard input and output.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// What is started.
    pub program: PathBuf,
    /// What it is told, so that it knows what it is to do.
    pub arguments: Vec<OsString>,
    /// What is in its environment, and nothing else.
    pub environment: Vec<(OsString, OsString)>,
}

/// Starts compilers, a few at a time.
pub(crate) struct Compilers {
    compiler: Compiler,
    at_work: Mutex<usize>,
    freed: Condvar,
}

/// Why there is no code.
pub(crate) enum Uncompiled {
    /// The machine could not start a compiler, or has ended it.
    Shortage(String),
    /// There is something about the component.
    Refused(String),
}

/// What comes before the component, as a line of JSON.
#[derive(Serialize, Deserialize)]
struct Order {
    /// Bytes of stack of the guests.
    stack: usize,
    /// Bytes of address space of the compiler, beyond what the program takes itself.
    memory: u64,
    /// How long it may compute, over all its threads.
    seconds: u64,
}

impl Compilers {
    pub(crate) fn new(compiler: Compiler) -> Compilers {
        Compilers { compiler, at_work: Mutex::new(0), freed: Condvar::new() }
    }

    /// The code of a component. Blocks until a compiler is free and has made it.
    pub(crate) fn compile(&self, component: &[u8], limits: &Limits) -> Result<Vec<u8>, Uncompiled> {
        let _place = self.wait();
        let order = Order { stack: limits.stack, memory: limits.compile_memory, seconds: limits.compile_seconds };
        let not_started = |error: io::Error| Uncompiled::Shortage(format!("no compiler can be started: {error}"));
        let mut child = self.compiler.start().map_err(not_started)?;
        // One that is gone already does not read; how it ended is what counts.
        let _ = hand_over(&mut child, &order, component);
        let ended = child.wait_with_output().map_err(not_started)?;
        if ended.status.success() { Ok(ended.stdout) } else { Err(order.why(&ended)) }
    }

    fn wait(&self) -> Place<'_> {
        let mut at_work = self.lock();
        while *at_work >= AT_A_TIME {
            at_work = self.freed.wait(at_work).unwrap_or_else(PoisonError::into_inner);
        }
        *at_work += 1;
        Place(self)
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        // A panic while the lock was held cannot have left the number half changed.
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to have a compiler.
struct Place<'a>(&'a Compilers);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.freed.notify_one();
    }
}

impl Compiler {
    /// A compiler has nothing of this process: not its environment, no folder, no open file but its three.
    fn start(&self) -> io::Result<Child> {
        Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }
}

fn hand_over(child: &mut Child, order: &Order, component: &[u8]) -> io::Result<()> {
    let Some(mut input) = child.stdin.take() else { return Ok(()) };
    serde_json::to_writer(&mut input, order)?;
    input.write_all(b"\n")?;
    input.write_all(component)
}

impl Order {
    /// What it means that a compiler ended so.
    fn why(&self, ended: &Output) -> Uncompiled {
        let words = String::from_utf8_lossy(&ended.stderr);
        if OUT_OF_MEMORY.iter().any(|said| words.contains(said)) {
            return Uncompiled::Refused(format!("compiling it takes more than {} MiB of memory", self.memory >> 20));
        }
        match signal(ended) {
            Some(SIGXCPU) => {
                Uncompiled::Refused(format!("compiling it takes more than {} s of computing", self.seconds))
            }
            Some(SIGKILL) => Uncompiled::Shortage("the compiler was killed".to_owned()),
            _ => Uncompiled::Refused(format!("it cannot be compiled: {}", cut(single_line(&words), LAST_WORDS))),
        }
    }
}

/// What Rust, wasmtime and a thread that could not be started say.
const OUT_OF_MEMORY: [&str; 3] = ["memory allocation of ", "out of memory", "Resource temporarily unavailable"];
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;

#[cfg(unix)]
fn signal(ended: &Output) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&ended.status)
}

#[cfg(not(unix))]
fn signal(_: &Output) -> Option<i32> {
    None
}

/// Is a compiler: reads its orders and a component, and writes code. The process should do nothing else, for it gives up what
/// it does not need for that.
pub fn compile(mut input: impl BufRead, mut output: impl Write) -> anyhow::Result<()> {
    let mut order = String::new();
    input.read_line(&mut order)?;
    let order: Order = serde_json::from_str(&order).context("this command is for flowcell itself")?;
    give_up(&order)?;
    let mut component = Vec::new();
    input.read_to_end(&mut component)?;
    let code = machine::compiler(order.stack)?.precompile_component(&component);
    output.write_all(&code.map_err(|error| anyhow::anyhow!("{error:#}"))?)?;
    Ok(output.flush()?)
}

/// From here on this process has so much memory and time, writes no file, and waits behind all others.
#[cfg(unix)]
fn give_up(order: &Order) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, nice, setrlimit};
    let memory = address_space() + order.memory;
    let limits = [
        (Resource::As, memory, memory),
        // At the soft limit comes a signal that tells; at the hard one an end.
        (Resource::Cpu, order.seconds, order.seconds + 1),
        (Resource::Fsize, 0, 0),
        (Resource::Core, 0, 0),
    ];
    for (resource, soft, hard) in limits {
        setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })?;
    }
    // It is a courtesy, and a process that may not is none the worse.
    let _ = nice(10);
    Ok(())
}

/// Bytes of address space that this process takes, where the system tells.
#[cfg(unix)]
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages: Option<u64> = pages.and_then(|text| text.split(' ').next()?.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(not(unix))]
fn give_up(_: &Order) -> io::Result<()> {
    Ok(())
}
