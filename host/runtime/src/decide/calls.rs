//! Calls that leave the host, and tasks that cannot continue because of such a call.

use std::sync::Arc;

use flowcell_contract::{BuiltIn, Effect, Failure, Json, code};

use super::{Decider, check_answer, replies};
use crate::{
    call_log::{self, ALLOW, Reply, permission},
    command::HubError,
    fact::{BlockReason, CallRecord, Fact, Resolution, TaskKey},
    question::{self, Closed, QuestionRef},
    state::Phase,
};

impl Decider<'_> {
    pub(super) fn call(
        &mut self,
        task: TaskKey,
        attempt: (u32, u32),
        call: Box<CallRecord>,
        reply: Option<Reply>,
    ) -> Result<(), HubError> {
        if !self.state.is_running(task, attempt) {
            return Err(HubError::RunEnded);
        }
        let ordinal = call.ordinal;
        let record = call.clone();
        self.emit(Fact::CallStarted { task, call });
        self.call_of_agent(task, &record);
        if let Some(reply) = reply {
            self.end_call(task, (attempt.0, ordinal), reply);
        }
        Ok(())
    }

    pub(super) fn call_again(&mut self, task: TaskKey, attempt: u32, ordinal: u32) {
        let calls = self.state.find(task).and_then(|task| task.calls.as_ref());
        if calls.is_some_and(|calls| calls.is_to_repeat((attempt, ordinal))) {
            self.emit(Fact::CallRepeated { task, attempt, ordinal });
        }
    }

    pub(super) fn call_ended(&mut self, key: TaskKey, call: (u32, u32), reply: Reply) {
        let under_way = |task: &crate::state::Task| task.calls.as_ref().is_some_and(|calls| calls.is_under_way(call));
        if !self.state.find(key).is_some_and(under_way) {
            return;
        }
        self.end_call(key, call, reply);
        match self.state.task(key).phase {
            Phase::Closing if !self.state.task(key).has_calls_in_progress() => self.finish_closing(key),
            Phase::Running | Phase::Delayed => self.ask_about_calls(key),
            _ => {}
        }
    }

    fn end_call(&mut self, task: TaskKey, (attempt, ordinal): (u32, u32), reply: Reply) {
        let agent = self.agent_of(task, (attempt, ordinal));
        // A call with an unknown end is reported only after a person has resolved it.
        let open = self.state.task(task).phase != Phase::Closing && call_log::is_ambiguous(&reply);
        let said = (agent.is_some() && !open).then(|| reply.clone());
        self.emit(Fact::CallEnded { task, attempt, ordinal, reply });
        if let Some(reply) = said {
            self.call_of_agent_ended(task, ordinal, agent, &reply);
        }
    }

    /// Returns the agent run that makes a call, and whether the call is one of a tool.
    fn agent_of(&self, task: TaskKey, call: (u32, u32)) -> Option<(Arc<str>, bool)> {
        let (agent, interface) = self.state.task(task).calls.as_ref()?.agent_of(call)?;
        Some((agent.agent_run.clone(), interface == BuiltIn::Tools.name()))
    }

    /// Records the answer of a person to the question whether a call may leave the host.
    pub(super) fn reply_to_call(
        &mut self,
        task: &str,
        ordinal: &str,
        answer: &Json,
        named: &QuestionRef,
    ) -> Result<(), HubError> {
        let key = self.state.task_at(task).ok_or(Closed::NoNode)?;
        let number =
            ordinal.parse::<u32>().ok().filter(|number| number.to_string() == ordinal).ok_or(Closed::NoCall)?;
        let Some((call, asked)) = question::permission(self.state, key, number) else {
            return Err(question::why_closed(self.state, key, Some(number), named).into());
        };
        named.check(&asked)?;
        let answer = check_answer(&permission(String::new()), answer).map_err(HubError::AnswerRefused)?;
        let allowed = answer.get("choice").and_then(Json::as_str) == Some(ALLOW);
        self.decide_call(key, call, allowed, Some(answer));
        Ok(())
    }

    /// Lets a call that waits for approval leave, or ends it with `tool_denied`. `answer` is `None` if the time to
    /// decide ended.
    pub(super) fn decide_call(&mut self, task: TaskKey, call: (u32, u32), allowed: bool, answer: Option<Json>) {
        let expired = answer.is_none();
        let (attempt, ordinal) = call;
        let digest = question::permission(self.state, task, ordinal).and_then(|(_, asked)| asked.digest);
        self.emit(Fact::CallDecided { task, attempt, ordinal, allowed, answer, digest });
        if !allowed {
            let why = if expired { "the call was not allowed in time" } else { "a person denied the call" };
            self.end_call(task, call, Err(Box::new(Failure::new(code::TOOL_DENIED, why))));
        }
    }

    /// Blocks a task if a person has to decide whether one of its calls happened.
    fn ask_about_calls(&mut self, task: TaskKey) {
        if let Some(reason) = self.state.task(task).calls.as_ref().and_then(|calls| calls.ambiguous()) {
            self.emit(Fact::TaskBlocked { task, reason: Box::new(reason) });
        }
    }

    /// Ends the open calls of an attempt that has ended, with the failure `abandoned`. Skips `once` calls in progress:
    /// an attempt answers only after they have ended, and after a timeout the task waits for them.
    pub(super) fn abandon_calls(&mut self, key: TaskKey) {
        self.withdraw_asked(key);
        self.end_calls(key, |effect| {
            let abandoned = || Failure::new(code::ABANDONED, "the attempt ended without the reply");
            (effect != Effect::Once).then(abandoned)
        });
    }

    /// Ends all calls, because the task ends without their replies: `once` calls as `ambiguous`, other calls as
    /// `abandoned`.
    pub(super) fn give_up_calls(&mut self, key: TaskKey) {
        let code = |effect| if effect == Effect::Once { code::AMBIGUOUS } else { code::ABANDONED };
        self.end_calls(key, |effect| Some(Failure::new(code(effect), "the task ended before the reply")));
    }

    /// Ends the calls that wait for approval with the failure `abandoned`.
    pub(super) fn withdraw_asked(&mut self, key: TaskKey) {
        let asked = self.state.task(key).calls.iter().flat_map(|calls| calls.asked()).map(|(call, ..)| call);
        for call in asked.collect::<Vec<_>>() {
            self.end_call(
                key,
                call,
                Err(Box::new(Failure::new(code::ABANDONED, "the task no longer waits for the call"))),
            );
        }
    }

    fn end_calls(&mut self, key: TaskKey, failure: impl Fn(Effect) -> Option<Failure>) {
        let calls: Vec<_> = self.state.task(key).calls.iter().flat_map(|calls| calls.under_way()).collect();
        for (call, effect) in calls {
            if let Some(failure) = failure(effect) {
                self.end_call(key, call, Err(Box::new(failure)));
            }
        }
    }

    /// Records that the process which made the calls has ended. A running attempt makes them again, except for `once`
    /// calls.
    pub(super) fn lose_calls(&mut self) {
        let live = self.state.scopes.iter().flat_map(|(id, scope)| {
            let nodes = &self.state.graph.body(scope.body).nodes;
            let calling = nodes.iter().zip(&scope.tasks).filter(|(_, task)| task.has_calls_in_progress());
            calling.map(|(node, _)| TaskKey { scope: *id, node: *node })
        });
        let mut tasks: Vec<_> = live.collect();
        tasks.sort_unstable();
        for key in tasks {
            let phase = self.state.task(key).phase;
            self.end_calls(key, |effect| match effect {
                Effect::Once => {
                    Some(Failure::new(code::AMBIGUOUS, "the process that made the call ended before the reply"))
                }
                _ if phase == Phase::Closing => {
                    Some(Failure::new(code::ABANDONED, "the process that made the call ended before the reply"))
                }
                _ => None,
            });
            match phase {
                Phase::Closing => self.finish_closing(key),
                Phase::Running | Phase::Delayed => self.ask_about_calls(key),
                _ => {}
            }
        }
    }

    pub(super) fn diverged(&mut self, task: TaskKey, attempt: (u32, u32), message: Box<str>) {
        if self.state.is_running(task, attempt) {
            let reason = Box::new(BlockReason::Nondeterministic { message });
            self.emit(Fact::TaskBlocked { task, reason });
        }
    }

    pub(super) fn resolve(&mut self, task: &str, resolution: Resolution) -> Result<(), HubError> {
        let blocked = self.state.task_at(task).filter(|key| self.state.task(*key).phase == Phase::Blocked);
        let key = blocked.ok_or(HubError::NotBlocked)?;
        let reason = self.state.task(key).blocked.as_ref().map(|blocked| &blocked.0);
        if let (Some(BlockReason::Nondeterministic { .. }), Resolution::Reply(_)) = (reason, &resolution) {
            let why = "no call of this task waits for a reply; use `repeat`, `output` or `fail`";
            return Err(HubError::AnswerRefused(why.into()));
        }
        if let (Some(BlockReason::Ambiguous { interface, function, .. }), Resolution::Reply(reply)) =
            (reason, &resolution)
        {
            replies::check(interface, function, reply.json()).map_err(HubError::AnswerRefused)?;
        }
        let call = match reason {
            Some(BlockReason::Ambiguous { attempt, ordinal, .. }) => Some((*attempt, *ordinal)),
            _ => None,
        };
        let agent = call.and_then(|call| self.agent_of(key, call));
        self.emit(Fact::TaskResolved { task: key, resolution: Box::new(resolution.clone()) });
        match resolution {
            Resolution::Reply(reply) => {
                if let Some((_, ordinal)) = call {
                    self.call_of_agent_ended(key, ordinal, agent, &Ok(reply));
                }
                self.ask_about_calls(key);
            }
            Resolution::Repeat => self.ask_about_calls(key),
            Resolution::Output(output) => {
                self.give_up_calls(key);
                self.emit(Fact::TaskSucceeded { task: key, output, received: None });
                self.ended.push_back(key);
            }
            Resolution::Fail(message) => self.close_task(key, Some(Failure::new(code::RESOLVED, message))),
        }
        Ok(())
    }
}
