//! Tests questions to a person at a terminal. `script` of util-linux provides a real terminal.

#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{ChildStdin, Command, Output, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use crate::kit::{Owner, Running, flowcell, has_program, output_of, stderr, stdout};

const ASKS: &str = "
flow: { name: asks, outputs: { said: '{{ ask.response.choice }}' } }
nodes: [{ id: ask, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }]
edges: []
";
const PASSES: &str = "
flow: { name: passes, outputs: { said: '{{ each.items[0] }} and {{ each.items[1] }}' } }
nodes:
  - { id: each, type: control.foreach, input: { list: [1, 2] }, body: [ask], bodyOutput: '{{ ask.response.choice }}' }
  - { id: ask, type: control.gate, input: { prompt: 'Well, {{ item }}?', choices: ['yes', 'no'] } }
edges: []
";
const CALLS: &str = "
flow: { name: calls, outputs: { said: '{{ call.outputs.said }}' } }
nodes: [{ id: call, type: control.subflow, input: { name: asks } }]
edges: []
";

fn server(folder: &Path) -> Owner {
    Owner::start(folder, &["serve", "--listen", "127.0.0.1:0"], "listening on")
}

/// Starts `flowcell` with these arguments at a terminal. Returns `None` if `script` is missing.
fn terminal(folder: &Path, arguments: &str) -> Option<Running> {
    terminal_of(&flowcell(folder), folder, arguments)
}

/// Starts the program of a command, with its environment, at a terminal.
fn terminal_of(plain: &Command, folder: &Path, arguments: &str) -> Option<Running> {
    let mut terminal = Command::new("script");
    terminal.current_dir(folder).args(["--quiet", "--return", "--command"]);
    terminal.arg(format!("{} {arguments}", plain.get_program().to_str().unwrap())).arg("/dev/null");
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    has_program("script").then(|| terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap().into())
}

/// Maximum time that a program may take to show a text.
const PATIENCE: Duration = Duration::from_secs(120);

/// The screen of a terminal.
struct Screen {
    pieces: Receiver<Vec<u8>>,
    seen: String,
    /// The end of the last text that was waited for.
    heard: usize,
}

impl Screen {
    fn of(terminal: &mut Running) -> Self {
        let (mut output, (send, pieces)) = (terminal.stdout.take().unwrap(), mpsc::channel());
        thread::spawn(move || {
            let mut piece = [0; 1024];
            while let Ok(length @ 1..) = output.read(&mut piece) {
                if send.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { pieces, seen: String::new(), heard: 0 }
    }

    /// Reads more. Returns false if the program has ended.
    fn read(&mut self) -> bool {
        match self.pieces.recv_timeout(PATIENCE) {
            Ok(piece) => self.seen.push_str(&String::from_utf8_lossy(&piece)),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => panic!("it says nothing more: {}", self.seen),
        }
        true
    }

    /// Reads until a text comes behind the last one that was heard. Returns the text between them.
    fn hear(&mut self, says: &str) -> String {
        loop {
            let new = &self.seen[self.heard..];
            if let Some(at) = new.find(says) {
                let between = new[..at].to_owned();
                self.heard += at + says.len();
                return between;
            }
            assert!(self.read(), "it never said {says:?}: {}", self.seen);
        }
    }
}

/// Runs `flowcell` at a terminal with these typed lines.
fn at_a_terminal(folder: &Path, arguments: &str, lines: &str) -> Option<Output> {
    let mut terminal = terminal(folder, arguments)?;
    terminal.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    Some(terminal.wait_with_output().unwrap())
}

#[test]
fn open_questions_are_asked_at_the_terminal_that_resumes_the_run() {
    for (flow, lines, expected) in
        [("asks", "no\n", "\"no\""), ("passes", "yes\nno\n", "\"yes and no\""), ("calls", "yes\n", "\"yes\"")]
    {
        for beside in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            fs::create_dir(folder.join("flows")).unwrap();
            for (name, text) in [("asks", ASKS), ("passes", PASSES), ("calls", CALLS)] {
                fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
            }
            let parked = output_of(folder, &["run", &format!("{flow}.yaml"), "--run-id", "r"]);
            assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
            let _owner = beside.then(|| server(folder));
            let Some(output) = at_a_terminal(folder, "runs resume r", lines) else { return };
            let seen = stdout(&output);
            assert!(output.status.success() && seen.contains(expected), "{flow}, beside an owner {beside}: {seen}");
            assert_eq!(seen.matches("Well").count(), lines.lines().count(), "{flow}: {seen}");
        }
    }
}

#[test]
fn a_question_stays_open_at_the_terminal_when_the_owner_of_the_store_dies() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("flows")).unwrap();
    fs::write(folder.path().join("asks.yaml"), ASKS).unwrap();
    let mut owner = Some(server(folder.path()));
    let Some(mut terminal) = terminal(folder.path(), "run asks.yaml --run-id r") else { return };
    let (mut typed, mut screen) = (terminal.stdin.take().unwrap(), Screen::of(&mut terminal));
    let mut answered = 0;
    // A line that comes while no process owns the store is asked for again.
    while screen.read() {
        if screen.seen.matches("yes|no >").count() > answered {
            drop(owner.take());
            answered += 1;
            typed.write_all(b"yes\n").unwrap();
        }
    }
    let seen = screen.seen;
    assert!(terminal.wait().unwrap().success() && seen.contains("\"said\": \"yes\""), "{seen}");
    assert!(seen.contains("this process continues the run"), "{seen}");
}

