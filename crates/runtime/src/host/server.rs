use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection::serve;
use super::{Capabilities, HostSocket};

/// Accepts the connections of a run.
pub(crate) struct HostServer {
    open: Arc<watch::Sender<usize>>,
}

impl HostServer {
    pub(crate) fn new() -> Self {
        Self { open: Arc::new(watch::Sender::new(0)) }
    }

    /// Serves until dropped. What a connection still does ends with it.
    pub(crate) async fn run(&self, socket: &HostSocket, capabilities: Arc<Capabilities>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = socket.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let Some(peer) = peer_of(&stream) else { continue };
                        let capabilities = Arc::clone(&capabilities);
                        let open = Open::new(Arc::clone(&self.open));
                        connections.spawn(async move {
                            serve(stream, peer, capabilities).await;
                            drop(open);
                        });
                    }
                    Err(error) => {
                        // Out of descriptors, most likely: others will be closed.
                        tracing::warn!(%error, "a connection to the host socket was not accepted");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Waits until everything that was sent before the connections were closed is handled.
    pub(crate) async fn drained(&self, within: Duration) {
        let mut open = self.open.subscribe();
        let _ = tokio::time::timeout(within, open.wait_for(|open| *open == 0)).await;
    }
}

/// The number of the process on the other side, if it belongs to this user.
fn peer_of(stream: &UnixStream) -> Option<i32> {
    let credentials = stream.peer_cred().ok()?;
    let own = nix::unistd::getuid().as_raw();
    if credentials.uid() != own && credentials.uid() != 0 {
        tracing::warn!(user = credentials.uid(), "another user's process connected to the host socket");
        return None;
    }
    Some(credentials.pid().unwrap_or(0))
}

struct Open(Arc<watch::Sender<usize>>);

impl Open {
    fn new(count: Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|open| *open += 1);
        Self(count)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl Capabilities {
    /// From now on the program is gone; what other processes still ask for is refused.
    pub(crate) fn close(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }
}
