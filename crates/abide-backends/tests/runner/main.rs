//! Runs under runners, with real processes. The program is its own runner and its own server to
//! be killed, so that every test needs nothing but itself.

mod alone;
mod faults;
mod formats;
mod harness;
mod life;
mod lost;
mod many;
mod output;
mod restart;
mod secrets;
mod server;
mod stopping;

/// Tests that are async functions, by their names.
macro_rules! trials {
    ($($module:ident::$test:ident),* $(,)?) => {
        vec![$(libtest_mimic::Trial::test(
            concat!(stringify!($module), "::", stringify!($test)),
            || {
                harness::runtime().block_on($module::$test());
                Ok(())
            },
        )),*]
    };
}

fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(role) if role == harness::RUNNER => return abide_backends::runner::main(args),
        Some(role) if role == server::ROLE => return server::main(args),
        _ => {}
    }
    let trials = trials![
        life::a_job_runs_to_its_end,
        life::how_a_job_ends_is_told,
        life::a_job_that_cannot_be_started_says_why,
        life::a_run_is_started_once,
        life::a_run_is_removed_only_when_it_is_over,
        life::a_runner_is_alone,
        life::a_runner_keeps_nothing_open_that_its_server_inherited,
        output::output_is_complete_and_in_order,
        output::long_output_keeps_its_beginning_and_its_end,
        output::a_gigabyte_costs_little,
        output::the_log_has_both_streams_and_ends_in_words,
        output::output_can_be_read_while_the_job_runs,
        output::what_a_child_still_writes_is_kept,
        secrets::values_of_the_environment_reach_no_disk,
        stopping::sigterm_reaches_the_whole_tree,
        stopping::a_detached_process_is_stopped_with_the_tree,
        stopping::what_a_job_leaves_behind_is_stopped,
        stopping::who_ignores_sigterm_is_killed_after_the_grace,
        stopping::sigterm_leaves_time_to_clean_up,
        stopping::a_job_that_exits_first_was_not_stopped,
        restart::a_run_goes_on_when_its_server_is_killed,
        restart::a_run_that_ended_meanwhile_is_found,
        restart::a_run_is_stopped_by_the_next_server,
        restart::a_server_killed_while_it_starts_a_run_leaves_nothing_unknown,
        lost::what_a_killed_runner_leaves_is_stopped,
        lost::a_runner_that_dies_with_its_word_has_started_the_job,
        lost::a_reboot_is_told_apart,
        lost::a_run_that_never_started_says_so,
        lost::a_runner_out_of_sight_is_waited_for_but_not_stopped,
        faults::a_full_disk_loses_output_but_not_the_outcome,
        faults::a_limit_on_files_loses_output_but_not_the_outcome,
        faults::the_outcome_is_written_as_soon_as_it_can_be,
        faults::a_runner_whose_folder_is_removed_goes_away,
        formats::runs_of_other_versions_are_read,
        formats::what_is_written_is_what_the_fixture_has,
        many::two_hundred_runs_cost_nothing_while_they_sleep,
    ];
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit_code()
}
