//! Compiles packs from outside this program in a separate process with limits on memory and computing time. A component
//! or library that needs more is refused, without any effect on the rest of the host.

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
use serde::{Deserialize, Serialize};

use crate::{
    Limits, machine,
    text::{cut, single_line},
};

/// The maximum number of compiler processes that attempts use at the same time. Tenants share them fairly: a single
/// tenant gets at most two, so that two stay free for other tenants.
pub(crate) const MAX_COMPILERS: u64 = 4;
/// The maximum number of bytes of the compiler's error output that a message repeats.
const MAX_ERROR_OUTPUT_BYTES: usize = 1 << 10;
/// The seconds after which the host kills a compiler, for each second of its limit on computing time. This is more than
/// one because a compiler has a low priority, so it may have to wait for other processes.
const WAIT_PER_COMPUTING_SECOND: u64 = 10;
/// The interval at which the host checks whether a compiler that has closed its output has exited.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The command of a compiler: a program that runs [`compile`] on its standard input and output.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The path of the program.
    pub program: PathBuf,
    /// The arguments that make the program run as a compiler.
    pub arguments: Vec<OsString>,
    /// The complete environment of the process. It inherits no variables.
    pub environment: Vec<(OsString, OsString)>,
}

/// The reason why a component was not compiled.
pub(crate) enum CompileError {
    /// The machine could not start a compiler, or killed it.
    Shortage(String),
    /// The component itself cannot be compiled within the limits.
    Refused(String),
}

/// The first line of a compiler's input, as JSON. The component follows it.
#[derive(Serialize, Deserialize)]
struct CompileRequest {
    /// The stack of the guests, in bytes.
    stack: usize,
    /// The address space of the compiler in bytes, in addition to what the program itself occupies.
    memory: u64,
    /// The computing time of the compiler, over all its threads, in seconds.
    seconds: u64,
}

impl Compiler {
    /// Returns the code of a component. Blocks until a process has made it.
    pub(crate) fn compile(&self, component: &[u8], limits: &Limits) -> Result<Vec<u8>, CompileError> {
        let request =
            CompileRequest { stack: limits.stack, memory: limits.compile_memory, seconds: limits.compile_seconds };
        let not_started = |error: io::Error| CompileError::Shortage(format!("cannot start a compiler: {error}"));
        let child = self.start().map_err(not_started)?;
        let ended = request.exchange(child, component).map_err(not_started)?;
        request.code_or_reason(ended)
    }

    /// Starts a compiler. It inherits neither the environment nor the folder, and no open file but its three pipes.
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

fn write_request(mut input: impl Write, request: &CompileRequest, component: &[u8]) -> io::Result<()> {
    serde_json::to_writer(&mut input, request)?;
    input.write_all(b"\n")?;
    input.write_all(component)
}

/// Reads at most `most` bytes. After a read error, returns the bytes that were read before it.
fn read_most(from: impl Read, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A read error does not matter: the exit status of the compiler decides.
    let _ = from.take(most).read_to_end(&mut bytes);
    bytes
}

/// The exit status and the output of a compiler that has ended.
struct CompilerExit {
    /// The exit status; `None` if the host killed the compiler after its deadline.
    status: Option<ExitStatus>,
    code: Vec<u8>,
    error_output: Vec<u8>,
}

/// Waits until a compiler exits by itself. Returns `None` if the compiler still runs at the deadline.
fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() >= deadline => return Ok(None),
            None => thread::sleep(EXIT_POLL_INTERVAL),
        }
    }
}

