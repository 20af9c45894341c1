//! The real program from end to end: started as a process, asked over real HTTP and real pipes,
//! stopped, killed, and put before everything that can be wrong.
#![cfg(target_os = "linux")]

mod approving;
mod arguments;
mod asking;
mod common;
mod connect;
mod database;
mod demo;
mod envelopes;
mod examples;
mod full_disk;
mod idle;
mod kill;
mod logs;
mod output;
mod programs;
mod reattach;
mod requests;
mod stdio;
mod stopping;
