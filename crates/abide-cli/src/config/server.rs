//! `[server]` as values.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::problem::Collector;
use super::reader::Fields;
use super::value::StoreLocation;

/// The server as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where HTTP is served; port 0 for any free one.
    pub listen: SocketAddr,
    /// Where tasks are stored; an absolute path.
    pub store: StoreLocation,
    /// How a created task is wrapped.
    pub envelope: Envelope,
    /// The server's name as clients see it.
    pub name: String,
    /// What a model should know about the server as a whole.
    pub instructions: Option<String>,
    /// Values of `Host` that are accepted besides those of the machine itself.
    pub allowed_hosts: Vec<String>,
    /// Values of `Origin` that are accepted besides those of the machine itself.
    pub allowed_origins: Vec<String>,
    /// Whether clients may leave out the headers that repeat the body.
    pub lenient_headers: bool,
    /// How long a stopping server lets open requests and running work end.
    pub shutdown_grace: Duration,
    /// Bytes of the largest request body that is read.
    pub max_body: usize,
}

/// How a created task is wrapped in the answer to `tools/call`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Envelope {
    /// The task's fields beside `resultType`.
    Flat,
    /// The task's fields in a member `task`.
    Nested,
}

/// Puts the table together; none when a key of it didn't fit, which has been reported.
pub(super) fn assemble(
    fields: &Fields,
    folder: &Path,
    problems: &mut Collector<'_>,
) -> Option<ServerConfig> {
    check_each(fields, "allowed_hosts", is_host, "a host name such as \"example.com\"", problems);
    let origin = "an origin such as \"https://example.com\", without a path";
    check_each(fields, "allowed_origins", is_origin, origin, problems);
    Some(ServerConfig {
        listen: fields.get("listen")?,
        store: fields.get::<StoreLocation>("store")?.within(folder),
        envelope: match fields.get::<String>("envelope")?.as_str() {
            "nested" => Envelope::Nested,
            _ => Envelope::Flat,
        },
        name: fields.get("name")?,
        instructions: fields.get("instructions"),
        allowed_hosts: fields.get("allowed_hosts")?,
        allowed_origins: fields.get("allowed_origins")?,
        lenient_headers: fields.get("lenient_headers")?,
        shutdown_grace: fields.get("shutdown_grace")?,
        max_body: usize::try_from(fields.get::<u64>("max_body")?).ok()?,
    })
}

/// Refuses elements that no request could ever match.
fn check_each(
    fields: &Fields,
    key: &str,
    fits: fn(&str) -> bool,
    expected: &str,
    problems: &mut Collector<'_>,
) {
    let elements: Vec<String> = fields.get(key).unwrap_or_default();
    for element in elements.iter().filter(|element| !fits(element)) {
        let message = format!("`{key}` in {}: {element:?} is not {expected}", fields.path);
        problems.error(fields.at(key), message);
    }
}

fn is_host(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(['/', '*', '@', '?', '#'])
        && !text.contains(char::is_whitespace)
}

fn is_origin(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host))
}
