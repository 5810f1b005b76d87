//! Direct download of one file over HTTP, resumed where it broke off.
//!
//! The network is read by a helper thread that touches no file, so that the
//! caller can be cancelled at once even while a server is silent. What has
//! arrived stays in the part file for the next try.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::cache::POLL;
use super::catalogue::ModelFile;
use super::digest::CHUNK_BYTES;
use super::error::SourceError;

/// Tries in a row that may bring nothing, once something has come.
const BARREN_TRIES: u32 = 3;
/// Tries in all, against a server that always breaks off after a few bytes.
const TRIES: u32 = 64;
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// How long the network may stay silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct HttpLimits {
    /// For finding the host and for connecting to it. Short, so that a machine
    /// without network goes on to the next source quickly.
    pub connect: Duration,
    /// For an answer, and for each read of it.
    pub silence: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), silence: Duration::from_secs(20) }
    }
}

/// An HTTP client with the limits and the environment's proxy.
pub(super) fn client(limits: HttpLimits) -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .user_agent(concat!("tensoryard/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(limits.connect))
        .timeout_connect(Some(limits.connect))
        .timeout_recv_response(Some(limits.silence))
        .timeout_per_read(Some(limits.silence))
        .build()
        .new_agent()
}

/// Fetches `file` from `url` into the part file, going on where that one ends.
///
/// On success the part file has the recorded size; its content is not checked.
/// `on_bytes` gets the size of the part file as it grows.
pub(super) fn fetch_part(
    client: &ureq::Agent,
    url: &str,
    file: &ModelFile,
    part: &Path,
    cancel: &AtomicBool,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<(), SourceError> {
    let mut barren = 0;
    let mut any_came = false;
    let mut last_reason = String::new();
    for _ in 0..TRIES {
        let had = part_bytes(part)?;
        on_bytes(had);
        if had == file.size_bytes {
            return Ok(());
        }
        match transfer(client, url, file, part, had, cancel, on_bytes)? {
            Transfer::Complete => return Ok(()),
            Transfer::Restart => {
                fs::remove_file(part).map_err(|source| SourceError::io("remove", part, source))?;
            }
            Transfer::Broken(reason) => {
                let came = part_bytes(part)? > had;
                any_came |= came;
                barren = if came { 0 } else { barren + 1 };
                last_reason = reason;
            }
        }
        if barren >= if any_came { BARREN_TRIES } else { 1 } {
            break;
        }
        pause(RETRY_DELAY, cancel)?;
    }
    Err(SourceError::Connection { url: url.to_owned(), reason: last_reason })
}

/// How one request ended.
enum Transfer {
    Complete,
    /// The part file does not fit what the server has.
    Restart,
    Broken(String),
}

/// What the network thread reports.
enum Piece {
    Head { status: u16, range_start: Option<u64>, length: Option<u64> },
    Data(Vec<u8>),
    End,
    Broken(String),
}

fn transfer(
    client: &ureq::Agent,
    url: &str,
    file: &ModelFile,
    part: &Path,
    had: u64,
    cancel: &AtomicBool,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<Transfer, SourceError> {
    let pieces = request(client, url, had)?;
    let write_error = |source| SourceError::io("write", part, source);
    let (status, range_start, length) = match next(&pieces, cancel)? {
        Piece::Head { status, range_start, length } => (status, range_start, length),
        Piece::Broken(reason) => return Ok(Transfer::Broken(reason)),
        Piece::Data(_) | Piece::End => {
            return Ok(Transfer::Broken("no answer".to_owned()));
        }
    };
    let mut written = match status {
        206 if range_start == Some(had) => had,
        200 => 0,
        206 | 416 if had > 0 => return Ok(Transfer::Restart),
        _ => return Err(SourceError::Status { url: url.to_owned(), status }),
    };
    let wrong_size =
        |found| SourceError::Size { file: file.name.clone(), expected: file.size_bytes, found };
    if let Some(length) = length
        && written.saturating_add(length) != file.size_bytes
    {
        return Err(wrong_size(written.saturating_add(length)));
    }
    let mut output = File::options()
        .create(true)
        .append(written > 0)
        .write(true)
        .truncate(written == 0)
        .open(part)
        .map_err(write_error)?;
    loop {
        match next(&pieces, cancel)? {
            Piece::Data(bytes) => {
                written += bytes.len() as u64;
                if written > file.size_bytes {
                    return Err(wrong_size(written));
                }
                output.write_all(&bytes).map_err(write_error)?;
                on_bytes(written);
            }
            Piece::End if written == file.size_bytes => return Ok(Transfer::Complete),
            Piece::End => return Err(wrong_size(written)),
            Piece::Broken(reason) => return Ok(Transfer::Broken(reason)),
            Piece::Head { .. } => return Ok(Transfer::Broken("second answer".to_owned())),
        }
    }
}

/// Sends the request on a thread of its own. The thread ends by itself when
/// the receiver is dropped or the network stays silent for too long.
fn request(client: &ureq::Agent, url: &str, offset: u64) -> Result<Receiver<Piece>, SourceError> {
    let (sender, receiver) = sync_channel(8);
    let client = client.clone();
    let address = url.to_owned();
    thread::Builder::new()
        .name("tensoryard-http".to_owned())
        .spawn(move || read_network(&client, &address, offset, &sender))
        .map_err(|error| SourceError::Connection {
            url: url.to_owned(),
            reason: format!("cannot start a thread: {error}"),
        })?;
    Ok(receiver)
}

fn read_network(client: &ureq::Agent, url: &str, offset: u64, sender: &SyncSender<Piece>) {
    let mut request = client.get(url);
    if offset > 0 {
        request = request.header("Range", format!("bytes={offset}-"));
    }
    // A failed send means that the receiver has gone: nothing is left to do.
    let response = match request.call() {
        Ok(response) => response,
        Err(error) => {
            let _ = sender.send(Piece::Broken(error.to_string()));
            return;
        }
    };
    let range_start = response
        .headers()
        .get("content-range")
        .and_then(|value| value.to_str().ok())
        .and_then(range_start);
    let head = Piece::Head {
        status: response.status().as_u16(),
        range_start,
        length: response.body().content_length(),
    };
    if sender.send(head).is_err() {
        return;
    }
    let mut body = response.into_body().into_reader();
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let piece = match body.read(&mut chunk) {
            Ok(0) => Piece::End,
            Ok(n) => {
                chunk.truncate(n);
                Piece::Data(chunk)
            }
            Err(error) => Piece::Broken(error.to_string()),
        };
        let last = !matches!(piece, Piece::Data(_));
        if sender.send(piece).is_err() || last {
            return;
        }
    }
}

/// The first byte in a header value such as `bytes 100-199/200`.
fn range_start(value: &str) -> Option<u64> {
    value.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

fn next(pieces: &Receiver<Piece>, cancel: &AtomicBool) -> Result<Piece, SourceError> {
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(SourceError::Cancelled);
        }
        match pieces.recv_timeout(POLL) {
            Ok(piece) => return Ok(piece),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(Piece::Broken("the transfer ended early".to_owned()));
            }
        }
    }
}

fn pause(duration: Duration, cancel: &AtomicBool) -> Result<(), SourceError> {
    let mut left = duration;
    while !left.is_zero() {
        if cancel.load(Ordering::Relaxed) {
            return Err(SourceError::Cancelled);
        }
        let step = left.min(POLL);
        thread::sleep(step);
        left -= step;
    }
    Ok(())
}

/// Size of the part file, zero when there is none; one that is too long to be
/// right counts as its size and is refused by the server or the checksum.
fn part_bytes(part: &Path) -> Result<u64, SourceError> {
    match fs::metadata(part) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(SourceError::io("read", part, source)),
    }
}
