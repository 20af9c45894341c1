//! Random lives of a store, held against a small model of what it promises.
//!
//! Each case is a list of steps. Every step is done by a [`SqliteStore`] on a real file and by the
//! model (`reference`); then everything that can be seen of the store must be as the model says.
//! How a single task changes is [`abide_core::Task::apply`]'s business, which has property tests of
//! its own; here it is about which tasks there are, whose they are, who is next, who holds a claim,
//! what is deleted when, and that a restart, however it comes, changes none of that.
//!
//! `PROPTEST_CASES=1000 cargo test -p abide-store --test model` looks longer than CI does.
//!
//! [`SqliteStore`]: abide_store::sqlite::SqliteStore

mod real;
mod reference;
mod steps;

use std::env;

use proptest::test_runner::Config;
use proptest_state_machine::prop_state_machine;
use real::Real;

/// Cases when nobody asks for more: about ten seconds on a loaded machine.
const CASES: u32 = 48;

fn config() -> Config {
    let usual = Config::default();
    let cases = if env::var_os("PROPTEST_CASES").is_some() { usual.cases } else { CASES };
    Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 4_000,
        max_shrink_time: 60_000,
        ..usual
    }
}

prop_state_machine! {
    #![proptest_config(config())]

    #[test]
    fn the_store_does_what_the_model_does(sequential 5..60 => Real);
}