/// A line that was begun for one question does not answer the next, after another process has answered the first.
#[test]
fn a_begun_line_answers_no_other_question() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("passes.yaml"), PASSES).unwrap();
    let Some(mut terminal) = terminal(folder.path(), "run passes.yaml --run-id r") else { return };
    let (mut typed, mut screen) = (terminal.stdin.take().unwrap(), Screen::of(&mut terminal));
    // The lines above the prompt name both questions. The last one names the shown question.
    let shown = screen.hear("yes|no >");
    let first = if shown[shown.rfind("each[").unwrap()..].starts_with("each[0].ask") { 0 } else { 1 };
    typed.write_all(b"ye").unwrap();
    // The terminal echoes the received text.
    screen.hear("ye");
    let answered = output_of(folder.path(), &["answer", "r", &format!("each[{first}].ask"), "no"]);
    assert!(answered.status.success(), "{}", stderr(&answered));
    screen.hear("yes|no >");
    typed.write_all(b"s\n").unwrap();
    screen.hear("the line `yes` is ignored, because you began it before");
    typed.write_all(b"yes\n").unwrap();
    let expected = if first == 0 { "no and yes" } else { "yes and no" };
    screen.hear(expected);
    drop(typed);
    assert!(terminal.wait().unwrap().success());
}

#[test]
fn compiling_is_announced_at_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("asks.yaml"), ASKS).unwrap();
    // An empty cache has no compiled components, so compiling takes longer than the first update of the status line.
    let mut plain = flowcell(folder.path());
    plain.env("FLOWCELL_CACHE", folder.path().join("cold"));
    let Some(mut terminal) = terminal_of(&plain, folder.path(), "run asks.yaml --run-id r") else { return };
    let before = Screen::of(&mut terminal).hear("compiling components for their first run");
    assert!(!before.contains("yes|no >"), "it was not announced before the question: {before}");
    terminal.kill().unwrap();
    terminal.wait().unwrap();
}

/// Behind it the terminal is in raw mode. An arrow of an error message is no prompt.
const PROMPT: &str = "\x1b[K> ";

/// A person evaluates expressions with the values of a run. Tab completes nodes and members, and Ctrl-D ends the command.
#[test]
fn expressions_are_completed_at_the_terminal() {
    const PAYS: &str = "
flow: { name: pays, outputs: { paid: '{{ pay.value.amount }}' } }
nodes: [{ id: pay, type: control.noop, input: { value: { amount: 12 } } }]
";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pays.yaml"), PAYS).unwrap();
    let ran = output_of(folder.path(), &["run", "pays.yaml", "--run-id", "r"]);
    assert!(ran.status.success(), "{}", stderr(&ran));
    let mut plain = flowcell(folder.path());
    plain.env("TERM", "xterm");
    let Some(mut terminal) = terminal_of(&plain, folder.path(), "eval --run r") else { return };
    let (mut typed, mut screen) = (terminal.stdin.take().unwrap(), Screen::of(&mut terminal));
    screen.hear(PROMPT);
    typed.write_all(b"pa\t").unwrap();
    screen.hear("pay");
    typed.write_all(b".va\t").unwrap();
    screen.hear(".value");
    typed.write_all(b".am\t * 99\n").unwrap();
    screen.hear("1188");
    screen.hear(PROMPT);
    typed.write_all(b"pax\n").unwrap();
    screen.hear("unknown name `pax`");
    screen.hear(PROMPT);
    // The arrow brings back the lines before.
    typed.write_all(b"\x1b[A\x1b[A + 1\n").unwrap();
    screen.hear("1189");
    screen.hear(PROMPT);
    typed.write_all(b"\x04").unwrap();
    assert!(terminal.wait().unwrap().success());
}

