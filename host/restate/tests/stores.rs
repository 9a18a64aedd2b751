//! The suite of all stores, on a Restate cluster.
//!
//! The tests are those of the runtime. Left out are those of parts that the store refuses (sessions, the sweep of blobs,
//! the removal of a tenant), of the files of the store beside it, and of claims that end with the process: the cluster
//! keeps an invocation for its next process.

pub(crate) mod backend;
#[path = "../../runtime/tests/stores/suite.rs"]
#[allow(dead_code, reason = "some tests are for other stores")]
mod suite;
#[path = "../../runtime/tests/stores/units.rs"]
#[allow(dead_code, reason = "not every helper is needed here")]
pub(crate) mod units;

/// Runs each test of the suite on the cluster.
macro_rules! on_the_cluster {
    ($($room:ident :: $test:ident)*) => {
        $(#[test] fn $test() {
            if let Some(backend) = backend::Backend::on_the_cluster() {
                $room::$test(&backend);
            }
        })*
    };
}

on_the_cluster! {
    suite::a_parked_run_goes_on_in_another_process_and_a_finished_one_is_not_repeated
    suite::the_same_id_with_another_input_is_refused
    suite::a_run_has_at_most_one_driver
    suite::units_are_read_from_anywhere
    suite::a_unit_may_change_the_record_of_its_run
    suite::large_values_are_put_back_to_the_byte
    suite::units_that_are_large_together_are_read_one_after_another
    suite::state_has_versions
    suite::keys_are_bytes
    suite::large_state_is_put_back
    suite::lists_show_the_status_of_runs
    suite::runs_are_listed_by_the_last_change_of_their_status
    suite::runs_paused_by_a_quota_have_its_code_until_they_go_on
    suite::a_forgotten_run_leaves_a_tombstone
    suite::files_are_read_in_parts
}
