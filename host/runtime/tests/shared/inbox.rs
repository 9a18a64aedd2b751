//! Messages to runs that another process drives.

use std::{sync::Arc, thread};

use flowcell_contract::{Json, Value};
use flowcell_runtime::{
    FlowRunner, Pinned, QuestionRef, RunCommand, RunOptions, RunStatus, World,
    fact::Fact,
    ports::{Filter, Pin, Runs},
    remote::ask,
    shared::SharedRuns,
    sql::Options,
};

use super::wait_for;
use crate::{
    flows::{ASKS, graph, options, tenant},
    stores::backend::{Backend, Store},
    stores::units::everything,
};

fn open(backend: &Backend) -> Arc<Store> {
    Arc::new(backend.open_with(Options::default()))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn runner(store: &Store, options: RunOptions) -> FlowRunner {
    let flow = Pinned { graph: graph(ASKS), pin: Pin("f".into()) };
    FlowRunner::new(flow, store.world(ASKS), options).unwrap()
}

fn said(store: &Store) -> usize {
    let units = everything(&*store.journal, "r");
    units.iter().flat_map(|unit| &unit.facts).filter(|fact| matches!(fact, Fact::MessageSent { .. })).count()
}

fn hello() -> RunCommand {
    RunCommand::Send { content: Value::from(Json::from("hello")) }
}

fn answer() -> RunCommand {
    reply_to("ask", Json::object([("content", Json::from("yes"))]))
}

fn reply_to(gate: &str, answer: Json) -> RunCommand {
    RunCommand::Reply { gate: gate.into(), answer, question: QuestionRef::default() }
}

/// R18: three processes send the same message a hundred times to a run of a fourth process. The run receives it once,
/// and each sender gets the same answer.
pub(crate) fn r18_a_message_sent_a_hundred_times_is_applied_once(backend: &Backend) {
    let stores: Vec<_> = (0..4).map(|_| open(backend)).collect();
    let driving = stores[0].clone();
    let driver = thread::spawn(move || {
        let world = driving.world(ASKS);
        let flow = Pinned { graph: graph(ASKS), pin: Pin("f".into()) };
        let options = RunOptions { wait_for_answers: true, ..options("r") };
        let runner = FlowRunner::new(flow, world.clone(), options).unwrap();
        runner.start_session();
        driving.server.as_ref().unwrap().serve(&world).unwrap();
        block_on(runner.run())
    });
    wait_for("the run", || stores[1].journal.find(&tenant(), &"r".into()).unwrap());
    let send = |index: usize, message: &'static str, request: RunCommand| {
        let store = stores[1 + index % 3].clone();
        thread::spawn(move || {
            let server = store.server.as_ref().unwrap();
            block_on(ask(&**server, &tenant(), &"r".into(), message, &request)).unwrap()
        })
    };
    let sent: Vec<_> = (0..100).map(|index| send(index, "m", hello())).collect();
    assert!(sent.into_iter().all(|thread| thread.join().unwrap().is_ok()));
    assert_eq!(said(&stores[1]), 1);
    let refused = send(0, "n", reply_to("none", Json::Null)).join().unwrap();
    assert_eq!(refused.unwrap_err().code(), "gate_closed");
    assert_eq!(send(1, "o", answer()).join().unwrap(), Ok(()));
    assert_eq!(driver.join().unwrap().status, RunStatus::Succeeded);
    assert_eq!(send(2, "p", hello()).join().unwrap().unwrap_err().code(), "run_not_active");
    assert_eq!(send(2, "m", hello()).join().unwrap(), Ok(()));
}

/// More tenants than the store has connections: their messages are delivered, and the store is read meanwhile.
pub(crate) fn many_tenants_receive_messages(backend: &Backend) {
    let (one, two) = (open(backend), open(backend));
    let worlds: Vec<_> = (0..20).map(|number| world_of(&one, &format!("t{number}"))).collect();
    let server = one.server.as_ref().unwrap();
    worlds.iter().for_each(|world| server.serve(world).unwrap());
    for world in [&worlds[0], &worlds[19]] {
        let flow = Pinned { graph: graph(ASKS), pin: Pin("f".into()) };
        let run = FlowRunner::new(flow, world.clone(), options("r")).unwrap();
        assert_eq!(block_on(run.run()).status, RunStatus::Parked);
        let sender = two.server.as_ref().unwrap();
        assert_eq!(block_on(ask(&**sender, &world.tenant, &"r".into(), "m", &answer())).unwrap(), Ok(()));
    }
    // The last world ends the task, and a new one starts it again.
    drop(worlds);
    let world = world_of(&one, "t0");
    server.serve(&world).unwrap();
    assert!(server.runs(&world.tenant, &Filter { limit: 9, ..Filter::default() }).is_ok_and(|runs| runs.len() == 1));
}

fn world_of(store: &Store, tenant: &str) -> Arc<World> {
    let mut world = Arc::into_inner(store.world(ASKS)).unwrap();
    world.tenant = tenant.into();
    Arc::new(world)
}

/// Any process that finds a message for a parked run can record it. The process that drives the run next processes the
/// message.
pub(crate) fn a_run_without_a_driver_accepts_messages(backend: &Backend) {
    let (one, two) = (open(backend), open(backend));
    assert_eq!(block_on(runner(&one, options("r")).run()).status, RunStatus::Parked);
    let world = one.world(ASKS);
    one.server.as_ref().unwrap().serve(&world).unwrap();
    let server = two.server.as_ref().unwrap();
    assert_eq!(block_on(ask(&**server, &tenant(), &"r".into(), "m", &answer())).unwrap(), Ok(()));
    let found = wait_for("the run", || two.server.as_ref().unwrap().work(&tenant(), 0, 1).unwrap().pop());
    let runner = runner(&two, options("r"));
    drop(found);
    assert_eq!(block_on(runner.run()).status, RunStatus::Succeeded);
}