/// Lines that come at once, before the prompt is up and while others are evaluated, are each evaluated.
#[test]
fn expressions_that_are_typed_ahead_are_evaluated() {
    const LINES: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let mut plain = flowcell(folder.path());
    plain.env("TERM", "xterm");
    let Some(mut terminal) = terminal_of(&plain, folder.path(), "eval") else { return };
    let (mut typed, mut screen) = (terminal.stdin.take().unwrap(), Screen::of(&mut terminal));
    let expected = |number: usize| format!("{}\r\n", 7_000_003 * number);
    let lines = |numbers: std::ops::Range<usize>| {
        numbers.map(|number| format!("7000003 * {number}\r")).collect::<String>().into_bytes()
    };
    typed.write_all(&lines(1..LINES)).unwrap();
    (1..LINES).for_each(|number| _ = screen.hear(&expected(number)));
    // The prompt is up, and the terminal in raw mode. The lines come with the end of the first one.
    typed.write_all(&lines(LINES..2 * LINES)).unwrap();
    typed.write_all(b"1 + ").unwrap();
    (LINES..2 * LINES).for_each(|number| _ = screen.hear(&expected(number)));
    typed.write_all(b"70\r").unwrap();
    screen.hear("\r\n71\r\n");
    screen.hear(PROMPT);
    typed.write_all(b"\x04").unwrap();
    assert!(terminal.wait().unwrap().success());
}

/// The end of the input that comes before the prompt is up ends the command, after the lines before it.
#[test]
fn an_end_that_is_typed_ahead_ends_the_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let mut plain = flowcell(folder.path());
    plain.env("TERM", "xterm");
    for (typed, expected) in [("\x04", "Ctrl-D ends"), ("7000003 * 2\rnope(\r7000003 * 3\r\x04", "\r\n21000009\r\n")] {
        let Some(mut terminal) = terminal_of(&plain, folder.path(), "eval") else { return };
        // The terminal stays open, so the typed Ctrl-D alone ends the command.
        let mut open = terminal.stdin.take().unwrap();
        open.write_all(typed.as_bytes()).unwrap();
        let mut screen = Screen::of(&mut terminal);
        screen.hear(expected);
        while screen.read() {}
        assert!(terminal.wait().unwrap().success(), "{typed:?}: {}", screen.seen);
        drop(open);
    }
}

/// A person who leaves a conversation before its run has begun can come back: the run is in the store.
#[test]
fn an_end_that_is_typed_ahead_leaves_a_run_that_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("asks.yaml"), ASKS).unwrap();
    let Some(left) = at_a_terminal(folder.path(), "run asks.yaml --run-id r --chat", "\x04") else { return };
    assert_eq!(left.status.code(), Some(3), "{}", stdout(&left));
    let resumed = output_of(folder.path(), &["runs", "resume", "r", "--answer", "ask=no"]);
    assert!(resumed.status.success() && stdout(&resumed).contains("\"no\""), "{}", stderr(&resumed));
}

/// The sequences with which a terminal shows its full screen, and its usual one again.
const FULL_SCREEN: &str = "\x1b[?1049h";
const USUAL_SCREEN: &str = "\x1b[?1049l";

/// Opens the run `r` on the full screen. Returns `None` if `script` is missing.
fn watch(folder: &Path) -> Option<(Running, ChildStdin, Screen)> {
    let mut plain = flowcell(folder);
    plain.env("TERM", "xterm");
    let mut terminal = terminal_of(&plain, folder, "runs watch r")?;
    let (typed, mut screen) = (terminal.stdin.take().unwrap(), Screen::of(&mut terminal));
    screen.hear(FULL_SCREEN);
    Some((terminal, typed, screen))
}