impl CompileRequest {
    /// Sends a component to a compiler and reads the compiler's answer. Limits the size of the answer and the elapsed
    /// time.
    fn exchange(&self, mut child: Child, component: &[u8]) -> io::Result<CompilerExit> {
        let deadline = Instant::now() + Duration::from_secs(self.seconds.saturating_mul(WAIT_PER_COMPUTING_SECOND));
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            // A compiler that has already exited does not read its input; that is no error here.
            scope.spawn(|| input.map(|input| write_request(input, self, component)));
            let error_output = scope.spawn(|| {
                let mut errors = errors?;
                let start = read_most(&mut errors, MAX_ERROR_OUTPUT_BYTES as u64);
                let _ = io::copy(&mut errors, &mut io::sink());
                Some(start)
            });
            let (told, hears) = mpsc::channel();
            scope.spawn(move || told.send(output.map(|output| read_most(output, self.memory.saturating_add(1)))));
            let code = hears.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let status = match &code {
                // The pipe is closed now, so a compiler that writes more fails and exits.
                Ok(_) => wait_until(&mut child, deadline),
                Err(_) => Ok(None),
            };
            // In every case the process has ended here, and its pipes are closed.
            if !matches!(status, Ok(Some(_))) {
                let _ = child.kill();
                child.wait()?;
            }
            let error_output = error_output.join().unwrap_or_default().unwrap_or_default();
            Ok(CompilerExit { status: status?, code: code.ok().flatten().unwrap_or_default(), error_output })
        })
    }

    /// Returns the code, or the reason why the compiler did not produce it.
    fn code_or_reason(&self, ended: CompilerExit) -> Result<Vec<u8>, CompileError> {
        if ended.code.len() as u64 > self.memory {
            let most = self.memory >> 20;
            return Err(CompileError::Refused(format!("its code would exceed {most} MiB")));
        }
        match ended.status {
            Some(status) if status.success() => Ok(ended.code),
            Some(status) => Err(self.error(status, &ended.error_output)),
            None => {
                let seconds = self.seconds.saturating_mul(WAIT_PER_COMPUTING_SECOND);
                Err(CompileError::Shortage(format!("the compiler did not answer within {seconds} s and was killed")))
            }
        }
    }

    /// Returns the reason why a compiler failed, by its exit status and its error output.
    fn error(&self, status: ExitStatus, error_output: &[u8]) -> CompileError {
        let error_output = String::from_utf8_lossy(error_output);
        if OUT_OF_MEMORY.iter().any(|said| error_output.contains(said)) {
            return CompileError::Refused(format!("compiling it takes more than {} MiB of memory", self.memory >> 20));
        }
        match signal(status) {
            Some(SIGXCPU) => {
                CompileError::Refused(format!("compiling it takes more than {} s of CPU time", self.seconds))
            }
            Some(SIGKILL) => CompileError::Shortage("the compiler was killed".to_owned()),
            _ => CompileError::Refused(format!(
                "it does not compile: {}",
                cut(single_line(&error_output), MAX_ERROR_OUTPUT_BYTES)
            )),
        }
    }
}

/// The messages of Rust, wasmtime and a failed thread start when memory is short.
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

/// Runs this process as a compiler: reads the limits and a component, and writes the code. The process should do
/// nothing else, because it gives up all rights that a compiler does not need.
pub fn compile(mut input: impl BufRead, mut output: impl Write) -> anyhow::Result<()> {
    let mut request = String::new();
    input.read_line(&mut request)?;
    let request: CompileRequest =
        serde_json::from_str(&request).context("only flowcell itself may run this command")?;
    limit_resources(&request)?;
    confine()?;
    let mut component = Vec::new();
    input.read_to_end(&mut component)?;
    let engine = machine::compiler(request.stack)?;
    // A library of a component is compiled by itself.
    let code = match wasmparser::Parser::is_core_wasm(&component) {
        true => engine.precompile_module(&component),
        false => engine.precompile_component(&component),
    };
    output.write_all(&code.map_err(|error| anyhow::anyhow!("{error:#}"))?)?;
    Ok(output.flush()?)
}

/// Limits the memory and time of this process, forbids it to write files, and lowers its priority.
#[cfg(unix)]
fn limit_resources(request: &CompileRequest) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, nice, setrlimit};
    let memory = address_space() + request.memory;
    let limits = [
        (Resource::As, memory, memory),
        // At the soft limit the kernel sends SIGXCPU, which tells the cause. At the hard limit it kills the process.
        (Resource::Cpu, request.seconds, request.seconds + 1),
        (Resource::Fsize, 0, 0),
        (Resource::Core, 0, 0),
    ];
    for (resource, soft, hard) in limits {
        setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })?;
    }
    // The lower priority is optional, so an error does not matter.
    let _ = nice(10);
    Ok(())
}

