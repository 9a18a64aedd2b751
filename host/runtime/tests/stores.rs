//! One suite of tests for all stores: memory, SQLite, MariaDB and PostgreSQL store and refuse the same data, and detect
//! the same damage.
//!
//! The database servers are installed programs that these tests start. If one is missing, its tests print their names
//! and are skipped; with `FLOWCELL_TEST_SERVERS=1` they fail.

pub(crate) mod backend;
mod copies;
mod damage;
mod differential;
mod documents;
mod erase;
mod labels;
mod many;
mod parked;
mod removal;
mod search;
#[allow(dead_code, reason = "the tests of the program ask servers for more")]
pub(crate) mod servers;
mod sessions;
mod settings;
mod suite;
pub(crate) mod units;

/// Runs each test of the suite against each store.
macro_rules! everywhere {
    ($($room:ident :: $test:ident)*) => {
        mod memory { $(#[test] fn $test() { super::$room::$test(&super::backend::Backend::Memory); })* }
        mod sqlite { $(#[test] fn $test() { super::$room::$test(&super::backend::Backend::sqlite()); })* }
        mod mysql { $(#[test] fn $test() { super::on_server(flowcell_runtime::sql::Dialect::MySql, super::$room::$test); })* }
        mod postgres { $(#[test] fn $test() { super::on_server(flowcell_runtime::sql::Dialect::Postgres, super::$room::$test); })* }
    };
}

everywhere! {
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
    suite::the_cache_forgets_in_time
    suite::lists_show_the_status_of_runs
    suite::runs_are_listed_by_the_last_change_of_their_status
    suite::active_and_due_runs_are_runnable
    suite::runs_paused_by_a_quota_have_its_code_until_they_go_on
    suite::a_forgotten_run_leaves_a_tombstone
    suite::every_blob_that_a_text_names_stays
    suite::files_are_read_in_parts
    search::a_filter_selects_what_a_naive_one_selects
    search::a_search_ends_after_its_number_of_reads
    search::long_codes_and_messages_are_cut_for_the_search
    parked::parked_runs_are_counted_by_flow_and_reason
    removal::runs_that_are_needed_stay
    removal::a_run_is_removed_or_repeated
    removal::a_run_is_removed_or_claimed
    labels::labels_of_stored_runs_change_and_a_move_keeps_them
    labels::changes_of_labels_at_the_same_time_all_take_effect
    documents::documents_are_listed_in_the_order_of_their_keys
    documents::of_several_writers_that_expect_the_same_version_one_succeeds
    documents::a_writer_reads_its_write_beside_other_readers
    documents::documents_outlive_their_process
    erase::a_removed_tenant_leaves_nothing_and_others_keep_all
    erase::writes_for_a_removed_tenant_are_refused
    erase::a_removal_that_was_cut_off_goes_on_in_another_process
    erase::the_file_has_no_bytes_of_a_removed_tenant
    sessions::rows_are_written_with_their_unit
    sessions::states_go_with_their_sessions
    sessions::rows_are_there_for_the_next_process
    sessions::a_blob_that_a_step_state_names_is_not_swept
    damage::r6_damage_is_noticed_and_harms_no_other_run
    damage::a_journal_that_has_lost_its_end_is_noticed
    damage::damaged_large_values_are_reported
}

fn on_server(dialect: flowcell_runtime::sql::Dialect, test: fn(&backend::Backend)) {
    if let Some(backend) = backend::Backend::server(dialect) {
        test(&backend);
    }
}
