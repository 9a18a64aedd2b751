//! Figures: commits of runs beside bare `ctx.run` calls on the same server. Run with `--ignored --nocapture`.

use std::{net::TcpListener, time::Instant};

use flowcell_runtime::{
    ports::{Journal, Runs},
    shared::SharedRuns,
};
use restate_sdk::prelude::*;

use crate::{
    network::Cluster,
    nodes::{chain, ledger, tenant},
    processes::Process,
    proxy::Balancer,
    server::{Server, free_port, post, server, tables, wait_until},
    supervisor::Host,
};

const STEPS: usize = 100;
const RUNS: usize = 100;
/// The threads that accept them.
const SENDERS: usize = 10;

/// A service that does nothing but `ctx.run`.
struct Bare;

#[restate_sdk::service(name = "Bare")]
impl Bare {
    #[handler]
    async fn steps(&self, ctx: Context<'_>, count: u64) -> Result<u64, HandlerError> {
        let began = Instant::now();
        for _ in 0..count {
            ctx.run(|| async { Ok("x".repeat(300)) }).await?;
        }
        Ok(ctx.run(async || Ok(began.elapsed().as_micros() as u64)).await?)
    }
}

/// Serves [`Bare`] until the returned runtime is dropped.
fn serve_bare(server: &Server) -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    listener.set_nonblocking(true).unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        HttpServer::new(Endpoint::builder().bind(Bare).build()).serve(listener).await;
    });
    post(server.admin, "/deployments", &format!("{{\"uri\":\"http://127.0.0.1:{port}\"}}"));
    runtime
}

#[test]
#[ignore = "prints figures"]
fn commits_beside_bare_runs() {
    let Some(server) = server() else { return };
    let bare = serve_bare(&server);
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(&server, folder.path());
    let body = chain(&["type: t.call"; STEPS]);
    for round in 0..3 {
        let micros: u64 = post(server.ingress, "/Bare/steps", &STEPS.to_string()).trim().parse().unwrap();
        let (before, began) = (host.store.commits(), Instant::now());
        let run = host.accept_new(&body);
        let accepted = began.elapsed();
        host.wait_for(&run, "succeeded");
        let (took, commits) = (began.elapsed(), host.store.commits() - before);
        eprintln!(
            "round {round}: bare {} us a ctx.run; a chain of {STEPS} calls: accepted after {accepted:?}, {commits} commits, {} us \
             a commit",
            micros / STEPS as u64,
            (took - accepted).as_micros() as u64 / commits
        );
    }
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..RUNS {
            scope.spawn(|| post(server.ingress, "/Bare/steps", "20"));
        }
    });
    eprintln!("{RUNS} bare invocations at once: {:.0} ctx.run/s", (RUNS * 20) as f64 / began.elapsed().as_secs_f64());
    let body = chain(&["type: t.call"; 20]);
    let (before, began) = (host.store.commits(), Instant::now());
    let runs = accept_many(&host, &body);
    runs.iter().for_each(|run| wait_in_tables(&host, run));
    let (took, commits) = (began.elapsed().as_secs_f64(), host.store.commits() - before);
    eprintln!(
        "{RUNS} runs of 20 calls at once: {:.0} commits/s, {:.0} steps/s",
        commits as f64 / took,
        (RUNS * 20) as f64 / took
    );
    drop(bare);
}

#[test]
#[ignore = "prints figures"]
fn nodes_and_processes() {
    let body = chain(&["type: t.call"; 20]);
    for (nodes, processes) in [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 1), (3, 2), (3, 4)] {
        let Some(cluster) = Cluster::of(nodes, &[]) else { return };
        let (tables, folder) = (tables().unwrap(), tempfile::tempdir().unwrap());
        let ports: Vec<_> = (0..processes).map(|_| free_port()).collect();
        let balancer = Balancer::new(&ports);
        let url = |port| format!("{}&url=http://127.0.0.1:{}", cluster.url(&tables, port), balancer.port);
        let running: Vec<_> = ports.iter().map(|port| Process::start(&url(*port), folder.path())).collect();
        let host = Host::without_endpoint(&url(free_port()), folder.path());
        let mut rates = [0.0; 3];
        for rate in &mut rates {
            let began = Instant::now();
            let runs = accept_many(&host, &body);
            runs.iter().for_each(|run| wait_in_tables(&host, run));
            *rate = (RUNS * 20) as f64 / began.elapsed().as_secs_f64();
        }
        eprintln!("{nodes} nodes, {processes} processes: {rates:.0?} steps/s");
        running.into_iter().for_each(Process::end);
    }
}

#[test]
#[ignore = "prints figures"]
fn gaps_after_faults() {
    let Some(mut cluster) = Cluster::of(3, &[]) else { return };
    let (tables, folder) = (tables().unwrap(), tempfile::tempdir().unwrap());
    let ports = [free_port(), free_port()];
    let balancer = Balancer::new(&ports);
    let urls = ports.map(|port| format!("{}&url=http://127.0.0.1:{}", cluster.url(&tables, port), balancer.port));
    let mut running: Vec<_> = urls.iter().map(|url| Process::start(url, folder.path())).collect();
    let file = folder.path().join("ledger");
    let body = chain(&["type: t.call, input: { ms: 10 }"; 200]);
    let host = Host::without_endpoint(&urls[0], folder.path());
    for round in 0..6 {
        let before = ledger(&file).len();
        let runs = [(); 4].map(|()| host.accept_new(&body));
        wait_until("the runs begin", || ledger(&file).len() > before + 20);
        let what = match round {
            0..3 => {
                cluster.nodes[round].kill();
                cluster.nodes[round].start();
                format!("node {round} was killed")
            }
            _ => {
                running.remove(0).kill();
                running.insert(0, Process::start(&urls[0], folder.path()));
                "a process was killed".to_owned()
            }
        };
        runs.iter().for_each(|run| host.wait_for(run, "succeeded"));
        let mut gaps = runs.map(|run| longest_gap(&host, &run));
        gaps.sort_unstable();
        eprintln!("{what}: the four runs stood still for {gaps:?} ms");
    }
    running.into_iter().for_each(Process::end);
}

/// Returns the longest time between two commits of a run, in milliseconds.
fn longest_gap(host: &Host, run: &str) -> u64 {
    let units = host.store.read(&tenant(), &run.into(), 0, usize::MAX >> 1).unwrap();
    units.windows(2).map(|pair| pair[1].ts.saturating_sub(pair[0].ts)).max().unwrap()
}

/// Accepts [`RUNS`] runs from several threads.
fn accept_many(host: &Host, body: &str) -> Vec<String> {
    std::thread::scope(|scope| {
        let accept = || (0..RUNS / SENDERS).map(|_| host.accept_new(body)).collect::<Vec<_>>();
        let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(accept)).collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    })
}

/// Waits until lists show the end of a run. Reads only the database, so that the wait takes little of the measured time.
fn wait_in_tables(host: &Host, run: &str) {
    let row = || host.store.tables().run(&tenant(), &run.into()).unwrap();
    wait_until("a run ends", || row().is_some_and(|(row, _)| row.status == "succeeded"));
}
