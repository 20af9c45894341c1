//! The protocol: both lanes, both transports.

pub(crate) mod convert;
pub(crate) mod edge;
pub(crate) mod envelope;
pub(crate) mod handler;
pub(crate) mod headers;
pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod members;
pub(crate) mod opening;
pub(crate) mod reply;
pub(crate) mod stdio;
pub(crate) mod surface;
pub(crate) mod wire;
