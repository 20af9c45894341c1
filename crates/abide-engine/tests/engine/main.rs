//! The engine over a real SQLite file: time, races, faults, and how work is stopped.

mod asking;
mod faults;
mod harness;
mod outside;
mod promotion;
mod restart;
mod stopping;
mod time;
mod two_engines;
