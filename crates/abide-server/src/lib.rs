//! MCP on the wire.
//!
//! Two lanes lead from the wire to the engine, and both are the same over HTTP and stdio:
//! `tasks/*` goes through the **tasks surface** (`mcp::surface`), which works on raw JSON and
//! stored bytes; everything else goes through **rmcp** (`mcp::handler`). What a request may look
//! like at all is checked before the lanes part (`mcp::envelope`).

pub mod limits;
mod mcp;
mod server;

pub use mcp::edge::AllowLists;
pub use mcp::handler::ToolDefinition;
pub use mcp::http::serve_http;
pub use mcp::stdio::serve_stdio;
pub use mcp::wire::Envelope;
pub use server::{Server, Settings};
