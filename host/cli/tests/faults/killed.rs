//! Kills processes at random times while they accept, answer and drive runs.

use std::{collections::BTreeMap, sync::mpsc, thread, time::Duration};

use crate::faults::{
    checker,
    dice::Dice,
    process::{Life, PACKS, Project, scale, stderr},
};

/// The number of processes that the test kills in each store.
const ROUNDS: usize = 30;
/// The number of stores, multiplied by `FLOWCELL_TEST_SCALE`.
const STORES: usize = 6;
/// [`Story::drive`] starts a new run only while fewer runs than this are unfinished.
const MAX_UNFINISHED: usize = 8;
/// The percentage of requests that get no response: the server refuses half of them, and executes the other half.
const TROUBLE_PERCENT: u64 = 5;
const FLOWS: [&str; 8] = ["ask", "each", "loop", "parent", "pay", "scatter", "send", "wait"];
/// The longest time to wait for the [`Moment`] of a kill. If the moment has not come by then, the process is killed
/// anyway.
const TIMEOUT: Duration = Duration::from_millis(1_500);

fn seed() -> u64 {
    std::env::var("FLOWCELL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// The moment at which a process dies.
#[derive(Clone, Copy)]
enum Moment {
    /// Once this number of requests has arrived at the server, counted over all processes of the store.
    Requests(usize),
    /// Once the process has printed this number of lines.
    Lines(usize),
    /// After this time, counted from the start of the process.
    Time(Duration),
}

/// One store and its users.
struct Story {
    project: Project,
    dice: Dice,
    /// The flow of each requested run.
    asked: BTreeMap<String, &'static str>,
    /// Requested runs that are not known to be accepted.
    open: Vec<String>,
    said: usize,
    resolved: usize,
}

impl Story {
    fn new(seed: u64) -> Story {
        Story {
            project: Project::new(seed, TROUBLE_PERCENT),
            dice: Dice(seed ^ 0xdead),
            asked: BTreeMap::new(),
            open: Vec::new(),
            said: 0,
            resolved: 0,
        }
    }

    fn moment(&mut self, lines: u64) -> Moment {
        match self.dice.below(4) {
            0 => Moment::Lines(1 + self.dice.below(lines) as usize),
            1 => Moment::Time(Duration::from_micros(self.dice.below(400_000))),
            _ => Moment::Requests(self.project.ledger.arrived() + 1 + self.dice.below(12) as usize),
        }
    }

    fn kill_at(&self, moment: Moment, life: &Life) {
        match moment {
            Moment::Requests(count) => _ = self.project.ledger.await_arrivals(count, TIMEOUT),
            Moment::Lines(count) => _ = life.await_lines(count, TIMEOUT),
            Moment::Time(time) => thread::sleep(time),
        }
        life.send_sigkill();
    }

    /// Returns a run that is not accepted yet, and its flow.
    fn next_run(&mut self) -> (String, String) {
        if let Some(run) = self.open.pop() {
            let flow = self.asked[&run];
            return (run, format!("{flow}.yaml"));
        }
        let run = format!("r{}", self.asked.len());
        let flow = *self.dice.pick(&FLOWS);
        self.asked.insert(run.clone(), flow);
        (run, format!("{flow}.yaml"))
    }

    /// Accepts a run with `flowcell run --detach`. If another process owns the store, that process accepts and drives
    /// the run. If the command fails, the run is tried again later.
    fn start_run(&mut self) {
        let (run, flow) = self.next_run();
        let errand = format!("errand={run}");
        let packs = PACKS.to_str().unwrap();
        let output = self
            .project
            .done(&["run", &flow, "-i", &errand, "--run-id", &run, "--detach", "--quiet", "--packs", packs]);
        if output.status.success() {
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{run}\n"));
            self.project.claims.accepted.insert(run);
        } else {
            // The process that drives has died meanwhile.
            assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
            self.open.push(run);
        }
    }

    /// Answers all open gates.
    fn answer(&mut self) {
        let asking: Vec<_> = self.project.unfinished_runs().into_iter().filter(|run| run.flow == "ask").collect();
        for run in asking {
            let text = format!("said-{}", self.said);
            self.said += 1;
            let output = self.project.done(&["answer", &run.name, "ask", &text]);
            if output.status.success() {
                self.project.claims.answered.insert((run.name, text));
            }
        }
    }

    /// Starts a process that drives all runs. Meanwhile other processes start runs, answer gates and resolve ambiguous
    /// calls. Then the driving process is killed.
    fn drive(&mut self) {
        let moment = self.moment(4);
        let life = self.project.start(&["drive", "--packs", PACKS.to_str().unwrap()]);
        let (tell, dead) = mpsc::channel();
        let (ledger, killer) = (self.project.ledger.clone(), life.killer());
        thread::scope(|threads| {
            threads.spawn(|| {
                match moment {
                    Moment::Requests(count) => _ = ledger.await_arrivals(count, TIMEOUT),
                    Moment::Lines(count) => _ = life.await_lines(count, TIMEOUT),
                    Moment::Time(time) => thread::sleep(time),
                }
                killer.kill();
                tell.send(()).unwrap();
            });
            // Wait until the driver owns the store, since another process would take it.
            life.await_lines(1, Duration::from_secs(60));
            while dead.try_recv().is_err() {
                match self.dice.below(4) {
                    0 | 1 if self.project.unfinished_runs().len() < MAX_UNFINISHED => self.start_run(),
                    2 => self.answer(),
                    3 => self.resolved += self.project.resolve(),
                    _ => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        self.project.kill(life);
    }

    /// Starts a run, or resumes an unfinished one, in a process that drives only this run. Then kills the process.
    fn watch(&mut self) {
        let unfinished = self.project.unfinished_runs();
        let old = unfinished.iter().filter(|run| !run.attention).map(|run| run.name.clone()).collect::<Vec<_>>();
        let run = match old.is_empty() || self.dice.below(2) == 0 {
            true => self.next_run().0,
            false => self.dice.pick(&old).clone(),
        };
        let (flow, errand) = (format!("{}.yaml", self.asked[&run]), format!("errand={run}"));
        let moment = self.moment(30);
        let mut arguments = Project::watch_arguments(&flow, &run);
        arguments.extend(["-i", &errand]);
        let life = self.project.start(&arguments);
        self.kill_at(moment, &life);
        let seen = self.project.kill(life);
        if seen.is_empty() && !self.project.claims.accepted.contains(&run) {
            self.open.push(run);
        }
    }

    /// Makes the server answer all requests from now on, and completes all runs.
    fn end(&mut self) {
        self.project.ledger.end_trouble();
        while !self.open.is_empty() {
            self.start_run();
        }
        for _ in 0..60 {
            let driven = self.project.done(&["drive", "--once", "--packs", PACKS.to_str().unwrap()]);
            assert!(driven.status.success(), "{}", stderr(&driven));
            let unfinished = self.project.unfinished_runs();
            if unfinished.is_empty() {
                return;
            }
            self.answer();
            let resolved = self.project.resolve();
            self.resolved += resolved;
            for run in unfinished.iter().filter(|run| run.attention && resolved == 0) {
                // The run was parked because too many of its processes died without progress.
                self.project.done(&["runs", "resume", &run.name, "--quiet"]);
            }
        }
    }
}

#[test]
fn r2_nothing_is_lost_when_processes_die_at_any_time() {
    let seeds: Vec<u64> = (0..(STORES * scale()) as u64).map(|story| seed() * 1_000 + story).collect();
    let stories: Vec<_> = thread::scope(|threads| {
        // Two stores at a time, for machines with two cores.
        let halves = seeds.chunks(seeds.len().div_ceil(2));
        let halves: Vec<_> =
            halves.map(|half| threads.spawn(|| half.iter().copied().map(run_story).collect::<Vec<_>>())).collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    let mut wrong = Vec::new();
    let (mut kills, mut runs, mut succeeded, mut arrivals, mut resolved) = (0, 0, 0, 0, 0);
    for (seed, story, found) in &stories {
        kills += story.project.kills;
        resolved += story.resolved;
        arrivals += story.project.ledger.arrived();
        let kept = checker::runs(&story.project.store());
        runs += kept.len();
        succeeded += kept.iter().filter(|run| run.standing == "succeeded").count();
        wrong.extend(found.iter().map(|why| format!("seed {seed}: {why}")));
    }
    println!(
        "{kills} processes killed in {} stores: {runs} runs, {succeeded} of them succeeded, {arrivals} requests arrived, \
         {resolved} decided by a person, {} violations",
        stories.len(),
        wrong.len(),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(kills >= ROUNDS * seeds.len() && resolved > 0);
}

fn run_story(seed: u64) -> (u64, Story, Vec<String>) {
    let mut story = Story::new(seed);
    for _ in 0..ROUNDS {
        match story.dice.below(5) {
            0 | 1 => story.watch(),
            _ => story.drive(),
        }
    }
    story.end();
    let wrong = story.project.check();
    (seed, story, wrong)
}
