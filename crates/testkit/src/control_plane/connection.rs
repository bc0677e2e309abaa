//! Connections: reading requests, faults, records, and answers that never come.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use trestle_contract::inference::InferenceFrame;
use trestle_contract::{ErrorBody, ErrorCode, ErrorEnvelope};

use super::faults::Fault;
use super::plane::Inner;
use super::routes;
use super::state::Exchange;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A request, read to its end.
pub(super) struct Call {
    pub(super) method: String,
    /// Segments of the path, decoded one by one.
    pub(super) segments: Vec<String>,
    pub(super) path: String,
    pub(super) bearer: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Bytes,
}

impl Call {
    /// Seconds that the caller allows to hold the request.
    pub(super) fn wait_seconds(&self) -> Option<u64> {
        self.headers.get("x-trestle-wait")?.parse().ok()
    }
}

/// How the frames of a stream end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Closed,
    Stalled,
    Cut,
}

/// What a call is answered with.
pub(super) enum Answer {
    Whole { status: u16, headers: Vec<(&'static str, String)>, body: Bytes },
    Stream { frames: Vec<InferenceFrame>, ending: Ending },
}

impl Answer {
    pub(super) fn empty(status: u16) -> Self {
        Self::Whole { status, headers: Vec::new(), body: Bytes::new() }
    }

    pub(super) fn json<T: Serialize>(status: u16, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::Whole {
                status,
                headers: vec![("content-type", "application/json".to_owned())],
                body: body.into(),
            },
            Err(error) => Self::failure(ErrorCode::InternalError, &error.to_string()),
        }
    }

    pub(super) fn failure(code: ErrorCode, message: &str) -> Self {
        Self::failure_with(code.status(), code, message)
    }

    pub(super) fn failure_with(status: u16, code: ErrorCode, message: &str) -> Self {
        Self::json(status, &ErrorEnvelope::from(ErrorBody::new(code, message)))
    }

    pub(super) fn with_header(mut self, name: &'static str, value: String) -> Self {
        if let Self::Whole { headers, .. } = &mut self {
            headers.push((name, value));
        }
        self
    }

    fn edited(self, edit: fn(&mut serde_json::Value)) -> Self {
        match self {
            Self::Whole { status, headers, body } => {
                let mut value = serde_json::from_slice(&body).unwrap_or_default();
                edit(&mut value);
                Self::Whole { status, headers, body: Bytes::from(value.to_string()) }
            }
            stream @ Self::Stream { .. } => stream,
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::Whole { status, .. } => *status,
            Self::Stream { .. } => 200,
        }
    }

    fn into_response(self) -> Response<Body> {
        let (status, headers, body) = match self {
            Self::Whole { status, headers, body } => {
                (status, headers, Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync())
            }
            Self::Stream { frames, ending } => {
                (200, vec![("content-type", "application/x-ndjson".to_owned())], stream_body(frames, ending))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in headers {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

fn stream_body(frames: Vec<InferenceFrame>, ending: Ending) -> Body {
    let lines = stream::iter(frames).map(|frame| Ok(Frame::data(Bytes::from(frame.to_line()))));
    match ending {
        Ending::Closed => StreamBody::new(lines).boxed_unsync(),
        Ending::Stalled => StreamBody::new(lines.chain(stream::pending())).boxed_unsync(),
        Ending::Cut => {
            let cut = stream::once(async {
                // What was written before goes out before the connection breaks.
                tokio::task::yield_now().await;
                Err(io::Error::from(io::ErrorKind::ConnectionReset))
            });
            StreamBody::new(lines.chain(cut)).boxed_unsync()
        }
    }
}

pub(super) async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    loop {
        let stream = tokio::select! {
            () = inner.end.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
        };
        tokio::spawn(serve(stream, Arc::clone(&inner)));
    }
}

async fn serve(stream: TcpStream, inner: Arc<Inner>) {
    // A socket that refuses the option only makes the test slower.
    let _ = stream.set_nodelay(true);
    let end = inner.end.clone();
    let service = service_fn(move |request| handle(request, Arc::clone(&inner)));
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = end.cancelled() => {}
        // An error is a client that left, or a connection that was cut on purpose.
        _ = connection => {}
    }
}

/// An error makes the server drop the connection without an answer.
async fn handle(request: Request<Incoming>, inner: Arc<Inner>) -> Result<Response<Body>, io::Error> {
    let call = read(request).await?;
    let fault = inner.state().rules.iter_mut().find(|rule| rule.fits(&call.method, &call.path)).map(|rule| {
        rule.left -= 1;
        rule.fault.clone()
    });
    let answer = match &fault {
        Some(Fault::Refuse(status)) => {
            Some(Answer::failure_with(*status, ErrorCode::Unavailable, "refused by the test"))
        }
        Some(Fault::RefuseFor(status, seconds)) => {
            let answer = Answer::failure_with(*status, ErrorCode::Unavailable, "refused by the test");
            Some(answer.with_header("retry-after", seconds.to_string()))
        }
        Some(Fault::Say(status, body)) => Some(Answer::Whole {
            status: *status,
            headers: vec![("content-type", "application/json".to_owned())],
            body: Bytes::from_static(body.as_bytes()),
        }),
        Some(Fault::CutBefore) => None,
        Some(Fault::Hold(hold)) => {
            hold.passed().await;
            Some(routes::answer(&inner, &call).await)
        }
        Some(Fault::LoseAnswer | Fault::Garble(_) | Fault::Edit(_)) | None => {
            Some(routes::answer(&inner, &call).await)
        }
    };
    let answer = match (answer, fault) {
        (Some(_), Some(Fault::LoseAnswer)) => None,
        (Some(answer), Some(Fault::Garble(body))) => {
            Some(Answer::Whole { status: answer.status(), headers: Vec::new(), body })
        }
        (Some(answer), Some(Fault::Edit(edit))) => Some(answer.edited(edit)),
        (answer, _) => answer,
    };
    let status = answer.as_ref().map(Answer::status);
    inner.change(|state| {
        state.exchanges.push(Exchange {
            method: call.method,
            path: call.path,
            bearer: call.bearer,
            headers: call.headers,
            body: call.body,
            status,
        });
    });
    answer.map(Answer::into_response).ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset))
}

async fn read(request: Request<Incoming>) -> Result<Call, io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let headers: BTreeMap<String, String> = parts
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap_or_default().to_owned()))
        .collect();
    let bearer =
        headers.get("authorization").and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    let segments: Vec<String> = parts
        .uri
        .path()
        .trim_start_matches('/')
        .split('/')
        .map(|segment| percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    Ok(Call {
        method: parts.method.as_str().to_owned(),
        path: format!("/{}", segments.join("/")),
        segments,
        bearer,
        headers,
        body,
    })
}
