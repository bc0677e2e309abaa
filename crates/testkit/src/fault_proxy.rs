//! A TCP proxy that does to a connection what networks do: delay, cut, lose one direction, lose an answer, drop bytes.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A direction through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What the network does at present, to open and to new connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Weather {
    /// Nothing.
    #[default]
    Fair,
    /// Every piece arrives later by so much, each way.
    Slow(Duration),
    /// Open connections are reset, new ones are reset at once.
    Cut,
    /// What goes in this direction vanishes; connections stay open and new ones are accepted.
    Deaf(Direction),
}

/// A trap that springs once per count, on the next connection that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trap {
    /// The first answer to a request whose bytes hold the needle is lost: the server has executed the request when
    /// the client's connection is reset.
    LoseAnswer { needle: Vec<u8> },
    /// After so many bytes of a direction, so many are left out.
    DropBytes { direction: Direction, after: u64, count: u64 },
    /// After so many bytes of a direction the connection is reset.
    ResetAfter { direction: Direction, after: u64 },
}

/// As much of a piece as may hold the head of a request.
const HEAD: usize = 4 * 1024;

/// Pieces that follow each other within this time belong together, and are late together.
const SAME_PIECE: Duration = Duration::from_millis(5);

/// What went through the proxy so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that the proxy reset.
    pub resets: u64,
    /// Answers that were lost after the server had begun them.
    pub lost_answers: u64,
    /// Bytes given to the server.
    pub bytes_to_server: u64,
    /// Bytes given to clients.
    pub bytes_to_client: u64,
    /// Bytes that vanished.
    pub dropped: u64,
}

struct Shared {
    weather: watch::Sender<Weather>,
    traps: Mutex<VecDeque<Trap>>,
    traffic: watch::Sender<Traffic>,
}

impl Shared {
    fn traps(&self) -> MutexGuard<'_, VecDeque<Trap>> {
        self.traps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Traffic)) {
        self.traffic.send_modify(change);
    }
}

/// A proxy on a port of its own, in front of one server. It ends, with all its connections, when it is dropped.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    end: CancellationToken,
}

impl FaultProxy {
    /// Listens on the loopback interface and passes everything on to the server.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            weather: watch::Sender::new(Weather::Fair),
            traps: Mutex::new(VecDeque::new()),
            traffic: watch::Sender::new(Traffic::default()),
        });
        let end = CancellationToken::new();
        tokio::spawn(accept(listener, server, Arc::clone(&shared), end.clone()));
        Ok(Self { address, shared, end })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bad weather for a time, fair weather after it.
    pub async fn spoil(&self, weather: Weather, length: Duration) {
        self.set_weather(weather);
        tokio::time::sleep(length).await;
        self.set_weather(Weather::Fair);
    }

    /// Changes the weather, for open and for new connections.
    pub fn set_weather(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// The next so many answers to requests that hold this text are lost after the server has begun them.
    pub fn lose_answers(&self, needle: &str, count: usize) {
        let trap = Trap::LoseAnswer { needle: needle.as_bytes().to_vec() };
        self.shared.traps().extend(std::iter::repeat_n(trap, count));
    }

    /// On one of the next connections, after so many bytes of a direction, so many are left out.
    pub fn drop_bytes(&self, direction: Direction, after: u64, count: u64) {
        self.shared.traps().push_back(Trap::DropBytes { direction, after, count });
    }

    /// One of the next connections is reset after so many bytes of a direction.
    pub fn reset_after(&self, direction: Direction, after: u64) {
        self.shared.traps().push_back(Trap::ResetAfter { direction, after });
    }

    /// How many traps have not sprung yet.
    pub fn waiting_traps(&self) -> usize {
        self.shared.traps().len()
    }

    /// What went through so far.
    pub fn traffic(&self) -> Traffic {
        *self.shared.traffic.borrow()
    }

    /// Waits until what went through fits.
    pub async fn wait_for(&self, condition: impl FnMut(&Traffic) -> bool) {
        // The sender lives as long as this proxy, so the channel cannot close.
        let _ = self.shared.traffic.subscribe().wait_for(condition).await;
    }
}

impl std::fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>, end: CancellationToken) {
    loop {
        let client = tokio::select! {
            () = end.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => client,
                Err(_) => continue,
            },
        };
        shared.count(|traffic| traffic.connections += 1);
        tokio::spawn(connection(client, server, Arc::clone(&shared), end.clone()));
    }
}

