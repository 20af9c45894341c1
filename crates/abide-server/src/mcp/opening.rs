//! How a session over stdio opens, as rmcp sees it.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetMeta, ProtocolVersion};

/// Where the opening of a session stands.
///
/// rmcp gives a session up for good when a notification or a response comes before the session is
/// open. Such messages mean nothing at that point, so they are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Opening {
    /// Nothing came that opens a session.
    #[default]
    Closed,
    /// Opened by `initialize`, by a client of an older revision.
    Older,
    /// Opened by a request that says for itself which revision it speaks.
    Current,
}

impl Opening {
    /// Whether a message may go to rmcp; takes note of one that opens the session.
    pub(crate) fn lets_pass(&mut self, message: &ClientJsonRpcMessage) -> bool {
        if *self != Self::Closed {
            return true;
        }
        let ClientJsonRpcMessage::Request(request) = message else { return false };
        match &request.request {
            ClientRequest::InitializeRequest(_) => *self = Self::Older,
            ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => {}
            other => {
                let meta = other.get_meta();
                let complete =
                    meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
                let known = meta
                    .protocol_version()
                    .is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version));
                if complete && known {
                    *self = Self::Current;
                }
            }
        }
        true
    }
}
