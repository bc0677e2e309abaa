//! `trestle dev` is the way of production: its parts speak over real sockets, each with its own token.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use support::{Machine, finish};

/// What a client sent over one connection.
type Sent = Arc<Mutex<Vec<Vec<u8>>>>;

/// Passes connections on to the server whose `server.json` lies somewhere below `home`, and keeps what clients sent.
fn record(home: PathBuf) -> (String, Sent) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sent = Sent::default();
    let kept = Arc::clone(&sent);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server: serde_json::Value =
                serde_json::from_slice(&std::fs::read(find(&home).unwrap()).unwrap()).unwrap();
            let address = server["url"].as_str().unwrap().strip_prefix("http://").unwrap();
            let server = TcpStream::connect(address).unwrap();
            let index = {
                let mut all = kept.lock().unwrap();
                all.push(Vec::new());
                all.len() - 1
            };
            let (back_from, back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || pass(back_from, back_to, |_| {}));
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || {
                pass(client, server, |bytes| kept.lock().unwrap()[index].extend_from_slice(bytes))
            });
        }
    });
    (url, sent)
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut seen: impl FnMut(&[u8])) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        seen(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn find(directory: &Path) -> Option<PathBuf> {
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        if entry.file_name() == "server.json" {
            return Some(path);
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Some(found) = find(&path)
        {
            return Some(found);
        }
    }
    None
}

/// The requests of one connection: method, path, and the kind of the bearer.
fn requests(mut bytes: &[u8]) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.lines();
        let mut first = lines.next().unwrap().split(' ');
        let (method, path) = (first.next().unwrap(), first.next().unwrap());
        let header = |name: &str| {
            head.lines()
                .skip(1)
                .filter_map(|line| line.split_once(": "))
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
        };
        let token = header("authorization")
            .and_then(|value| value.strip_prefix("Bearer "))
            .and_then(|token| token.split('_').next())
            .unwrap_or("none");
        assert!(header("transfer-encoding").is_none(), "{head}");
        let length: usize = header("content-length").map_or(0, |length| length.parse().unwrap());
        found.push((method.to_owned(), path.split('?').next().unwrap().to_owned(), token.to_owned()));
        bytes = &bytes[(end + 4 + length).min(bytes.len())..];
    }
    found
}

#[test]
fn dev_speaks_over_sockets_with_the_right_kind_of_token_at_each_step() {
    let machine = Machine::new();
    machine.workflow("hello", "export default () => { console.log('hi'); return 1; };\n");
    let (url, sent) = record(machine.home.path().join("tmp"));
    finish(machine.trestle(["dev", "hello", "--public-url", &url]).env("TRESTLE_LOG", "warn")).ok();
    let all: Vec<_> = sent.lock().unwrap().iter().flat_map(|bytes| requests(bytes)).collect();
    let run = all
        .iter()
        .find_map(|(_, path, _)| path.strip_prefix("/runner/v1/runs/")?.split('/').next())
        .unwrap()
        .to_owned();
    for (method, path, token) in [
        ("POST", "/runner/v1/register".to_owned(), "none"),
        ("POST", "/runner/v1/pool/poll".to_owned(), "bwkr"),
        ("POST", format!("/runner/v1/runs/{run}/claim"), "bwrt"),
        ("GET", format!("/runner/v1/runs/{run}/version"), "bwrt"),
        ("POST", format!("/runner/v1/runs/{run}/telemetry"), "bwrt"),
        ("POST", format!("/runner/v1/runs/{run}/finalize"), "bwrt"),
    ] {
        assert!(
            all.iter().any(|seen| seen.0 == method && seen.1 == path && seen.2 == token),
            "no {method} {path} with {token} in {all:#?}"
        );
    }
    assert!(all.iter().any(|(method, path, token)| method == "POST"
        && path.starts_with("/runner/v1/pool/assignments/")
        && path.ends_with("/claim")
        && token == "bwkr"));
    assert!(
        all.iter()
            .any(|(method, path, token)| method == "GET" && path.starts_with("/blobs/") && token == "none"),
        "{all:#?}"
    );
}