/// How one direction of a connection ended.
enum End {
    /// Its sender closed it.
    Closed,
    /// The whole connection is to be reset.
    Reset,
}

async fn connection(mut client: TcpStream, server: SocketAddr, shared: Arc<Shared>, end: CancellationToken) {
    let mut weather = shared.weather.subscribe();
    let cut_off = *weather.borrow_and_update() == Weather::Cut;
    let upstream = if cut_off { None } else { TcpStream::connect(server).await.ok() };
    let Some(mut upstream) = upstream else {
        reset(&shared, &client);
        return;
    };
    for stream in [&client, &upstream] {
        // A socket that refuses the option only makes the test slower.
        let _ = stream.set_nodelay(true);
    }
    let doomed = AtomicBool::new(false);
    let broken = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = upstream.split();
        let to_server = pump(Direction::ToServer, client_read, server_write, &shared, &doomed);
        let to_client = pump(Direction::ToClient, server_read, client_write, &shared, &doomed);
        let both = async {
            let (mut to_server, mut to_client) = (pin!(to_server), pin!(to_client));
            tokio::select! {
                end = &mut to_server => match end {
                    End::Closed => to_client.await,
                    End::Reset => End::Reset,
                },
                end = &mut to_client => match end {
                    End::Closed => to_server.await,
                    End::Reset => End::Reset,
                },
            }
        };
        let cut = async {
            // An error means that the proxy is gone, and `end` tells that.
            let _ = weather.wait_for(|weather| *weather == Weather::Cut).await;
        };
        tokio::select! {
            () = end.cancelled() => true,
            () = cut => true,
            end = both => matches!(end, End::Reset),
        }
    };
    if broken {
        reset(&shared, &client);
        let _ = upstream.set_zero_linger();
    }
}

/// Makes the drop of the socket a reset.
fn reset(shared: &Shared, client: &TcpStream) {
    let _ = client.set_zero_linger();
    shared.count(|traffic| traffic.resets += 1);
}

async fn pump(
    direction: Direction,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    shared: &Shared,
    doomed: &AtomicBool,
) -> End {
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut seen = Vec::new();
    let mut passed = 0_u64;
    let mut to_drop = 0_u64;
    let mut passed_at = None;
    loop {
        let size = match from.read(&mut buffer).await {
            Ok(0) => {
                let _ = to.shutdown().await;
                return End::Closed;
            }
            Ok(size) => size,
            Err(_) => return End::Reset,
        };
        let weather = shared.weather.borrow().clone();
        match weather {
            Weather::Slow(by) => {
                // What came while the piece before was held back has waited as long.
                let belongs = passed_at.is_some_and(|at: Instant| at.elapsed() < SAME_PIECE);
                if !belongs {
                    tokio::time::sleep(by).await;
                }
                passed_at = Some(Instant::now());
            }
            Weather::Deaf(deaf) if deaf == direction => {
                shared.count(|traffic| traffic.dropped += size as u64);
                continue;
            }
            Weather::Fair | Weather::Cut | Weather::Deaf(_) => {}
        }
        let chunk = &buffer[..size];
        match direction {
            Direction::ToServer => look_for_needles(chunk, &mut seen, shared, doomed),
            Direction::ToClient if doomed.load(Ordering::SeqCst) => {
                shared.count(|traffic| traffic.lost_answers += 1);
                return End::Reset;
            }
            Direction::ToClient => {}
        }
        let Pieces { pass, reset, dropped } = cut_pieces(direction, chunk, passed, &mut to_drop, shared);
        passed += size as u64;
        if to.write_all(&pass).await.is_err() {
            return End::Reset;
        }
        shared.count(|traffic| {
            traffic.dropped += dropped;
            match direction {
                Direction::ToServer => traffic.bytes_to_server += pass.len() as u64,
                Direction::ToClient => traffic.bytes_to_client += pass.len() as u64,
            }
        });
        if reset {
            let _ = to.flush().await;
            return End::Reset;
        }
    }
}