/// A person looks at a parked run, reads the details of its task, answers its question by keys, and leaves.
#[test]
fn a_question_is_answered_on_the_full_screen() {
    for (flow, beside) in [("asks", false), ("asks", true), ("calls", false)] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir(folder.join("flows")).unwrap();
        for (name, text) in [("asks", ASKS), ("calls", CALLS)] {
            fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
        }
        let parked = output_of(folder, &["run", &format!("{flow}.yaml"), "--run-id", "r"]);
        assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
        let _owner = beside.then(|| server(folder));
        let Some((mut terminal, mut typed, mut screen)) = watch(folder) else { return };
        screen.hear("1 open question");
        screen.hear("Well?");
        if flow == "calls" {
            typed.write_all(b"l").unwrap();
            screen.hear("the run r.call.1");
            screen.hear("asking");
        }
        typed.write_all(b"\r").unwrap();
        screen.hear("attempt 1");
        typed.write_all(b"qa").unwrap();
        screen.hear("Enter sends");
        typed.write_all(b"perhaps\r").unwrap();
        screen.hear("it takes `yes`, `no`");
        // Ctrl-U deletes the text. A number stands for a choice.
        typed.write_all(b"\x152\r").unwrap();
        if beside {
            screen.hear("sent to the process that owns the store");
            screen.hear("succeeded");
            screen.hear("outputs: {");
        } else {
            screen.hear("recorded; continue the run with");
        }
        typed.write_all(b"q").unwrap();
        screen.hear(USUAL_SCREEN);
        assert!(terminal.wait().unwrap().success(), "{flow}, beside an owner {beside}");
        // The server has driven its run to the end. Another run goes on here.
        if !beside {
            let resumed = output_of(folder, &["runs", "resume", "r"]);
            assert!(stdout(&resumed).contains("\"no\""), "{flow}: {}", stderr(&resumed));
        }
    }
}

/// A run that another process owns is cancelled after a confirmation, and repeated there.
#[test]
fn a_run_is_cancelled_and_repeated_on_the_full_screen() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("flows")).unwrap();
    fs::write(folder.path().join("asks.yaml"), ASKS).unwrap();
    output_of(folder.path(), &["run", "asks.yaml", "--run-id", "r"]);
    let _owner = server(folder.path());
    let Some((mut terminal, mut typed, mut screen)) = watch(folder.path()) else { return };
    screen.hear("1 open question");
    typed.write_all(b"cn").unwrap();
    screen.hear("nothing was changed");
    typed.write_all(b"cy").unwrap();
    // The time that the ended run took, in the line of its state.
    screen.hear("\x1b[0min ");
    typed.write_all(b"r").unwrap();
    screen.hear("Repeat the run from `ask` as a new run?");
    typed.write_all(b"y").unwrap();
    screen.hear("repeats r");
    screen.hear("Well?");
    typed.write_all(b"q").unwrap();
    screen.hear(USUAL_SCREEN);
    assert!(terminal.wait().unwrap().success());
}

/// Returns the processes below a process, each parent before its children.
fn processes_below(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let children = children.split_whitespace().map(|child| child.parse().unwrap());
    children.flat_map(|child| std::iter::once(child).chain(processes_below(child))).collect()
}

#[test]
fn the_usual_screen_comes_back_after_signals() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("asks.yaml"), ASKS).unwrap();
    output_of(folder.path(), &["run", "asks.yaml", "--run-id", "r"]);
    for (signal, code) in [("key", 130), ("INT", 130), ("TERM", 143)] {
        let Some((mut terminal, mut typed, mut screen)) = watch(folder.path()) else { return };
        screen.hear("Well?");
        match signal {
            "key" => typed.write_all(b"\x03").unwrap(),
            signal => {
                // The program is below a shell, or in its place.
                let is_program = |process: &u32| {
                    let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
                    line.ends_with("\0runs\0watch\0r\0")
                };
                let program = processes_below(terminal.id()).into_iter().find(is_program).unwrap();
                let sent = Command::new("kill").args(["-s", signal, &program.to_string()]).status().unwrap();
                assert!(sent.success());
            }
        }
        screen.hear(USUAL_SCREEN);
        assert_eq!(terminal.wait().unwrap().code(), Some(code), "{signal}: {}", screen.seen);
    }
}

