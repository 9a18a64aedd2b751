//! Compiling what strangers made, in a process of its own that may have so much memory and compute for so long. A component
//! that needs more is refused, and nobody else notices.

use std::{
    ffi::OsString,
    io::{self, BufRead, Read, Write},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use crate::{
    Limits, machine,
    text::{cut, single_line},
};

/// Compilers at a time; a pack that comes meanwhile waits.
const AT_A_TIME: usize = 2;
/// What a compiler says at the end of its life is told to so many bytes.
const LAST_WORDS: usize = 1 << 10;
/// Seconds on the clock that a compiler may take for each second that it may compute: other processes come first.
const COMPILE_WAIT: u64 = 10;
/// Time between two looks whether a compiler has ended that says nothing any more.
const LOOK: Duration = Duration::from_millis(1);

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
        let child = self.compiler.start().map_err(not_started)?;
        let ended = order.converse(child, component).map_err(not_started)?;
        order.judge(ended)
    }

    fn wait(&self) -> Place<'_> {
        let mut at_work = self.at_work.lock();
        while *at_work >= AT_A_TIME {
            self.freed.wait(&mut at_work);
        }
        *at_work += 1;
        Place(self)
    }
}

/// The right to have a compiler.
struct Place<'a>(&'a Compilers);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.at_work.lock() -= 1;
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

fn hand_over(mut input: impl Write, order: &Order, component: &[u8]) -> io::Result<()> {
    serde_json::to_writer(&mut input, order)?;
    input.write_all(b"\n")?;
    input.write_all(component)
}

/// Reads at most so many bytes.
fn read_most(from: impl Read, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // How a compiler ended is what counts, and not why it cannot be heard.
    let _ = from.take(most).read_to_end(&mut bytes);
    bytes
}

/// How a compiler ended.
struct Ended {
    /// None: it was killed, as its time was over.
    status: Option<ExitStatus>,
    code: Vec<u8>,
    words: Vec<u8>,
}

/// Waits until a compiler ends by itself; none: it did not in time.
fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() >= deadline => return Ok(None),
            None => thread::sleep(LOOK),
        }
    }
}

impl Order {
    /// Gives a compiler a component, and hears what it answers: no more bytes than it may have, and not for longer than it
    /// may take.
    fn converse(&self, mut child: Child, component: &[u8]) -> io::Result<Ended> {
        let deadline = Instant::now() + Duration::from_secs(self.seconds.saturating_mul(COMPILE_WAIT));
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            // One that is gone already does not read.
            scope.spawn(|| input.map(|input| hand_over(input, self, component)));
            let words = scope.spawn(|| {
                let mut errors = errors?;
                let words = read_most(&mut errors, LAST_WORDS as u64);
                let _ = io::copy(&mut errors, &mut io::sink());
                Some(words)
            });
            let (told, hears) = mpsc::channel();
            scope.spawn(move || told.send(output.map(|output| read_most(output, self.memory.saturating_add(1)))));
            let code = hears.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let status = match &code {
                // The pipe is closed, so one that would say more ends.
                Ok(_) => wait_until(&mut child, deadline),
                Err(_) => Ok(None),
            };
            // Whatever happened, none is left behind, and its pipes are closed.
            if !matches!(status, Ok(Some(_))) {
                let _ = child.kill();
                child.wait()?;
            }
            let words = words.join().unwrap_or_default().unwrap_or_default();
            Ok(Ended { status: status?, code: code.ok().flatten().unwrap_or_default(), words })
        })
    }

    /// The code, or why there is none.
    fn judge(&self, ended: Ended) -> Result<Vec<u8>, Uncompiled> {
        if ended.code.len() as u64 > self.memory {
            let most = self.memory >> 20;
            return Err(Uncompiled::Refused(format!("its code would have more than {most} MiB")));
        }
        match ended.status {
            Some(status) if status.success() => Ok(ended.code),
            Some(status) => Err(self.why(status, &ended.words)),
            None => {
                let seconds = self.seconds.saturating_mul(COMPILE_WAIT);
                Err(Uncompiled::Shortage(format!("the compiler did not answer within {seconds} s and was killed")))
            }
        }
    }

    /// What it means that a compiler ended so.
    fn why(&self, status: ExitStatus, words: &[u8]) -> Uncompiled {
        let words = String::from_utf8_lossy(words);
        if OUT_OF_MEMORY.iter().any(|said| words.contains(said)) {
            return Uncompiled::Refused(format!("compiling it takes more than {} MiB of memory", self.memory >> 20));
        }
        match signal(status) {
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
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}

/// Is a compiler: reads its orders and a component, and writes code. The process should do nothing else, for it gives up what
/// it does not need for that.
pub fn compile(mut input: impl BufRead, mut output: impl Write) -> anyhow::Result<()> {
    let mut order = String::new();
    input.read_line(&mut order)?;
    let order: Order = serde_json::from_str(&order).context("this command is for flowcell itself")?;
    give_up(&order)?;
    confine()?;
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

/// What the kernel keeps a confined thread from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Confined {
    /// It opens no file, runs no program and signals no other process.
    files: bool,
    /// It opens no socket, of whatever kind.
    sockets: bool,
}

/// Confines this thread, and all that it starts, as far as the kernel knows how.
#[cfg(target_os = "linux")]
fn confine() -> anyhow::Result<Confined> {
    let files = confine_files()?;
    Ok(Confined { files, sockets: confine_sockets() })
}

/// Landlock. Answers whether the kernel knows it.
#[cfg(target_os = "linux")]
fn confine_files() -> anyhow::Result<bool> {
    use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};
    // The newest version that the library knows; an older kernel enforces what it can.
    let abi = ABI::V6;
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?;
    let restricted = ruleset.create()?.restrict_self()?;
    Ok(restricted.ruleset != RulesetStatus::NotEnforced)
}