/// Dooms the connection when a needle lies in what it sent, also across pieces.
fn look_for_needles(chunk: &[u8], seen: &mut Vec<u8>, shared: &Shared, doomed: &AtomicBool) {
    // A request begins at the start of a piece; the bytes of a large body need not be looked through.
    seen.extend_from_slice(&chunk[..chunk.len().min(HEAD)]);
    let mut traps = shared.traps();
    let sprung = traps.iter().position(|trap| match trap {
        Trap::LoseAnswer { needle } => contains(seen, needle),
        Trap::DropBytes { .. } | Trap::ResetAfter { .. } => false,
    });
    if let Some(index) = sprung {
        traps.remove(index);
        seen.clear();
        doomed.store(true, Ordering::SeqCst);
    }
    // The start of a needle may still be at the end; nothing longer than this needs to be kept.
    let keep = 4 * 1024;
    if seen.len() > keep {
        seen.drain(..seen.len() - keep);
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty() && haystack.windows(needle.len()).any(|window| window == needle)
}

/// What becomes of one piece.
struct Pieces {
    pass: Vec<u8>,
    reset: bool,
    dropped: u64,
}

fn cut_pieces(direction: Direction, chunk: &[u8], passed: u64, to_drop: &mut u64, shared: &Shared) -> Pieces {
    let mut traps = shared.traps();
    let of_bytes = |trap: &Trap| !matches!(trap, Trap::LoseAnswer { .. });
    if *to_drop == 0 && !traps.iter().any(of_bytes) {
        return Pieces { pass: chunk.to_vec(), reset: false, dropped: 0 };
    }
    let mut pieces = Pieces { pass: Vec::with_capacity(chunk.len()), reset: false, dropped: 0 };
    for (offset, byte) in chunk.iter().enumerate() {
        match take_trap_at(direction, passed + offset as u64, &mut traps) {
            Some(Trap::ResetAfter { .. }) => {
                pieces.reset = true;
                return pieces;
            }
            Some(Trap::DropBytes { count, .. }) => *to_drop += count,
            Some(Trap::LoseAnswer { .. }) | None => {}
        }
        if *to_drop > 0 {
            *to_drop -= 1;
            pieces.dropped += 1;
        } else {
            pieces.pass.push(*byte);
        }
    }
    pieces
}

fn take_trap_at(direction: Direction, position: u64, traps: &mut VecDeque<Trap>) -> Option<Trap> {
    let index = traps.iter().position(|trap| match trap {
        Trap::DropBytes { direction: of, after, .. } | Trap::ResetAfter { direction: of, after } => {
            *of == direction && *after == position
        }
        Trap::LoseAnswer { .. } => false,
    })?;
    traps.remove(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::within;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A server that counts the requests it has read and answers each line with itself.
    struct Echo {
        address: SocketAddr,
        executed: watch::Receiver<u64>,
    }

    async fn echo() -> Echo {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (count, executed) = watch::channel(0);
        let count = Arc::new(count);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    let mut line = Vec::new();
                    while let Ok(byte) = stream.read_u8().await {
                        line.push(byte);
                        if byte == b'\n' {
                            count.send_modify(|count| *count += 1);
                            if stream.write_all(&line).await.is_err() {
                                return;
                            }
                            line.clear();
                        }
                    }
                });
            }
        });
        Echo { address, executed }
    }

    async fn ask(stream: &mut TcpStream, line: &str) -> io::Result<String> {
        stream.write_all(line.as_bytes()).await?;
        let mut answer = Vec::new();
        loop {
            let byte = stream.read_u8().await?;
            answer.push(byte);
            if byte == b'\n' {
                return Ok(String::from_utf8(answer).unwrap());
            }
        }
    }

    async fn client(proxy: &FaultProxy) -> TcpStream {
        TcpStream::connect(proxy.address()).await.unwrap()
    }

    #[tokio::test]
    async fn fair_weather_changes_nothing() {
        let server = echo().await;
        let proxy = FaultProxy::start(server.address).await.unwrap();
        let mut stream = client(&proxy).await;
        for line in ["a\n", "b\n"] {
            assert_eq!(ask(&mut stream, line).await.unwrap(), line);
        }
        drop(stream);
        proxy.wait_for(|traffic| traffic.bytes_to_client == 4).await;
        assert_eq!(
            proxy.traffic(),
            Traffic { connections: 1, bytes_to_server: 4, bytes_to_client: 4, ..Traffic::default() }
        );
        assert!(proxy.url().starts_with("http://127.0.0.1:"));
    }

    #[tokio::test]
    async fn slow_weather_delays_each_way() {
        let server = echo().await;
        let proxy = FaultProxy::start(server.address).await.unwrap();
        proxy.set_weather(Weather::Slow(Duration::from_millis(40)));
        let mut stream = client(&proxy).await;
        let start = std::time::Instant::now();
        ask(&mut stream, "a\n").await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_cut_resets_open_and_new_connections_until_it_is_over() {
        let server = echo().await;
        let proxy = FaultProxy::start(server.address).await.unwrap();
        let mut stream = client(&proxy).await;
        ask(&mut stream, "a\n").await.unwrap();
        proxy.set_weather(Weather::Cut);
        let error = within(LIMIT, "a reset", stream.read_u8()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        // The handshake is the kernel's; what follows is refused.
        if let Ok(mut stream) = TcpStream::connect(proxy.address()).await {
            assert!(within(LIMIT, "a refusal", ask(&mut stream, "b\n")).await.unwrap().is_err());
        }
        proxy.set_weather(Weather::Fair);
        assert_eq!(ask(&mut client(&proxy).await, "c\n").await.unwrap(), "c\n");
        assert_eq!(*server.executed.borrow(), 2);
    }

    #[tokio::test]
    async fn a_deaf_direction_loses_what_goes_its_way_and_nothing_else() {
        let mut server = echo().await;
        let proxy = FaultProxy::start(server.address).await.unwrap();
        let mut stream = client(&proxy).await;
        ask(&mut stream, "a\n").await.unwrap();
        proxy.set_weather(Weather::Deaf(Direction::ToClient));
        stream.write_all(b"b\n").await.unwrap();
        within(LIMIT, "execution", server.executed.wait_for(|count| *count == 2)).await.unwrap().unwrap();
        proxy.wait_for(|traffic| traffic.dropped == 2).await;
        proxy.set_weather(Weather::Deaf(Direction::ToServer));
        stream.write_all(b"c\n").await.unwrap();
        proxy.wait_for(|traffic| traffic.dropped == 4).await;
        proxy.set_weather(Weather::Fair);
        assert_eq!(ask(&mut stream, "d\n").await.unwrap(), "d\n");
        assert_eq!(*server.executed.borrow(), 3);
    }

    #[tokio::test]
    async fn a_lost_answer_belongs_to_a_request_that_was_executed() {
        let mut server = echo().await;
        let proxy = FaultProxy::start(server.address).await.unwrap();
        proxy.lose_answers("finalize", 1);
        let mut stream = client(&proxy).await;
        assert_eq!(ask(&mut stream, "renew\n").await.unwrap(), "renew\n");
        // The needle arrives in two pieces.
        stream.write_all(b"POST fina").await.unwrap();
        proxy.wait_for(|traffic| traffic.bytes_to_server == 15).await;
        let error = within(LIMIT, "a reset", ask(&mut stream, "lize\n")).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        within(LIMIT, "execution", server.executed.wait_for(|count| *count == 2)).await.unwrap().unwrap();
        assert_eq!((proxy.traffic().lost_answers, proxy.waiting_traps()), (1, 0));
        assert_eq!(ask(&mut client(&proxy).await, "finalize\n").await.unwrap(), "finalize\n");
    }

    #[tokio::test]
    async fn bytes_are_left_out_where_they_were_told_to_be() {
        let server = echo().await;
        let proxy = FaultProxy::start(server.address).await.unwrap();
        proxy.drop_bytes(Direction::ToServer, 2, 3);
        let mut stream = client(&proxy).await;
        assert_eq!(ask(&mut stream, "0123456\n").await.unwrap(), "0156\n");
        assert_eq!(proxy.traffic().dropped, 3);
    }

    #[tokio::test]
    async fn a_connection_is_reset_in_the_middle_of_an_answer() {
        let server = echo().await;
        let proxy = FaultProxy::start(server.address).await.unwrap();
        proxy.reset_after(Direction::ToClient, 3);
        let mut stream = client(&proxy).await;
        let error = within(LIMIT, "a reset", ask(&mut stream, "0123456\n")).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(proxy.traffic().bytes_to_client, 3);
    }
}
