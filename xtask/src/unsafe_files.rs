//! Which files may contain unsafe code: those of `xtask/unsafe-files.txt`.
//!
//! Each line is `path: reason`; a path with a slash at its end stands for a
//! folder. A file with unsafe code that is not listed is a fault, and so is a
//! line that fits no such file any more.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::source::has_word;

const LIST: &str = "xtask/unsafe-files.txt";
/// Folders with Rust source, below the workspace root.
const FOLDERS: [&str; 2] = ["crates", "xtask"];

/// Faults of the list against the source, one line each.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let list =
        fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let mut found = Vec::new();
    for folder in FOLDERS {
        collect(root, Path::new(folder), &mut found)?;
    }
    Ok(compare(&list, &found))
}

/// Adds the files below a folder that contain unsafe code, with `/` between names.
fn collect(root: &Path, folder: &Path, found: &mut Vec<String>) -> anyhow::Result<()> {
    let path = root.join(folder);
    let mut entries = fs::read_dir(&path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read {}", path.display()))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let inner = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                collect(root, &inner, found)?;
            }
        } else if inner.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read {}", inner.display()))?;
            if has_word(&source, "unsafe") {
                found.push(inner.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    Ok(())
}

fn compare(list: &str, found: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut listed = Vec::new();
    for line in
        list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match line.split_once(": ") {
            Some((path, reason)) if !reason.trim().is_empty() => listed.push(path),
            _ => faults.push(format!("{LIST}: {line:?} gives no reason")),
        }
    }
    let covers =
        |entry: &str, file: &str| entry == file || entry.ends_with('/') && file.starts_with(entry);
    for entry in &listed {
        if !found.iter().any(|file| covers(entry, file)) {
            faults.push(format!("{LIST}: {entry} contains no unsafe code: remove the line"));
        }
    }
    for file in found {
        if !listed.iter().any(|entry| covers(entry, file)) {
            faults.push(format!("{file} contains unsafe code but is not in {LIST}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn listed_files_and_folders_pass() {
        let list = "# why\n\ncrates/a/src/map.rs: maps files\ncrates/b/src/kernels/: intrinsics\n";
        let found = ["crates/a/src/map.rs".to_owned(), "crates/b/src/kernels/x/y.rs".to_owned()];
        assert_eq!(compare(list, &found), [""; 0]);
    }

    #[test]
    fn unlisted_stale_and_unexplained_are_faults() {
        let list = "crates/a/src/map.rs: maps files\ncrates/b/src/team.rs\n";
        assert_eq!(
            compare(list, &["crates/c/src/x.rs".to_owned()]),
            [
                "xtask/unsafe-files.txt: \"crates/b/src/team.rs\" gives no reason",
                "xtask/unsafe-files.txt: crates/a/src/map.rs contains no unsafe code: remove the line",
                "crates/c/src/x.rs contains unsafe code but is not in xtask/unsafe-files.txt",
            ]
        );
    }
}