/// Seccomp: system calls that open sockets, or could do so unseen, fail with `EPERM`. Answers whether the kernel knows it, on
/// this architecture.
#[cfg(target_os = "linux")]
fn confine_sockets() -> bool {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    let calls = [libc::SYS_socket, libc::SYS_socketpair, libc::SYS_connect, libc::SYS_bind, libc::SYS_io_uring_setup];
    let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let Ok(target) = TargetArch::try_from(std::env::consts::ARCH) else { return false };
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, target).and_then(BpfProgram::try_from);
    filter.is_ok_and(|filter| seccompiler::apply_filter(&filter).is_ok())
}

#[cfg(not(target_os = "linux"))]
fn confine() -> anyhow::Result<Confined> {
    Ok(Confined { files: false, sockets: false })
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    /// What comes of a compiler that is a script of the shell.
    fn compile(script: &str, seconds: u64) -> Result<Vec<u8>, String> {
        let program = PathBuf::from("/bin/sh");
        let compiler = Compiler { program, arguments: vec!["-c".into(), script.into()], environment: Vec::new() };
        let limits = Limits { compile_memory: 1 << 20, compile_seconds: seconds, ..Limits::default() };
        Compilers::new(compiler).compile(&vec![0; 1 << 20], &limits).map_err(|uncompiled| match uncompiled {
            Uncompiled::Shortage(why) => format!("shortage: {why}"),
            Uncompiled::Refused(why) => format!("refused: {why}"),
        })
    }

    #[test]
    fn n26_what_a_compiler_answers_is_bounded() {
        assert_eq!(compile("cat >/dev/null; printf code", 60), Ok(b"code".to_vec()));
        let endless = compile("while :; do printf %1024s; done", 60);
        assert_eq!(endless, Err("refused: its code would have more than 1 MiB".to_owned()));
        // What it says beside that is cut, and does not keep it from ending.
        let said = compile("i=0; while [ $i -lt 200 ]; do printf %1024s x >&2; i=$((i+1)); done; exit 1", 60);
        assert_eq!(said, Err("refused: it cannot be compiled: x".to_owned()));
    }

    #[test]
    fn n26_a_compiler_that_does_not_answer_is_killed() {
        let late = Err("shortage: the compiler did not answer within 0 s and was killed".to_owned());
        for script in ["exec sleep 600", "exec >&- 2>&- sleep 600", "printf code; exec sleep 600 >&-"] {
            assert_eq!(compile(script, 0), late, "{script}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn n26_a_compiler_opens_nothing() {
        thread::spawn(|| {
            assert!(std::fs::File::open("/proc/self/exe").is_ok());
            if !confine().unwrap().files {
                eprintln!("skipped: this kernel has no Landlock");
                return;
            }
            for path in ["/proc/self/exe", "/etc/hostname", "/"] {
                assert!(std::fs::read_dir(path).is_err() && std::fs::File::open(path).is_err(), "{path}");
            }
            let made = std::fs::write(std::env::temp_dir().join("flowcell-n26"), "");
            assert!(made.is_err() && Command::new("/bin/sh").arg("-c").arg("true").status().is_err());
        })
        .join()
        .unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn n26_a_compiler_opens_no_socket() {
        use std::{
            net::{TcpListener, TcpStream, UdpSocket},
            os::unix::net::{UnixDatagram, UnixListener, UnixStream},
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (tcp, _unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
        let address = tcp.local_addr().unwrap();
        let opened = move || {
            [
                TcpStream::connect(address).is_ok(),
                TcpListener::bind("127.0.0.1:0").is_ok(),
                UdpSocket::bind("127.0.0.1:0").is_ok(),
                UnixStream::connect(&path).is_ok(),
                UnixStream::pair().is_ok(),
                UnixDatagram::unbound().is_ok(),
            ]
        };
        assert_eq!(opened(), [true; 6]);
        thread::spawn(move || {
            if !confine().unwrap().sockets {
                eprintln!("skipped: this kernel has no seccomp");
                return;
            }
            assert_eq!(opened(), [false; 6]);
            // So it is in threads that it starts.
            assert_eq!(thread::spawn(opened).join().unwrap(), [false; 6]);
        })
        .join()
        .unwrap();
    }
}
