//! Which requests are let in at all: `Host` and `Origin` against DNS rebinding
//! (Streamable HTTP, "Security & Endpoint"), media types.

use http::header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};

/// Hosts and origins that are let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowLists {
    /// Host names, with a port (`example.com:8443`) or without one, which then fits any.
    pub hosts: Vec<String>,
    /// Origins (`https://app.example.com`), which fit exactly; one without a port fits any if its
    /// host is a loopback name. Requests without an `Origin` are let in.
    pub origins: Vec<String>,
}

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl AllowLists {
    /// Only this machine.
    #[must_use]
    pub fn loopback() -> Self {
        Self {
            hosts: LOOPBACK.map(str::to_owned).to_vec(),
            origins: LOOPBACK.map(|host| format!("http://{host}")).to_vec(),
        }
    }

    /// Whether the request may come in; if not, why.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
        let host = headers
            .get(HOST)
            .and_then(|value| value.to_str().ok())
            .or_else(|| uri.authority().map(Authority::as_str))
            .and_then(|text| text.parse::<Authority>().ok());
        let Some(host) = host else {
            return Err((
                StatusCode::BAD_REQUEST,
                "The Host header is missing or malformed.".into(),
            ));
        };
        let known = self.hosts.iter().any(|allowed| {
            allowed.parse::<Authority>().is_ok_and(|allowed| {
                allowed.host().eq_ignore_ascii_case(host.host())
                    && (allowed.port_u16().is_none() || allowed.port_u16() == host.port_u16())
            })
        });
        if !known {
            return Err((
                StatusCode::FORBIDDEN,
                "This Host is not served here; the server's allowed_hosts names those that are."
                    .into(),
            ));
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        if origins.all(|origin| origin.to_str().is_ok_and(|origin| self.knows_origin(origin))) {
            Ok(())
        } else {
            Err((
                StatusCode::FORBIDDEN,
                "This Origin is not let in; the server's allowed_origins names those that are."
                    .into(),
            ))
        }
    }

    fn knows_origin(&self, origin: &str) -> bool {
        let Some((scheme, host)) = origin.split_once("://") else { return false };
        let Ok(host) = host.parse::<Authority>() else { return false };
        self.origins.iter().any(|allowed| {
            let Some((allowed_scheme, allowed_host)) = allowed.split_once("://") else {
                return false;
            };
            let Ok(allowed_host) = allowed_host.parse::<Authority>() else { return false };
            allowed_scheme.eq_ignore_ascii_case(scheme)
                && allowed_host.host().eq_ignore_ascii_case(host.host())
                && (allowed_host.port_u16() == host.port_u16()
                    || allowed_host.port_u16().is_none() && LOOPBACK.contains(&allowed_host.host()))
        })
    }
}

/// Holds `Content-Type` and `Accept` to what the transport asks of clients.
pub(crate) fn check_media_types(headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    if !essence.trim().eq_ignore_ascii_case("application/json") {
        return Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "The Content-Type must be application/json.".into(),
        ));
    }
    let accepts = |wanted: &str| {
        headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|range| {
                let mut parts = range.split(';').map(str::trim);
                let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
                named && !parts.any(refuses)
            })
    };
    if !accepts("application/json") || !accepts("text/event-stream") {
        return Err((
            StatusCode::NOT_ACCEPTABLE,
            "The Accept header must name both application/json and text/event-stream.".into(),
        ));
    }
    Ok(())
}

/// Whether a parameter of a media range says that the range is not wanted (RFC 9110, 12.4.2).
fn refuses(parameter: &str) -> bool {
    parameter
        .split_once('=')
        .filter(|(name, _)| name.eq_ignore_ascii_case("q"))
        .and_then(|(_, weight)| weight.parse::<f32>().ok())
        .is_some_and(|weight| weight == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lists: &AllowLists, host: &str, origin: Option<&str>) -> Option<u16> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        lists.check(&Uri::from_static("/mcp"), &headers).err().map(|(status, _)| status.as_u16())
    }

    #[test]
    fn only_loopback_comes_in_by_default() {
        let lists = AllowLists::loopback();
        for (host, origin, refused) in [
            ("127.0.0.1:8720", None, None),
            ("localhost", Some("http://localhost:3000"), None),
            ("[::1]:8720", Some("http://[::1]"), None),
            ("evil.example.com", None, Some(403)),
            ("127.0.0.1.evil.example.com", None, Some(403)),
            ("127.0.0.1:8720", Some("http://evil.example.com"), Some(403)),
            ("127.0.0.1:8720", Some("https://localhost:1"), Some(403)),
            ("127.0.0.1:8720", Some("null"), Some(403)),
            ("a b", None, Some(400)),
        ] {
            assert_eq!(check(&lists, host, origin), refused, "{host} {origin:?}");
        }
    }

    #[test]
    fn named_ports_are_exact() {
        let lists = AllowLists {
            hosts: vec!["abide.example.com:8443".into()],
            origins: vec!["https://app.example.com".into()],
        };
        assert_eq!(check(&lists, "abide.example.com:8443", Some("https://app.example.com")), None);
        assert_eq!(check(&lists, "ABIDE.example.com:8443", None), None);
        assert_eq!(check(&lists, "abide.example.com", None), Some(403));
        let other_port = Some("https://app.example.com:444");
        assert_eq!(check(&lists, "abide.example.com:8443", other_port), Some(403));
    }
}
