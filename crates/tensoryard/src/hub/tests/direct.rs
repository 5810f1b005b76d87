//! Direct download.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::server::{Reply, Server};
use super::*;

fn content(path: &str) -> Vec<u8> {
    let name = path.rsplit('/').next().unwrap_or_default();
    published().into_iter().find(|(known, _)| *known == name).unwrap().1
}

fn direct(server: &Server) -> Source {
    Source::Direct { base_url: server.base_url.clone() }
}

#[test]
fn fetches_converts_and_records() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|path, _| Reply::File(content(path)));
    let hub = hub(dir.path(), vec![direct(&server)]);
    let mut events = Recorder::default();
    let path = ensure(&hub, &mut events).unwrap();
    assert_eq!(path, dir.path().join("models/toy.gguf"));
    assert_eq!(fs::read(&path).unwrap(), concatenated());
    let manifest = hub.status("toy").unwrap().manifest.unwrap();
    assert_eq!(manifest.size_bytes, 200_002);
    assert_eq!(manifest.source, format!("direct download from {}", server.base_url));
    assert!(hub.verify("toy", &AtomicBool::new(false)).unwrap());
    assert!(!dir.path().join("partial/toy").exists());
    let last_bytes = events.lines.iter().rfind(|line| line.starts_with("Bytes")).unwrap();
    assert_eq!(last_bytes, "Bytes { done: 200002, total: 200002 }");
    assert_eq!(events.lines.last().unwrap(), "Converting");

    assert_eq!(ensure(&hub, &mut NoProgress).unwrap(), path);
    assert_eq!(server.log(), ["config.json", "model.bin"]);
}

#[test]
fn goes_on_where_the_connection_broke() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|path, number| match number {
        1 => Reply::CutAfter(content(path), 1000),
        2 => Reply::CutAfter(content(path), 99_000),
        _ => Reply::File(content(path)),
    });
    let hub = hub(dir.path(), vec![direct(&server)]);
    let path = ensure(&hub, &mut NoProgress).unwrap();
    assert_eq!(fs::read(path).unwrap(), concatenated());
    let expected = ["config.json", "model.bin", "model.bin from 1000", "model.bin from 100000"];
    assert_eq!(server.log(), expected);
}

#[test]
fn goes_on_with_the_part_of_an_earlier_run() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|path, _| Reply::File(content(path)));
    let parts = dir.path().join("partial/toy/parts");
    fs::create_dir_all(&parts).unwrap();
    fs::write(parts.join("model.bin"), &content("model.bin")[..500]).unwrap();
    ensure(&hub(dir.path(), vec![direct(&server)]), &mut NoProgress).unwrap();
    assert_eq!(server.log(), ["config.json", "model.bin from 500"]);
}

#[test]
fn begins_anew_when_the_part_was_of_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|path, _| Reply::File(content(path)));
    let parts = dir.path().join("partial/toy/parts");
    fs::create_dir_all(&parts).unwrap();
    fs::write(parts.join("model.bin"), [9; 500]).unwrap();
    let path = ensure(&hub(dir.path(), vec![direct(&server)]), &mut NoProgress).unwrap();
    assert_eq!(fs::read(path).unwrap(), concatenated());
    assert_eq!(server.log(), ["config.json", "model.bin from 500", "model.bin"]);
}

#[test]
fn begins_anew_when_the_part_is_too_long_or_the_server_ignores_ranges() {
    for part_bytes in [300_000, 400] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(move |path, _| match part_bytes {
            400 => Reply::Whole(content(path)),
            _ => Reply::File(content(path)),
        });
        let parts = dir.path().join("partial/toy/parts");
        fs::create_dir_all(&parts).unwrap();
        fs::write(parts.join("model.bin"), vec![9; part_bytes]).unwrap();
        let path = ensure(&hub(dir.path(), vec![direct(&server)]), &mut NoProgress).unwrap();
        assert_eq!(fs::read(path).unwrap(), concatenated());
    }
}

