//! Children become idle, wake, wait for live permits and end with the run.

use std::{future::pending, sync::Arc};

use flowcell_contract::{FlowCall, Tenant, Value};
use tokio::sync::{mpsc, oneshot};

use super::Children;
use crate::{
    command::{HubError, RunCommand},
    driver::testing::task,
    hub::{Command, Hub},
    live::LiveRuns,
    result::{Idle, Waiting},
    tests::driving::block,
};

/// Adds a child that is driven until `children` drops it. Returns a future that ends then.
fn add(children: &mut Children, node: u32) -> oneshot::Receiver<()> {
    let (held, dropped) = oneshot::channel::<()>();
    let driving = tokio::spawn(async move {
        let _held = held;
        pending().await
    });
    children.add(task(node), Hub::new("child".into(), mpsc::channel(1).0), driving);
    dropped
}

fn idle(due: Option<u64>) -> Idle {
    let event = Waiting::Event { address: "wait".into(), name: "go".into() };
    Idle { waiting: vec![event], due, quota: None }
}

#[test]
fn a_child_is_idle_until_it_gets_a_command() {
    block(async {
        let mut children = Children::default();
        assert!(children.all_idle() && children.due().is_none());
        let _dropped = (add(&mut children, 0), add(&mut children, 1));
        children.set_child_idle(task(0), idle(Some(7)), 0);
        assert!(!children.all_idle(), "the other one moves");
        children.set_child_idle(task(1), idle(Some(5)), 0);
        assert!(children.all_idle());
        assert_eq!(children.due(), Some(5));
        assert!(children.are_idle_at(4) && !children.are_idle_at(5), "a child whose timer is due continues");
        let waiting = children.waiting(|task| format!("n{}", task.node.0));
        let mut addresses: Vec<_> = waiting.iter().map(Waiting::address).collect();
        addresses.sort_unstable();
        assert_eq!(addresses, ["n0/wait", "n1/wait"]);
        assert!(children.wake(task(1)).is_some() && !children.all_idle());
        assert!(children.wake(task(2)).is_none());
        // The child has sent this report before it got the command.
        children.set_child_idle(task(1), idle(None), 0);
        assert!(!children.all_idle());
        children.set_child_idle(task(1), idle(None), 1);
        assert!(children.all_idle());
        assert_eq!(children.wake_all().len(), 2);
        assert_eq!((children.due(), children.waiting(|_| String::new()).len()), (None, 0));
        children.set_child_idle(task(0), idle(None), 1);
        children.set_child_idle(task(1), idle(None), 1);
        assert!(!children.all_idle(), "this child has got one of two commands");
        children.set_child_idle(task(1), Idle::default(), u64::MAX);
        assert!(children.all_idle(), "a parked child gets no commands");
    });
}

#[test]
fn a_command_is_passed_on_to_its_child_or_refused() {
    block(async {
        let mut children = Children::default();
        let (sender, mut commands) = mpsc::channel(1);
        let hub = Hub::new("child".into(), sender);
        hub.start_session();
        children.add(task(0), hub, tokio::spawn(pending()));
        children.set_child_idle(task(0), idle(None), 0);
        for message in [None, Some(7)] {
            let (answer, answered) = oneshot::channel();
            children.pass_on(Some(task(0)), RunCommand::Cancel, message, answer);
            assert!(!children.all_idle(), "the child may move");
            match commands.recv().await {
                Some(Command::Run(RunCommand::Cancel, told)) if message.is_none() => told.send(Ok(())).unwrap(),
                Some(Command::Deliver(7, RunCommand::Cancel, told)) if message == Some(7) => told.send(Ok(())).unwrap(),
                _ => panic!("the child gets the command"),
            }
            assert!(matches!(commands.recv().await, Some(Command::Confirm)));
            assert_eq!(answered.await, Ok(Ok(())));
        }
        for task in [None, Some(task(1))] {
            let (answer, answered) = oneshot::channel();
            let command = RunCommand::CloseAgent { to: "agent".into() };
            children.pass_on(task, command, None, answer);
            assert_eq!(answered.await, Ok(Err(HubError::AgentNotActive)));
        }
    });
}

#[test]
fn an_ended_child_publishes_its_events_and_others_end_with_the_run() {
    block(async {
        let mut children = Children::default();
        let (mut first, second) = (add(&mut children, 0), add(&mut children, 1));
        let driving = children.remove(task(0)).unwrap();
        children.clear();
        assert!(children.is_empty() && children.remove(task(1)).is_none());
        assert!(second.await.is_err(), "its driver is dropped");
        assert!(!driving.is_finished() && first.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        driving.abort();
    });
}

#[test]
fn a_call_is_queued_until_there_is_a_permit() {
    block(async {
        let live = Arc::new(LiveRuns::default());
        live.set_limit(&Tenant::local(), Some(2));
        let enter = || live.enter(&Tenant::local(), &"run-1".into());
        let call = FlowCall { name: "child".into(), input: Value::null() };
        let (commands, mut received) = mpsc::channel(1);
        let mut children = Children::default();
        let first = children.request_permit((task(0), 1), &call, &"first".into(), enter, &commands);
        assert!(matches!(first, Some(Ok(_))) && children.has_empty_queue() && children.has_permit());
        assert!(children.request_permit((task(1), 1), &call, &"second".into(), enter, &commands).is_none());
        assert!(children.take_queued(task(1), Some(2)).is_none(), "it is of another attempt");
        drop(first);
        let Some(Command::ChildPermit { task: placed, attempt: 1, permit: Ok(_) }) = received.recv().await else {
            panic!("the second call gets the permit of the first");
        };
        assert_eq!(placed, task(1));
        assert!(children.take_queued(task(1), Some(1)).is_some() && children.has_empty_queue());
    });
}

#[test]
fn a_call_that_leaves_the_queue_gives_up_its_permit() {
    block(async {
        let live = Arc::new(LiveRuns::default());
        live.set_limit(&Tenant::local(), Some(2));
        let enter = || live.enter(&Tenant::local(), &"run-1".into());
        let call = FlowCall { name: "child".into(), input: Value::null() };
        let commands = mpsc::channel(1).0;
        let mut children = Children::default();
        let first = children.request_permit((task(0), 1), &call, &"first".into(), enter, &commands);
        assert!(children.request_permit((task(1), 1), &call, &"second".into(), enter, &commands).is_none());
        children.clear_queue();
        tokio::task::yield_now().await;
        drop(first);
        let third = children.request_permit((task(2), 1), &call, &"third".into(), enter, &commands);
        assert!(matches!(third, Some(Ok(_))), "the dropped call does not have the permit");
    });
}
