//! The program `abide`: the config file, the commands, and the wiring of all the rooms.
//!
//! [`cli`] is the command line, [`commands`] has one file for each command, [`config`] turns a
//! TOML file into checked values, [`env`] lists the environment variables. What a command prints
//! goes through [`terminal`]: data to standard output, talk to standard error.

pub mod cli;
pub mod commands;
pub mod config;
pub mod env;
pub mod failure;
pub mod logging;
pub mod terminal;
mod wiring;
