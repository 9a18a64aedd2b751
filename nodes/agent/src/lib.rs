//! The pack `agent`: agents that ask a model, call tools and listen to their inbox, all through capabilities.

mod conversation;
mod inbox;
mod limits;
mod outcome;
mod preset;
mod run;
mod session;
mod settings;
mod shape;
#[cfg(test)]
mod tests;
mod toolbox;

use flowcell_sdk::{Result, Step, Task};

fn agent(task: &Task) -> Result<Step> {
    run::run(task, &preset::RUN)
}

fn plan(task: &Task) -> Result<Step> {
    run::run(task, &preset::PLAN)
}

fn classify(task: &Task) -> Result<Step> {
    run::run(task, &preset::CLASSIFY)
}

fn coder(task: &Task) -> Result<Step> {
    run::run(task, &preset::CODER)
}

fn reviewer(task: &Task) -> Result<Step> {
    run::run(task, &preset::REVIEWER)
}

fn summarize(task: &Task) -> Result<Step> {
    run::run(task, &preset::SUMMARIZE)
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "agent.run" => agent,
    "agent.plan" => plan,
    "agent.classify" => classify,
    "agent.coder" => coder,
    "agent.reviewer" => reviewer,
    "agent.summarize" => summarize,
}