/// Returns the address space of this process in bytes, or 0 where the system does not report it.
#[cfg(unix)]
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages: Option<u64> = pages.and_then(|text| text.split(' ').next()?.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(not(unix))]
fn limit_resources(_: &CompileRequest) -> io::Result<()> {
    Ok(())
}

/// The restrictions that the kernel enforces on a confined thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Confined {
    /// True if the thread cannot open files, run programs or signal other processes.
    files: bool,
    /// True if the thread cannot open sockets of any kind.
    sockets: bool,
}

/// Confines this thread, and all threads that it starts, as far as the kernel supports it.
#[cfg(target_os = "linux")]
fn confine() -> anyhow::Result<Confined> {
    let files = confine_files()?;
    Ok(Confined { files, sockets: confine_sockets() })
}

/// Confines the thread with Landlock. Returns whether the kernel enforces it.
#[cfg(target_os = "linux")]
fn confine_files() -> anyhow::Result<bool> {
    use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};
    // This is the newest version that the library supports. An older kernel enforces a part of it.
    let abi = ABI::V6;
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?;
    let restricted = ruleset.create()?.restrict_self()?;
    Ok(restricted.ruleset != RulesetStatus::NotEnforced)
}

/// Makes system calls that open sockets, or that could do so indirectly, fail with `EPERM`, by seccomp. Returns whether
/// the kernel supports it on this architecture.
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

    /// Runs a shell script as the compiler and returns the outcome.
    fn compile(script: &str, seconds: u64) -> Result<Vec<u8>, String> {
        let program = PathBuf::from("/bin/sh");
        let compiler = Compiler { program, arguments: vec!["-c".into(), script.into()], environment: Vec::new() };
        let limits = Limits { compile_memory: 1 << 20, compile_seconds: seconds, ..Limits::default() };
        compiler.compile(&vec![0; 1 << 20], &limits).map_err(|uncompiled| match uncompiled {
            CompileError::Shortage(why) => format!("shortage: {why}"),
            CompileError::Refused(why) => format!("refused: {why}"),
        })
    }

    #[test]
    fn n26_what_a_compiler_answers_is_bounded() {
        assert_eq!(compile("cat >/dev/null; printf code", 60), Ok(b"code".to_vec()));
        let endless = compile("while :; do printf %1024s; done", 60);
        assert_eq!(endless, Err("refused: its code would exceed 1 MiB".to_owned()));
        // The error output is cut, and does not keep the process from exiting.
        let said = compile("i=0; while [ $i -lt 200 ]; do printf %1024s x >&2; i=$((i+1)); done; exit 1", 60);
        assert_eq!(said, Err("refused: it does not compile: x".to_owned()));
    }

    #[test]
    fn n26_a_compiler_that_does_not_answer_is_killed() {
        let late = Err("shortage: the compiler did not answer within 0 s and was killed".to_owned());
        for script in ["exec sleep 600", "exec >&- 2>&- sleep 600", "printf code; exec sleep 600 >&-"] {
            assert_eq!(compile(script, 0), late, "{script}");
        }
    }

    /// Prints that a test is skipped because the kernel lacks a feature. Panics if `FLOWCELL_TEST_NEEDS` lists the
    /// feature.
    #[cfg(target_os = "linux")]
    fn skipped(test: &str, feature: &str) {
        let needed = std::env::var("FLOWCELL_TEST_NEEDS").unwrap_or_default();
        assert!(!needed.split(',').any(|needed| needed == feature), "{test} needs {feature}");
        eprintln!("skipped: {test}: this kernel has no {feature}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn n26_a_compiler_opens_nothing() {
        thread::spawn(|| {
            assert!(std::fs::File::open("/proc/self/exe").is_ok());
            if !confine().unwrap().files {
                return skipped("n26_a_compiler_opens_nothing", "landlock");
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
                return skipped("n26_a_compiler_opens_no_socket", "seccomp");
            }
            assert_eq!(opened(), [false; 6]);
            // The threads that it starts are confined too.
            assert_eq!(thread::spawn(opened).join().unwrap(), [false; 6]);
        })
        .join()
        .unwrap();
    }
}
