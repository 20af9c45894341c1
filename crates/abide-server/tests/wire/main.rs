//! Holds the server to the wire: real HTTP, real stdio, real SQLite, and the bytes.

mod blocking;
mod bodies;
mod capabilities;
mod common;
mod edge;
mod fidelity;
mod headers;
mod lifecycle;
mod older;
mod parity;
mod queue;
mod refusals;
mod rounds;
mod sessions;
mod shapes;
