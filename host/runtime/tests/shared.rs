//! Several processes on one shared store: a process is stopped for longer than its lease, loses its connection, does
//! not know whether a commit arrived, or does the same as others at the same time. Ids such as R14 are cases in
//! `tests/README.md`.

mod doubt;
mod inbox;
mod lost;
mod process;
mod proxy;
mod relay;
mod together;
mod zombie;

use std::time::{Duration, Instant};

use flowcell_runtime::sql::Dialect;

use crate::stores::backend::Backend;

/// Runs each test on each server.
macro_rules! on_both {
    ($($room:ident :: $test:ident)*) => {
        mod mysql { $(#[test] fn $test() { super::on(flowcell_runtime::sql::Dialect::MySql, super::$room::$test); })* }
        mod postgres { $(#[test] fn $test() { super::on(flowcell_runtime::sql::Dialect::Postgres, super::$room::$test); })* }
    };
}

on_both! {
    zombie::r14_a_process_that_was_stopped_for_longer_than_its_lease_writes_nothing
    zombie::r34_without_fences_a_stopped_process_is_noticed_to_write
    zombie::a_run_claimed_by_another_process_is_not_written
    zombie::a_refused_driver_reports_the_run_as_running
    zombie::a_run_of_a_process_that_was_killed_on_this_machine_is_taken_over_at_once
    zombie::a_run_of_a_dead_process_is_taken_over
    zombie::a_refused_state_write_stops_the_runs_that_read_it
    doubt::r15_a_commit_with_an_unknown_outcome_is_done_once
    doubt::r15_a_claim_with_an_unknown_outcome_is_not_lost
    doubt::r16_ended_connections_lose_no_data
    doubt::r16_a_write_waits_for_locked_rows
    doubt::r17_a_process_without_connection_stops_before_others_begin
    doubt::r17_callers_behind_a_commit_without_an_end_get_an_error
    together::r18_a_run_that_many_processes_start_starts_once
    together::each_run_is_offered_to_one_process
    together::r25_a_run_that_was_claimed_in_vain_is_offered_again
    together::a_run_begins_below_one_that_another_process_has_written
    together::events_are_read_in_any_process
    inbox::r18_a_message_sent_a_hundred_times_is_applied_once
    inbox::a_run_without_a_driver_accepts_messages
    inbox::many_tenants_receive_messages
    relay::only_postgres_has_a_relay
    lost::t11_a_database_without_the_last_unit_is_an_older_copy
    lost::t11_a_database_without_the_last_run_is_an_older_copy
    lost::a_database_without_removed_runs_is_no_older_copy
    lost::t11_a_process_that_starts_recognises_the_loss_of_its_last_unit
}

fn on(dialect: Dialect, test: fn(&Backend)) {
    if let Some(backend) = Backend::server(dialect) {
        test(&backend);
    }
}

/// Calls `look` until it returns a value, and returns that value. Fails after 60 s; `what` names the value in the
/// error.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::yield_now();
    }
}
