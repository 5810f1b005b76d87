//! A web server on this machine that misbehaves on request.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What the server does with a request.
pub enum Reply {
    /// Sends the bytes, or the wanted part of them.
    File(Vec<u8>),
    /// Sends all of the bytes, whatever part is wanted.
    Whole(Vec<u8>),
    /// Promises the bytes, sends this many of those wanted and hangs up.
    CutAfter(Vec<u8>, usize),
    /// Only a status.
    Status(u16),
    /// Sends the client elsewhere.
    Redirect(String),
    /// Accepts and says nothing.
    Silence(Duration),
}

pub struct Server {
    pub base_url: String,
    /// Each request as `path` or `path from N`.
    pub requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers with `reply(path, number of the request)`, counted from 0.
    pub fn start(reply: impl Fn(&str, usize) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some((path, offset)) = read_request(&stream) else { continue };
                let number = {
                    let mut log = log.lock().unwrap();
                    log.push(match offset {
                        None => path.clone(),
                        Some(offset) => format!("{path} from {offset}"),
                    });
                    log.len() - 1
                };
                // A client that has gone is no fault of the server.
                let _ = send(stream, reply(&path, number), offset);
            }
        });
        Self { base_url, requests }
    }

    pub fn log(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<(String, Option<usize>)> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.trim_start_matches('/').to_owned();
    let mut offset = None;
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some(range) = line.to_lowercase().strip_prefix("range: bytes=") {
            offset = range.trim_end_matches('-').parse().ok();
        }
    }
    Some((path, offset))
}

fn send(mut stream: TcpStream, reply: Reply, offset: Option<usize>) -> std::io::Result<()> {
    let close = "Connection: close\r\n\r\n";
    let (bytes, offset, limit) = match reply {
        Reply::File(bytes) => (bytes, offset, usize::MAX),
        Reply::Whole(bytes) => (bytes, None, usize::MAX),
        Reply::CutAfter(bytes, limit) => (bytes, offset, limit),
        Reply::Status(status) => {
            return write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n{close}");
        }
        Reply::Redirect(to) => {
            return write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n{close}"
            );
        }
        Reply::Silence(time) => {
            thread::sleep(time);
            return Ok(());
        }
    };
    let start = offset.unwrap_or(0);
    if start > 0 && start >= bytes.len() {
        return write!(stream, "HTTP/1.1 416 X\r\nContent-Length: 0\r\n{close}");
    }
    let rest = &bytes[start..];
    let length = rest.len();
    match offset {
        None => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{close}")?,
        Some(_) => {
            let (last, all) = (bytes.len() - 1, bytes.len());
            write!(
                stream,
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{last}/{all}\r\n\
                 Content-Length: {length}\r\n{close}"
            )?;
        }
    }
    stream.write_all(&rest[..length.min(limit)])
}