#[test]
fn follows_redirects_and_keeps_the_range() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|path, _| match path.strip_prefix("a/") {
        Some(name) => Reply::Redirect(format!("/b/{name}")),
        None => Reply::File(content(path)),
    });
    let parts = dir.path().join("partial/toy/parts");
    fs::create_dir_all(&parts).unwrap();
    fs::write(parts.join("model.bin"), &content("model.bin")[..500]).unwrap();
    let source = Source::Direct { base_url: format!("{}a/", server.base_url) };
    ensure(&hub(dir.path(), vec![source]), &mut NoProgress).unwrap();
    assert!(server.log().contains(&"b/model.bin from 500".to_owned()), "{:?}", server.log());
}

#[test]
fn a_wrong_file_is_refused_and_the_next_source_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = Server::start(|path, _| {
        let mut bytes = content(path);
        bytes[0] ^= 1;
        Reply::File(bytes)
    });
    let right = Server::start(|path, _| Reply::File(content(path)));
    let hub = hub(dir.path(), vec![direct(&wrong), direct(&right)]);
    let mut events = Recorder::default();
    let path = ensure(&hub, &mut events).unwrap();
    assert_eq!(fs::read(path).unwrap(), concatenated());
    let failed = events.lines.iter().find(|line| line.starts_with("SourceFailed")).unwrap();
    assert!(failed.contains("config.json has the SHA-256"), "{failed}");
}

#[test]
fn a_file_of_another_size_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Reply::File(vec![0; 5]));
    let error = ensure(&hub(dir.path(), vec![direct(&server)]), &mut NoProgress).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("config.json has 5 bytes where 2 are recorded"), "{message}");
    assert!(!dir.path().join("partial/toy/parts/config.json").exists());
}

#[test]
fn when_every_source_fails_each_reason_and_the_way_by_hand_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Server::start(|_, _| Reply::Status(404));
    let closed = Source::Direct { base_url: "http://127.0.0.1:9/".into() };
    let package = Package {
        name: "toy-model".into(),
        version: "1.2".into(),
        wheel_bytes: 10,
        members: Vec::new(),
    };
    let sources = vec![direct(&missing), closed, Source::Pip { packages: vec![package] }];
    let message = ensure(&hub(dir.path(), sources), &mut NoProgress).unwrap_err().to_string();
    let gguf = dir.path().join("models/toy.gguf");
    for expected in [
        "config.json: the server answered with status 404",
        "2. direct download from http://127.0.0.1:9/: http://127.0.0.1:9/config.json: ",
        "3. Python package toy-model==1.2: no pip found (tried /no/such/pip)",
        "put config.json, model.bin into one folder",
        "pip download --no-deps toy-model==1.2",
        &format!("tensoryard convert FOLDER {}", gguf.display()),
    ] {
        assert!(message.contains(expected), "{expected:?} is not in:\n{message}");
    }
}

#[test]
fn a_silent_server_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Reply::Silence(Duration::from_secs(20)));
    let error = ensure(&hub(dir.path(), vec![direct(&server)]), &mut NoProgress).unwrap_err();
    assert!(matches!(error, HubError::AllSourcesFailed { .. }), "{error}");
}

#[test]
fn cancelling_stops_and_keeps_the_part() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|path, number| match number {
        0 => Reply::File(content(path)),
        1 => Reply::CutAfter(content(path), 1000),
        _ => Reply::Silence(Duration::from_secs(20)),
    });
    let hub = hub(dir.path(), vec![direct(&server)]);
    let cancel = Arc::new(AtomicBool::new(false));
    let mut events = Recorder {
        raise_on: Some(("Bytes { done: 1002,", Arc::clone(&cancel))),
        ..Recorder::default()
    };
    let mut fetch = Fetch {
        convert: &concatenate,
        revision: 1,
        progress: &mut events,
        cancel: &cancel,
        keep_published: None,
    };
    assert!(matches!(hub.ensure("toy", &mut fetch), Err(HubError::Cancelled)));
    let part = dir.path().join("partial/toy/parts/model.bin");
    assert_eq!(fs::metadata(part).unwrap().len(), 1000);
    assert!(hub.status("toy").unwrap().path.is_none());
}
