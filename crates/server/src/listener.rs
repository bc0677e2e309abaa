//! The socket: accept, one small-buffered HTTP/1 connection each, drain.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::config::Intervals;
use crate::error::Error;

/// A parked poll is little more than its connection, so the buffers of a
/// connection decide what ten thousand of them cost.
const CONNECTION_BUFFER: usize = 8 * 1024;

/// Binds the address, with an error that says what to do about a taken port.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => Error::AddressInUse { address },
        io::ErrorKind::PermissionDenied => Error::AddressDenied { address },
        _ => Error::Listen { address, source },
    })
}

/// Serves `router` until `shutdown` is cancelled, then lets the requests in
/// flight end within the drain time.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    intervals: Intervals,
    open: Arc<AtomicUsize>,
    shutdown: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => connection(stream, router.clone(), &intervals, Counted::new(&open), &graceful),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Out of descriptors: accepting again at once would spin.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    drop(listener);
    let limit = Duration::from_millis(intervals.drain_ms);
    if tokio::time::timeout(limit, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end within the drain time");
    }
}

fn connection(
    stream: TcpStream,
    router: Router,
    intervals: &Intervals,
    counted: Counted,
    graceful: &GracefulShutdown,
) {
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(StallGuard::new(stream, Duration::from_millis(intervals.stall_ms)));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            let started = std::time::Instant::now();
            // The query stays out of the log: it may carry a proof.
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let response: Result<Response<Body>, Infallible> = router.oneshot(request.map(Body::new)).await;
            if let Ok(response) = &response {
                let (status, elapsed) = (response.status().as_u16(), started.elapsed());
                tracing::debug!(%method, path, status, ?elapsed, "answered");
            }
            response
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(intervals.head_ms))
        .max_buf_size(CONNECTION_BUFFER)
        .half_close(false)
        .serve_connection(io, service);
    let watched = graceful.watch(served);
    tokio::spawn(async move {
        let _counted = counted;
        if let Err(error) = watched.await {
            tracing::debug!(%error, "a connection ended early");
        }
    });
}

/// Counts a connection as long as it is open.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is cut when its peer accepts no byte for `limit`. What
/// waits to be written is bounded by the connection's buffer, so a slow
/// reader costs one buffer until it is cut, and it can resume later.
struct StallGuard {
    stream: TcpStream,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl StallGuard {
    fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, limit, stalled: None }
    }

    fn guard<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let limit = self.limit;
        let timer =
            self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer accepted nothing for too long")))
    }
}

impl AsyncRead for StallGuard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for StallGuard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.guard(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.guard(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.guard(context, result)
    }
}