#[test]
fn a_run_is_printed_once_without_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("passes.yaml"), PASSES).unwrap();
    output_of(folder.path(), &["run", "passes.yaml", "--run-id", "r"]);
    let printed = output_of(folder.path(), &["runs", "watch", "r"]);
    assert!(printed.status.success() && printed.stderr.is_empty(), "{}", stderr(&printed));
    let text = stdout(&printed);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (5, "passes  r"), "{text}");
    assert!(
        lines[1].starts_with("parked  began ") && lines[1].ends_with("  2 open questions  2 asking, 1 waiting"),
        "{text}"
    );
    assert!(lines[2].starts_with("▸ ◌ each  waiting  ") && lines[2].ends_with("  2 passes: 2 asking"), "{text}");
    assert_eq!(lines[3..], ["  ? each[0].ask  Well, 1?", "  ? each[1].ask  Well, 2?"]);
    let unknown = output_of(folder.path(), &["runs", "watch", "nobody"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", stderr(&unknown));
}

/// The printed times are those of the journal, and not those of the process that prints them.
#[test]
fn a_run_and_runs_show_print_the_same_times() {
    const TIMES: &str = "
flow: { name: times, outputs: { count: '{{ each.count }}' } }
nodes:
  - { id: one, type: control.noop }
  - { id: waits, type: control.wait, input: { ms: 30 } }
  - { id: each, type: control.foreach, input: { list: [1, 2] }, body: { nodes: [{ id: inner, type: control.noop }] } }
  - { id: fails, type: control.fail, input: { message: no }, policy: { continueOnError: true } }
edges: [{ from: one, to: each }]
";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("times.yaml"), TIMES).unwrap();
    let run = output_of(folder.path(), &["run", "times.yaml", "--run-id", "r"]);
    assert!(run.status.success(), "{}", stderr(&run));
    // `  each[0].inner done in 4 ms`, `  fails failed in 5 ms: error: no`.
    let of_run = |line: &str| {
        let (address, time) = line.trim().split_once(" done in ").or_else(|| line.trim().split_once(" failed in "))?;
        let (node, time) = (address.rsplit('.').next()?, time.split(':').next()?);
        Some((node.to_owned(), time.to_owned()))
    };
    // `      inner succeeded  4 ms`, `  fails failed  5 ms  error: no`.
    let of_show = |line: &str| {
        let mut parts = line.trim().split("  ");
        let (head, time) = (parts.next()?, parts.next()?);
        let (node, status) = head.split_once(' ')?;
        ["succeeded", "failed"].contains(&status).then(|| (node.to_owned(), time.to_owned()))
    };
    let (heard, shown) = (stderr(&run), stdout(&output_of(folder.path(), &["runs", "show", "r"])));
    let mut of_run: Vec<_> = heard.lines().filter_map(of_run).collect();
    let mut of_show: Vec<_> = shown.lines().filter_map(of_show).collect();
    of_run.sort();
    of_show.sort();
    assert_eq!((of_run.len(), &of_run), (6, &of_show), "{heard}{shown}");
    let total = |text: &str| text.lines().find(|line| line.starts_with("succeeded in ")).map(str::to_owned);
    assert!(total(&heard).is_some() && total(&heard) == total(&shown), "{heard}{shown}");
}

#[test]
fn no_answer_is_given_if_one_of_them_is_invalid() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("asks.yaml"), ASKS).unwrap();
    output_of(folder.path(), &["run", "asks.yaml", "--run-id", "r"]);
    for beside in [false, true] {
        let _owner = beside.then(|| server(folder.path()));
        let refused =
            output_of(folder.path(), &["runs", "resume", "r", "--answer", "ask=yes", "--answer", "nobody=yes"]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    }
    let resumed = output_of(folder.path(), &["runs", "resume", "r", "--answer", "ask=no"]);
    assert!(stdout(&resumed).contains("\"no\""), "{}", stderr(&resumed));
}
