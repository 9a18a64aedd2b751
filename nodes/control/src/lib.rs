//! The pack `control`: nodes that decide which nodes of a flow run, how often and when.

mod condition;
mod fail;
mod foreach;
mod gate;
mod if_;
mod loop_;
mod merge;
mod noop;
mod respond;
mod scope;
mod subflow;
mod switch;
#[cfg(test)]
mod tests;
mod wait;

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "control.fail" => fail::run,
    "control.foreach" => foreach::run,
    "control.gate" => gate::run,
    "control.if" => if_::run,
    "control.loop" => loop_::run,
    "control.merge" => merge::run,
    "control.noop" => noop::run,
    "control.respond" => respond::run,
    "control.scope" => scope::run,
    "control.subflow" => subflow::run,
    "control.switch" => switch::run,
    "control.wait" => wait::run,
}
