//! What the operating system says of processor and memory.

use std::fs;
use std::path::Path;

use tensoryard_runtime::MemoryInfo;

use crate::cgroup;

/// Name of the processor, or its architecture where the system does not say.
pub(crate) fn processor_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Memory of the machine, or of the container if that allows less; zeros where the system
/// does not say.
pub(crate) fn memory() -> MemoryInfo {
    memory_below(Path::new("/"))
}

/// What the files of the system below `root` say.
fn memory_below(root: &Path) -> MemoryInfo {
    let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let machine = machine_memory(&text);
    match cgroup::memory(root) {
        Some(limit) => {
            MemoryInfo { total: limit.total.min(machine.total), free: limit.free.min(machine.free) }
        }
        None => machine,
    }
}

fn machine_memory(meminfo: &str) -> MemoryInfo {
    let bytes = |wanted: &str| {
        meminfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            let kib = value.trim().strip_suffix(" kB")?;
            (key == wanted).then(|| kib.trim().parse::<usize>().ok())?.map(|kib| kib * 1024)
        })
    };
    MemoryInfo { free: bytes("MemAvailable").unwrap_or(0), total: bytes("MemTotal").unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text = "MemTotal:       24689764 kB\nMemFree:  1 kB\nMemAvailable:   23000000 kB\n";
        let memory = machine_memory(text);
        assert_eq!(memory.total, 24_689_764 * 1024);
        assert_eq!(memory.free, 23_000_000 * 1024);
        assert_eq!(machine_memory("").total, 0);
    }
    #[test]
    fn a_container_has_what_it_is_allowed_and_no_more_than_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemTotal: 8 kB\nMemAvailable: 3 kB\n");
        assert_eq!(memory_below(root.path()), MemoryInfo { total: 8192, free: 3072 });
        write("proc/self/cgroup", "0::/job\n");
        write("sys/fs/cgroup/job/memory.max", "5000\n");
        write("sys/fs/cgroup/job/memory.current", "4000\n");
        assert_eq!(memory_below(root.path()), MemoryInfo { total: 5000, free: 1000 });
        write("sys/fs/cgroup/job/memory.current", "10\n");
        assert_eq!(memory_below(root.path()), MemoryInfo { total: 5000, free: 3072 });
        write("sys/fs/cgroup/job/memory.max", "9000\n");
        assert_eq!(memory_below(root.path()), MemoryInfo { total: 8192, free: 3072 });
    }
}
