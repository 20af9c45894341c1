//! Streamable HTTP on one endpoint: checks every request, then sends it down its lane.

use std::convert::Infallible;
use std::sync::Arc;

use abide_core::Health;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::serve::ListenerExt;
use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::limits;
use crate::mcp::edge;
use crate::mcp::envelope;
use crate::mcp::handler::{Caller, Handler};
use crate::mcp::headers;
use crate::mcp::reply::Fault;
use crate::mcp::surface::{Answered, Surface, Via};
use crate::mcp::wire::Envelope;
use crate::server::Server;

/// The path of the MCP endpoint.
pub(crate) const PATH: &str = "/mcp";
/// The path under which the server says how it is.
const HEALTH_PATH: &str = "/health";

type Rmcp = StreamableHttpService<Handler, LocalSessionManager>;

#[derive(Clone)]
struct Endpoint {
    server: Server,
    rmcp: Arc<Rmcp>,
}

/// Serves until `stop` is cancelled, then gives answers under way
/// [`Settings::shutdown_grace`](crate::Settings::shutdown_grace) and ends all connections.
///
/// # Errors
/// What the listener says when it can no longer accept connections.
pub async fn serve_http(
    server: Server,
    listener: TcpListener,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let streams = CancellationToken::new();
    let grace = server.settings.shutdown_grace;
    let engine = server.engine().clone();
    let app = router(server, streams.clone());
    // Answers are small and wanted at once.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was not set");
        }
    });
    let draining = stop.clone();
    let serving = axum::serve(listener, app)
        .with_graceful_shutdown(async move { draining.cancelled().await });
    let mut serving = std::pin::pin!(serving.into_future());
    tokio::select! {
        ended = &mut serving => return ended,
        () = stop.cancelled() => {}
    }
    // Answers under way may still go out, those of work that the engine stops too; streams that
    // never end by themselves are ended.
    let enough = async {
        tokio::time::sleep(grace).await;
        engine.drained().await;
    };
    tokio::select! {
        biased;
        ended = &mut serving => return ended,
        () = enough => {}
    }
    // What the engine has just answered is on its way.
    if let Ok(ended) = tokio::time::timeout(limits::LINGER, &mut serving).await {
        return ended;
    }
    streams.cancel();
    tokio::time::timeout(limits::LINGER, serving).await.unwrap_or(Ok(()))
}

fn router(server: Server, streams: CancellationToken) -> Router {
    let mut config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_cancellation_token(streams)
        .with_max_request_body_bytes(server.settings.max_body_bytes)
        // Host and Origin were checked before the lanes part.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    config.session_store = None;
    let handler = server.handler.clone();
    let rmcp =
        StreamableHttpService::new(move || Ok(handler.clone()), Arc::new(sessions()), config);
    Router::new()
        .route(PATH, any(endpoint))
        .route(HEALTH_PATH, get(health))
        .with_state(Endpoint { server, rmcp: Arc::new(rmcp) })
}

/// Whether writes reach the disk, for whoever watches over the server; by whatever name they reach
/// it, since there is nothing to be had here.
async fn health(State(endpoint): State<Endpoint>) -> Response {
    let (status, body) = match endpoint.server.engine().health() {
        Health::Ok => (StatusCode::OK, json!({ "status": "ok" })),
        Health::Failing { problem } => {
            (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "failing", "problem": problem }))
        }
    };
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, body.to_string()).into_response()
}

/// Sessions of older clients. A call under way does not count as activity there, so they live for
/// longer than calls take.
fn sessions() -> LocalSessionManager {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(limits::SESSION_IDLE);
    sessions
}

async fn endpoint(State(endpoint): State<Endpoint>, request: Request<Body>) -> Response {
    match endpoint.handle(request).await {
        Ok(response) => response,
        Err(refused) => refused,
    }
}

impl Endpoint {
    async fn handle(&self, request: Request<Body>) -> Result<Response, Response> {
        let settings = &self.server.settings;
        let (mut parts, body) = request.into_parts();
        settings.allow.check(&parts.uri, &parts.headers).map_err(IntoResponse::into_response)?;
        parts.extensions.insert(Caller(self.server.caller()));
        if parts.method != Method::POST {
            // Streams and ends of older clients' sessions.
            return Ok(into_axum(self.rmcp.handle(Request::from_parts(parts, body)).await));
        }
        edge::check_media_types(&parts.headers).map_err(IntoResponse::into_response)?;
        let body = read_body(body, settings.max_body_bytes).await?;
        let message = envelope::read(&body)
            .map_err(|(fault, id)| refused(&fault, id.as_deref().unwrap_or("null")))?;
        headers::check_singles(&parts.headers)
            .map_err(|fault| refused(&fault, message.id.unwrap_or("null")))?;
        if settings.lenient_headers {
            headers::fill_in(&mut parts.headers, &message);
        }

        let method = message.method.as_deref();
        if message.id.is_some() && method.is_some_and(Surface::takes) {
            let owner = self.server.caller();
            let Answered { status, message } =
                self.server.surface.answer(&message, &owner, Via::Http(&parts.headers)).await;
            return Ok(json(status, settings.envelope.wrap(message)));
        }
        envelope::typed(&body).map_err(|fault| refused(&fault, message.id.unwrap_or("null")))?;
        let is_call = method == Some("tools/call");
        let request = Request::from_parts(parts, Full::new(body.clone()));
        let response = into_axum(self.rmcp.handle(request).await);
        if is_call && settings.envelope != Envelope::Flat {
            return Ok(rewrap(settings.envelope, response).await);
        }
        Ok(response)
    }
}

/// Reads a bounded body in bounded time.
async fn read_body(body: Body, max: usize) -> Result<Bytes, Response> {
    match tokio::time::timeout(limits::BODY_TIMEOUT, collect(body, max)).await {
        Ok(Ok(Some(body))) => Ok(body),
        Ok(Ok(None)) => Err(refused(&Fault::too_large(max), "null")),
        Ok(Err(_)) => {
            Err((StatusCode::BAD_REQUEST, "The request's body broke off.").into_response())
        }
        Err(_) => {
            Err((StatusCode::REQUEST_TIMEOUT, "The request's body took too long.").into_response())
        }
    }
}

/// Collects the body; none if it has more than `max` bytes. What is too much is read all the same
/// and thrown away, within bounds: a client that is still writing would find its connection broken
/// instead of the answer.
async fn collect(mut body: Body, max: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut kept = BytesMut::new();
    let mut total = 0usize;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        total = total.saturating_add(data.len());
        if total <= max {
            kept.extend_from_slice(&data);
        } else if total - max > limits::MAX_DISCARDED_BYTES {
            break;
        } else {
            kept = BytesMut::new();
        }
    }
    Ok((total <= max).then(|| kept.freeze()))
}

/// Wraps the task in an answer of rmcp's. A handle always comes as one JSON body: a call that
/// becomes a task sends no notifications before it.
async fn rewrap(envelope: Envelope, response: Response) -> Response {
    let is_json = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if !is_json {
        return response;
    }
    let status = response.status();
    match response.into_body().collect().await {
        Ok(body) => {
            let message = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            json(status, envelope.wrap(message))
        }
        Err(error) => {
            tracing::error!(%error, "an answer broke off");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn refused(fault: &Fault, id: &str) -> Response {
    json(fault.status, fault.to_json(id))
}

fn json(status: StatusCode, body: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

fn into_axum<B>(response: http::Response<B>) -> Response
where
    B: http_body_util::BodyExt<Data = Bytes, Error = Infallible> + Send + 'static,
{
    response.map(Body::new)
}
