//! Tests of the creation of jobs by idempotency keys.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use serde_json::json;

use super::{store::MAX_ENDED_JOBS, worker::JobWorker, *};
use crate::operate::identity::Local;

fn host() -> Host {
    Host::builder().without_cache().instances(1).build().unwrap()
}

fn id(number: usize) -> String {
    format!("{number:024x}")
}

/// Returns the document of a new job of an operator.
fn new(number: usize, key: Option<&str>, action: &str) -> StoredJob {
    serde_json::from_value(json!({
        "job": {
            "id": id(number), "action": action, "filter": { "since": 0 }, "createdBy": "operator",
            "created": number, "updated": number, "state": "running", "expected": 0, "expectedMore": false,
            "matched": 0, "done": 0, "skipped": {}, "failed": 0, "errors": [], "more": false,
        },
        "creator": "operator", "scopes": [], "key": key,
    }))
    .unwrap()
}

/// Ends a job without an entry in the audit log. Returns the job.
fn end(jobs: &Jobs<'_>, mut stored: StoredJob) -> Job {
    stored.job.state = JobState::Cancelled;
    jobs.store.move_to_ended(jobs.tenant(), &stored).unwrap();
    stored.job
}

#[test]
fn processes_that_get_one_key_at_the_same_time_create_one_job() {
    let host = host();
    let jobs = Jobs::of(&host);
    // Each process has listed the jobs and found none with the key.
    let claimed = [1, 2].map(|number| jobs.store.claim_key(jobs.tenant(), "digest", &id(number)).unwrap());
    assert_eq!(claimed, [id(1), id(1)]);
    let write = |action: &str| jobs.write_new(new(1, Some("digest"), action));
    let first = write("cancel").unwrap();
    assert_eq!(write("cancel").unwrap(), first);
    assert_eq!(write("resume").unwrap_err().code(), "idempotency_conflict");
    assert_eq!(jobs.list().unwrap(), [first]);

    // The job has ended before the other process writes it.
    let ended = end(&jobs, new(1, Some("digest"), "cancel"));
    assert_eq!(write("cancel").unwrap(), ended);
    assert_eq!(write("resume").unwrap_err().code(), "idempotency_conflict");
    assert!(jobs.store.live(jobs.tenant(), &id(1)).unwrap().is_none());

    // A worker finds the document of the other process first.
    assert!(jobs.store.put(jobs.tenant(), &new(1, Some("digest"), "cancel"), 0).unwrap());
    let worker = JobWorker::new(host.clone(), Arc::new(Local));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(worker.execute(jobs.tenant(), &id(1))).unwrap(), ended);
    assert_eq!(jobs.last_entry().unwrap(), 0, "the job has not ended a second time");
    assert_eq!(jobs.list().unwrap(), [ended]);
}

#[test]
fn a_known_key_needs_no_place_among_the_live_jobs() {
    let host = host();
    let jobs = Jobs::of(&host);
    let digest = hex::encode(&Sha256::digest(b"k")[..16]);
    for number in 1..=MAX_LIVE_JOBS {
        jobs.write_new(new(number, (number == 1).then_some(&*digest), "cancel")).unwrap();
    }
    let create =
        |stored: StoredJob| jobs.create_once(Some(b"k"), stored.job.request, &Creator::Operator, Scopes::all());
    assert_eq!(create(new(1, None, "cancel")).unwrap().id, id(1));
    assert_eq!(create(new(1, None, "resume")).unwrap_err().code(), "idempotency_conflict");
    assert_eq!(jobs.list().unwrap().len(), MAX_LIVE_JOBS);
    let other = host.for_tenant("other".into());
    assert!(Jobs::of(&other).list().unwrap().is_empty());
    assert_eq!(Jobs::of(&other).store.claim_key(other.tenant(), &digest, &id(2)).unwrap(), id(2));
}

#[test]
fn a_key_gives_a_new_id_once_its_job_was_removed() {
    let host = host();
    let jobs = Jobs::of(&host);
    let claim = |number: usize| jobs.store.claim_key(jobs.tenant(), "digest", &id(number)).unwrap();
    assert_eq!(claim(1), id(1));
    jobs.write_new(new(1, Some("digest"), "retry")).unwrap();
    for number in 1..=MAX_ENDED_JOBS {
        end(&jobs, new(number, (number == 1).then_some("digest"), "retry"));
    }
    assert_eq!((claim(1_000), jobs.list().unwrap().len()), (id(1), MAX_ENDED_JOBS));
    end(&jobs, new(MAX_ENDED_JOBS + 1, None, "retry"));
    assert_eq!(jobs.show(&id(1)).unwrap_err().code(), "job_not_found");
    assert_eq!(claim(1_000), id(1_000));
    jobs.remove_all().unwrap();
    assert_eq!(claim(2_000), id(2_000), "a removed tenant leaves no key");
}
