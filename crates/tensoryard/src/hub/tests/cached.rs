//! What is cached, and what happens to it.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::server::{Reply, Server};
use super::*;

fn serve() -> Server {
    Server::start(|path, _| {
        Reply::File(published().into_iter().find(|(name, _)| *name == path).unwrap().1)
    })
}

fn served_hub(root: &Path) -> (Hub, Server) {
    let server = serve();
    let sources = vec![Source::Direct { base_url: server.base_url.clone() }];
    (hub(root, sources), server)
}

#[test]
fn a_file_put_there_by_hand_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let hub = hub(dir.path(), Vec::new());
    fs::create_dir_all(dir.path().join("models")).unwrap();
    fs::write(dir.path().join("models/toy.gguf"), "by hand").unwrap();
    assert_eq!(ensure(&hub, &mut NoProgress).unwrap(), dir.path().join("models/toy.gguf"));
    assert_eq!(hub.list()[0].size_bytes, 7);
}

#[test]
fn a_truncated_model_counts_as_absent_and_is_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, _server) = served_hub(dir.path());
    let path = ensure(&hub, &mut NoProgress).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
    assert!(hub.status("toy").unwrap().path.is_none());
    ensure(&hub, &mut NoProgress).unwrap();
    assert_eq!(fs::read(path).unwrap(), concatenated());
}

#[test]
fn a_changed_byte_is_found_by_verify() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, _server) = served_hub(dir.path());
    let path = ensure(&hub, &mut NoProgress).unwrap();
    let mut bytes = concatenated();
    bytes[77] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = hub.verify("toy", &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, HubError::Damaged { .. }), "{error}");
}

#[test]
fn another_revision_of_the_conversion_fetches_again() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, server) = served_hub(dir.path());
    ensure(&hub, &mut NoProgress).unwrap();
    let cancel = AtomicBool::new(false);
    let mut progress = NoProgress;
    let mut fetch = Fetch {
        convert: &concatenate,
        revision: 2,
        progress: &mut progress,
        cancel: &cancel,
        keep_published: None,
    };
    hub.ensure("toy", &mut fetch).unwrap();
    assert_eq!(server.log().len(), 4);
    assert_eq!(hub.status("toy").unwrap().manifest.unwrap().revision, 2);
}

#[test]
fn the_published_files_are_kept_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, server) = served_hub(dir.path());
    ensure(&hub, &mut NoProgress).unwrap();
    let folder = dir.path().join("published");
    let cancel = AtomicBool::new(false);
    for _ in 0..2 {
        let mut progress = Recorder::default();
        let mut fetch = Fetch {
            convert: &concatenate,
            revision: 1,
            progress: &mut progress,
            cancel: &cancel,
            keep_published: Some(&folder),
        };
        hub.ensure("toy", &mut fetch).unwrap();
        assert!(!progress.lines.contains(&"Converting".to_owned()));
    }
    for (name, bytes) in published() {
        assert_eq!(fs::read(folder.join(name)).unwrap(), bytes);
    }
    assert_eq!(server.log().len(), 4);
}

#[test]
fn a_failed_conversion_keeps_what_was_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, server) = served_hub(dir.path());
    let cancel = AtomicBool::new(false);
    let mut progress = NoProgress;
    let mut fetch = Fetch {
        convert: &|_, to| {
            fs::write(to, "half")?;
            Err("no such tensor".into())
        },
        revision: 1,
        progress: &mut progress,
        cancel: &cancel,
        keep_published: None,
    };
    let error = hub.ensure("toy", &mut fetch).unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no such tensor");
    assert!(hub.status("toy").unwrap().path.is_none());
    assert_eq!(fs::read(ensure(&hub, &mut NoProgress).unwrap()).unwrap(), concatenated());
    assert_eq!(server.log().len(), 2);
}

#[test]
fn two_at_once_fetch_one_time() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, server) = served_hub(dir.path());
    let conversions = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let cancel = AtomicBool::new(false);
                let mut progress = NoProgress;
                let convert = |from: &Path, to: &Path| {
                    conversions.fetch_add(1, Ordering::Relaxed);
                    concatenate(from, to)
                };
                let mut fetch = Fetch {
                    convert: &convert,
                    revision: 1,
                    progress: &mut progress,
                    cancel: &cancel,
                    keep_published: None,
                };
                hub.ensure("toy", &mut fetch).unwrap();
            });
        }
    });
    assert_eq!(conversions.into_inner(), 1);
    assert_eq!(server.log(), ["config.json", "model.bin"]);
}

#[test]
fn waiting_for_the_lock_is_told_and_can_be_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, _server) = served_hub(dir.path());
    fs::create_dir_all(dir.path().join("partial")).unwrap();
    let lock = File::create(dir.path().join("partial/toy.lock")).unwrap();
    lock.lock().unwrap();
    let cancel = std::sync::Arc::new(AtomicBool::new(false));
    let mut events = Recorder {
        raise_on: Some(("Waiting", std::sync::Arc::clone(&cancel))),
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
    assert_eq!(events.lines, ["Waiting"]);
}

#[test]
fn removing_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, _server) = served_hub(dir.path());
    ensure(&hub, &mut NoProgress).unwrap();
    let cancel = AtomicBool::new(false);
    assert!(hub.remove("toy", &cancel).unwrap());
    assert_eq!(fs::read_dir(dir.path().join("models")).unwrap().count(), 0);
    assert!(!hub.remove("toy", &cancel).unwrap());
}

#[test]
fn a_crash_while_a_model_is_replaced_never_leaves_an_outdated_one() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, _server) = served_hub(dir.path());
    let path = ensure(&hub, &mut NoProgress).unwrap();
    let cancel = AtomicBool::new(false);
    let mut progress = NoProgress;
    let mut second = |convert: &Convert<'_>| {
        let mut fetch = Fetch {
            convert,
            revision: 2,
            progress: &mut progress,
            cancel: &cancel,
            keep_published: None,
        };
        hub.ensure("toy", &mut fetch)
    };
    let better = |_: &Path, to: &Path| Ok(fs::write(to, "better")?);

    // The record cannot be replaced: the old model must not pass for one put there by hand.
    let manifest = dir.path().join("models/toy.manifest");
    let old = fs::read(&manifest).unwrap();
    let blocked = |from: &Path, to: &Path| {
        fs::remove_file(&manifest)?;
        fs::create_dir_all(manifest.join("in the way"))?;
        better(from, to)
    };
    assert!(matches!(second(&blocked), Err(HubError::Io { .. })));
    assert!(hub.status("toy").unwrap().path.is_none());

    // The new record is there, the new model is not: what a crash between the two leaves.
    fs::remove_dir_all(&manifest).unwrap();
    fs::write(&manifest, old).unwrap();
    assert!(hub.status("toy").unwrap().path.is_none());

    assert_eq!(fs::read(second(&better).unwrap()).unwrap(), b"better");
    assert_eq!(hub.status("toy").unwrap().path, Some(path));
    assert_eq!(hub.status("toy").unwrap().manifest.unwrap().revision, 2);
}
